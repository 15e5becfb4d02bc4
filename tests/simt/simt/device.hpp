// SPDX-License-Identifier: Apache-2.0
// Device language: qualifiers, barriers, warp operations, atomics, intrinsics.
#pragma once

#include <math.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "block.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// One block runs at a time on a host thread, so that its threads share what is local to that thread.
#define __shared__ static thread_local

namespace simt::detail {

inline executor& device() {
  executor* const active = executor::active();
  if (active == nullptr) {
    std::fputs("simt: a device function was called outside of a kernel\n", stderr);
    std::abort();
  }
  return *active;
}

template <class T, class... Choices>
concept one_of = (std::is_same_v<T, Choices> || ...);
template <class T>
concept shuffled_type = one_of<T, int, unsigned, long, unsigned long, long long, unsigned long long, float, double>;
template <class T>
concept atomic_integer = one_of<T, int, unsigned, unsigned long long>;
template <class T>
concept ordered_integer = atomic_integer<T> || std::is_same_v<T, long long>;

template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = device().warp_operation(wait_for::shuffle, mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Keeps a rounded result from being contracted with the next operation.
template <class T>
T rounded(T x) {
#if defined(__x86_64__)
  asm("" : "+x"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#endif
  return x;
}

template <class T, class Function>
T atomically(T* address, Function function) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, function(old), std::memory_order_relaxed)) continue;
  return old;
}

}  // namespace simt::detail

inline void __syncthreads() { simt::detail::device().block_barrier(simt::wait_for::syncthreads, false); }
inline int __syncthreads_count(int predicate) {
  return simt::detail::device().block_barrier(simt::wait_for::syncthreads_count, predicate != 0);
}
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) > 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(!predicate) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  simt::detail::device().warp_operation(simt::wait_for::syncwarp, mask, 0, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      simt::detail::device().warp_operation(simt::wait_for::ballot, mask, predicate != 0 ? 1 : 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <simt::detail::shuffled_type T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  unsigned const lane = simt::detail::device().lane(), w = static_cast<unsigned>(width);
  return simt::detail::shuffle(mask, value, lane / w * w + static_cast<unsigned>(source) % w);
}
template <simt::detail::shuffled_type T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  unsigned const lane = simt::detail::device().lane(), w = static_cast<unsigned>(width);
  unsigned const source = lane ^ static_cast<unsigned>(lane_mask);
  return simt::detail::shuffle(mask, value, source >= (lane / w + 1) * w ? lane : source);
}
template <simt::detail::shuffled_type T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  unsigned const lane = simt::detail::device().lane(), w = static_cast<unsigned>(width);
  return simt::detail::shuffle(mask, value, lane % w + delta < w ? lane + delta : lane);
}
template <simt::detail::shuffled_type T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  unsigned const lane = simt::detail::device().lane(), w = static_cast<unsigned>(width);
  return simt::detail::shuffle(mask, value, lane % w >= delta ? lane - delta : lane);
}

template <class T>
requires simt::detail::atomic_integer<T> || std::is_floating_point_v<T> T atomicAdd(T* address,
                                                                                    std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) {
    if constexpr (std::is_same_v<T, int>)
      return static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
    else
      return old + value;
  });
}
template <simt::detail::atomic_integer T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) { return old | value; });
}
template <simt::detail::atomic_integer T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) { return old & value; });
}
template <simt::detail::atomic_integer T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) { return old ^ value; });
}
template <simt::detail::ordered_integer T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) { return std::max(old, value); });
}
template <simt::detail::ordered_integer T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) { return std::min(old, value); });
}
template <class T>
requires simt::detail::atomic_integer<T> || std::is_same_v<T, float> T atomicExch(T* address,
                                                                                  std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T) { return value; });
}
template <simt::detail::atomic_integer T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return simt::detail::atomically(address, [&](T old) { return old == compare ? value : old; });
}

inline void __threadfence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
[[noreturn]] inline void __trap() { simt::detail::device().fault(cudaErrorLaunchFailure, "__trap"); }

#define SIMT_MINMAX(T)                             \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
SIMT_MINMAX(int)
SIMT_MINMAX(unsigned)
SIMT_MINMAX(long)
SIMT_MINMAX(unsigned long)
SIMT_MINMAX(long long)
SIMT_MINMAX(unsigned long long)
#undef SIMT_MINMAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

template <class T>
T __ldg(T const* p) {
  return *p;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline float __fadd_rn(float a, float b) { return simt::detail::rounded(a + b); }
inline float __fsub_rn(float a, float b) { return simt::detail::rounded(a - b); }
inline float __fmul_rn(float a, float b) { return simt::detail::rounded(a * b); }
inline float __fdiv_rn(float a, float b) { return simt::detail::rounded(a / b); }
inline float __frcp_rn(float a) { return simt::detail::rounded(1.0f / a); }
inline float __fsqrt_rn(float a) { return simt::detail::rounded(sqrtf(a)); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return simt::detail::rounded(a + b); }
inline double __dsub_rn(double a, double b) { return simt::detail::rounded(a - b); }
inline double __dmul_rn(double a, double b) { return simt::detail::rounded(a * b); }
inline double __ddiv_rn(double a, double b) { return simt::detail::rounded(a / b); }
inline double __dsqrt_rn(double a) { return simt::detail::rounded(sqrt(a)); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __double2float_rn(double a) { return static_cast<float>(a); }
