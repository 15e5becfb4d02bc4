// SPDX-License-Identifier: Apache-2.0
// AVX2 lane: eight float32 whose arithmetic no compiler flag can change. See f32.hpp for the meaning of each
// function.
#pragma once

#include "zoadam/config.hpp"

#if defined(ZOADAM_HAS_AVX2)

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace zoadam {
namespace detail {

ZOADAM_HOST_INLINE __m256 opaque(__m256 x) noexcept {
  asm("" : "+v"(x));
  return x;
}

}  // namespace detail

struct f32x8_mask {
  __m256i v;

  ZOADAM_HOST_INLINE static f32x8_mask from_bits(std::uint32_t bits) noexcept {
    __m256i const single = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return {_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), single), single)};
  }
  ZOADAM_HOST_INLINE std::uint32_t bits() const noexcept {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(v)));
  }
  ZOADAM_HOST_INLINE bool all() const noexcept { return bits() == 0xffu; }
  ZOADAM_HOST_INLINE bool any() const noexcept { return bits() != 0; }
  ZOADAM_HOST_INLINE int count() const noexcept { return std::popcount(bits()); }

  ZOADAM_HOST_INLINE friend f32x8_mask operator&(f32x8_mask a, f32x8_mask b) noexcept {
    return {_mm256_and_si256(a.v, b.v)};
  }
  ZOADAM_HOST_INLINE friend f32x8_mask operator|(f32x8_mask a, f32x8_mask b) noexcept {
    return {_mm256_or_si256(a.v, b.v)};
  }
  ZOADAM_HOST_INLINE friend f32x8_mask operator!(f32x8_mask a) noexcept {
    return {_mm256_xor_si256(a.v, _mm256_set1_epi32(-1))};
  }
};

struct f32x8 {
  using isa = ::zoadam::isa::avx2;
  using mask = f32x8_mask;
  static constexpr int width = 8;

  __m256 v;

  f32x8() = default;
  ZOADAM_HOST_INLINE explicit f32x8(float x) noexcept : v(detail::opaque(_mm256_set1_ps(x))) {}

  ZOADAM_HOST_INLINE static f32x8 load(float const* p) noexcept { return of(_mm256_loadu_ps(p)); }
  ZOADAM_HOST_INLINE static f32x8 load(float const* p, int n) noexcept {
    alignas(32) float part[8] = {};
    if (n > 0) std::memcpy(part, p, static_cast<std::size_t>(n) * sizeof(float));
    return of(_mm256_load_ps(part));
  }
  ZOADAM_HOST_INLINE void store(float* p) const noexcept { _mm256_storeu_ps(p, v); }
  ZOADAM_HOST_INLINE void store(float* p, int n) const noexcept {
    alignas(32) float part[8];
    _mm256_store_ps(part, v);
    if (n > 0) std::memcpy(p, part, static_cast<std::size_t>(n) * sizeof(float));
  }
  ZOADAM_HOST_INLINE float first() const noexcept { return _mm_cvtss_f32(_mm256_castps256_ps128(v)); }

  ZOADAM_HOST_INLINE friend f32x8 operator+(f32x8 a, f32x8 b) noexcept { return of(_mm256_add_ps(a.v, b.v)); }
  ZOADAM_HOST_INLINE friend f32x8 operator-(f32x8 a, f32x8 b) noexcept { return of(_mm256_sub_ps(a.v, b.v)); }
  ZOADAM_HOST_INLINE friend f32x8 operator*(f32x8 a, f32x8 b) noexcept { return of(_mm256_mul_ps(a.v, b.v)); }

  // Whole instructions below: the intrinsics of these are folded, swapped or approximated under fast-math flags.
  // Vector comparisons have no encoding for the upper sixteen registers, hence "x".
  ZOADAM_HOST_INLINE friend f32x8 operator/(f32x8 a, f32x8 b) noexcept {
    f32x8 r;
    asm("vdivps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x8 sqrt(f32x8 a) noexcept {
    f32x8 r;
    asm("vsqrtps {%1, %0|%0, %1}" : "=v"(r.v) : "v"(a.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x8 min(f32x8 a, f32x8 b) noexcept {
    f32x8 r;
    asm("vminps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x8 max(f32x8 a, f32x8 b) noexcept {
    f32x8 r;
    asm("vmaxps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend mask less(f32x8 a, f32x8 b) noexcept {
    __m256 r;
    asm("vcmpltps {%2, %1, %0|%0, %1, %2}" : "=x"(r) : "x"(a.v), "x"(b.v));
    return {_mm256_castps_si256(r)};
  }
  ZOADAM_HOST_INLINE friend mask greater(f32x8 a, f32x8 b) noexcept { return less(b, a); }

  ZOADAM_HOST_INLINE friend f32x8 operator-(f32x8 a) noexcept { return of(_mm256_xor_si256(a.bits(), sign_bit())); }
  ZOADAM_HOST_INLINE friend f32x8 abs(f32x8 a) noexcept { return of(a.magnitude()); }

  ZOADAM_HOST_INLINE friend mask negative(f32x8 a) noexcept {
    // -denormal to -Inf are 0x80000001 to 0xff800000; one less puts -0 out of the range and keeps NaN out
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(-0x800000), _mm256_add_epi32(a.bits(), _mm256_set1_epi32(-1)))};
  }
  ZOADAM_HOST_INLINE friend mask nonzero(f32x8 a) noexcept {
    return {_mm256_cmpgt_epi32(a.magnitude(), _mm256_setzero_si256())};
  }
  ZOADAM_HOST_INLINE friend mask any_bit(f32x8 a) noexcept {
    return !mask{_mm256_cmpeq_epi32(a.bits(), _mm256_setzero_si256())};
  }
  ZOADAM_HOST_INLINE friend mask exceeds(f32x8 a, std::uint32_t bits) noexcept {
    return {_mm256_cmpgt_epi32(a.magnitude(), _mm256_set1_epi32(static_cast<int>(bits)))};
  }

  ZOADAM_HOST_INLINE friend f32x8 select(mask m, f32x8 if_true, f32x8 if_false) noexcept {
    return of(_mm256_blendv_epi8(if_false.bits(), if_true.bits(), m.v));
  }
  ZOADAM_HOST_INLINE friend f32x8 with_sign(f32x8 a, mask m) noexcept {
    return of(_mm256_xor_si256(a.bits(), _mm256_and_si256(m.v, sign_bit())));
  }
  ZOADAM_HOST_INLINE friend f32x8 flush(f32x8 a, float threshold) noexcept {
    int const limit = std::bit_cast<int>(threshold);
    __m256i const small = _mm256_cmpgt_epi32(_mm256_set1_epi32(limit > 0 ? limit : 1), a.magnitude());
    return of(_mm256_andnot_si256(small, a.bits()));
  }
  ZOADAM_HOST_INLINE friend f32x8 pair_sum(f32x8 a, f32x8 b) noexcept {
    // the shuffles stay within halves of the register; the permutation brings the sums back into order
    f32x8 const s = of(_mm256_add_ps(_mm256_shuffle_ps(a.v, b.v, 0x88), _mm256_shuffle_ps(a.v, b.v, 0xdd)));
    return of(_mm256_permute4x64_epi64(s.bits(), 0xd8));
  }

 private:
  ZOADAM_HOST_INLINE static f32x8 of(__m256 x) noexcept {
    f32x8 r;
    r.v = detail::opaque(x);
    return r;
  }
  ZOADAM_HOST_INLINE static f32x8 of(__m256i x) noexcept { return of(_mm256_castsi256_ps(x)); }
  ZOADAM_HOST_INLINE static __m256i sign_bit() noexcept { return _mm256_set1_epi32(-0x7fffffff - 1); }
  ZOADAM_HOST_INLINE __m256i bits() const noexcept { return _mm256_castps_si256(v); }
  ZOADAM_HOST_INLINE __m256i magnitude() const noexcept {
    return _mm256_and_si256(bits(), _mm256_set1_epi32(0x7fffffff));
  }
};

}  // namespace zoadam

#endif
