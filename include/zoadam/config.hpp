// SPDX-License-Identifier: Apache-2.0
// zoadam: compressed collectives and linearized Adam. Compiler and target facts; every #if of the core lives here.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define ZOADAM_HOST_DEVICE __host__ __device__
// In front of a function for host and device that calls what its caller hands in: the caller knows where it runs.
#define ZOADAM_CALLS_ANYTHING _Pragma("nv_exec_check_disable")
#else
#define ZOADAM_HOST_DEVICE
#define ZOADAM_CALLS_ANYTHING
#endif

#if defined(__GNUC__) || defined(__clang__)
// What formulas are made of: kernels of every backend inline it. SIMD lanes exist on the host alone.
#define ZOADAM_INLINE ZOADAM_HOST_DEVICE inline __attribute__((always_inline))
#define ZOADAM_HOST_INLINE inline __attribute__((always_inline))
#define ZOADAM_NOINLINE __attribute__((noinline))
#define ZOADAM_LAMBDA_INLINE __attribute__((always_inline))
#else
#error "zoadam needs g++, clang or nvcc over one of them"
#endif

namespace zoadam {

/// Element counts, offsets and byte counts: 64 bits, signed.
using index = std::int64_t;

/// Instruction sets as types: kernels carry one in their type, so that translation units built for different
/// targets never share a kernel.
namespace isa {
struct scalar {
  static constexpr char const* name = "scalar";
};
struct sse2 {
  static constexpr char const* name = "sse2";
};
struct avx2 {
  static constexpr char const* name = "avx2";
};
struct avx512 {
  static constexpr char const* name = "avx512";
};

// Each set lists what its kernels use. Define ZOADAM_SCALAR to take plain scalar code on any target; nvcc takes it
// too, since its device pass refuses vector types even where only the host uses them.
#if defined(ZOADAM_SCALAR) || defined(__CUDACC__)
using native = scalar;
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
using native = avx512;
#define ZOADAM_HAS_AVX512 1
#define ZOADAM_HAS_AVX2 1
#define ZOADAM_HAS_SSE2 1
#elif defined(__AVX2__)
using native = avx2;
#define ZOADAM_HAS_AVX2 1
#define ZOADAM_HAS_SSE2 1
#elif defined(__SSE2__)
using native = sse2;
#define ZOADAM_HAS_SSE2 1
#else
using native = scalar;
#endif
}  // namespace isa

}  // namespace zoadam
