// SPDX-License-Identifier: Apache-2.0
// AVX-512 lane: sixteen float32 whose arithmetic no compiler flag can change. See f32.hpp for what each function
// does.
#pragma once

#include "zoadam/config.hpp"

#if defined(ZOADAM_HAS_AVX512)

#include <immintrin.h>

#include <bit>
#include <cstdint>

namespace zoadam {
namespace detail {

ZOADAM_HOST_INLINE __m512 opaque(__m512 x) noexcept {
  asm("" : "+v"(x));
  return x;
}

}  // namespace detail

struct f32x16_mask {
  __mmask16 v;

  ZOADAM_HOST_INLINE static f32x16_mask from_bits(std::uint32_t bits) noexcept {
    return {static_cast<__mmask16>(bits & 0xffffu)};
  }
  ZOADAM_HOST_INLINE std::uint32_t bits() const noexcept { return v; }
  ZOADAM_HOST_INLINE bool all() const noexcept { return v == 0xffffu; }
  ZOADAM_HOST_INLINE bool any() const noexcept { return v != 0; }
  ZOADAM_HOST_INLINE int count() const noexcept { return std::popcount(bits()); }

  ZOADAM_HOST_INLINE friend f32x16_mask operator&(f32x16_mask a, f32x16_mask b) noexcept {
    return {static_cast<__mmask16>(a.v & b.v)};
  }
  ZOADAM_HOST_INLINE friend f32x16_mask operator|(f32x16_mask a, f32x16_mask b) noexcept {
    return {static_cast<__mmask16>(a.v | b.v)};
  }
  ZOADAM_HOST_INLINE friend f32x16_mask operator!(f32x16_mask a) noexcept { return from_bits(~a.bits()); }
};

struct f32x16 {
  using isa = ::zoadam::isa::avx512;
  using mask = f32x16_mask;
  static constexpr int width = 16;

  __m512 v;

  f32x16() = default;
  ZOADAM_HOST_INLINE explicit f32x16(float x) noexcept : v(detail::opaque(_mm512_set1_ps(x))) {}

  ZOADAM_HOST_INLINE static f32x16 load(float const* p) noexcept { return of(_mm512_loadu_ps(p)); }
  ZOADAM_HOST_INLINE static f32x16 load(float const* p, int n) noexcept {
    return of(_mm512_maskz_loadu_ps(leading(n), p));
  }
  ZOADAM_HOST_INLINE void store(float* p) const noexcept { _mm512_storeu_ps(p, v); }
  ZOADAM_HOST_INLINE void store(float* p, int n) const noexcept { _mm512_mask_storeu_ps(p, leading(n), v); }
  ZOADAM_HOST_INLINE float first() const noexcept { return _mm512_cvtss_f32(v); }

  ZOADAM_HOST_INLINE friend f32x16 operator+(f32x16 a, f32x16 b) noexcept { return of(_mm512_add_ps(a.v, b.v)); }
  ZOADAM_HOST_INLINE friend f32x16 operator-(f32x16 a, f32x16 b) noexcept { return of(_mm512_sub_ps(a.v, b.v)); }
  ZOADAM_HOST_INLINE friend f32x16 operator*(f32x16 a, f32x16 b) noexcept { return of(_mm512_mul_ps(a.v, b.v)); }

  // Whole instructions below: the intrinsics of these are folded, swapped or approximated under fast-math flags.
  ZOADAM_HOST_INLINE friend f32x16 operator/(f32x16 a, f32x16 b) noexcept {
    f32x16 r;
    asm("vdivps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x16 sqrt(f32x16 a) noexcept {
    f32x16 r;
    asm("vsqrtps {%1, %0|%0, %1}" : "=v"(r.v) : "v"(a.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x16 min(f32x16 a, f32x16 b) noexcept {
    f32x16 r;
    asm("vminps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x16 max(f32x16 a, f32x16 b) noexcept {
    f32x16 r;
    asm("vmaxps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend mask less(f32x16 a, f32x16 b) noexcept {
    mask r;
    asm("vcmpltps {%2, %1, %0|%0, %1, %2}" : "=Yk"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend mask greater(f32x16 a, f32x16 b) noexcept { return less(b, a); }

  ZOADAM_HOST_INLINE friend f32x16 operator-(f32x16 a) noexcept { return of(_mm512_xor_si512(a.bits(), sign_bit())); }
  ZOADAM_HOST_INLINE friend f32x16 abs(f32x16 a) noexcept { return of(a.magnitude()); }

  ZOADAM_HOST_INLINE friend mask negative(f32x16 a) noexcept {
    // -denormal to -Inf are 0x80000001 to 0xff800000; one less puts -0 out of the range and keeps NaN out
    __m512i const below = _mm512_add_epi32(a.bits(), _mm512_set1_epi32(-1));
    return {_mm512_cmplt_epi32_mask(below, _mm512_set1_epi32(-0x800000))};
  }
  ZOADAM_HOST_INLINE friend mask nonzero(f32x16 a) noexcept {
    return {_mm512_test_epi32_mask(a.bits(), _mm512_set1_epi32(0x7fffffff))};
  }
  ZOADAM_HOST_INLINE friend mask any_bit(f32x16 a) noexcept { return {_mm512_test_epi32_mask(a.bits(), a.bits())}; }
  ZOADAM_HOST_INLINE friend mask exceeds(f32x16 a, std::uint32_t bits) noexcept {
    return {_mm512_cmpgt_epi32_mask(a.magnitude(), _mm512_set1_epi32(static_cast<int>(bits)))};
  }

  ZOADAM_HOST_INLINE friend f32x16 select(mask m, f32x16 if_true, f32x16 if_false) noexcept {
    return of(_mm512_mask_mov_ps(if_false.v, m.v, if_true.v));
  }
  ZOADAM_HOST_INLINE friend f32x16 with_sign(f32x16 a, mask m) noexcept {
    return of(_mm512_mask_xor_epi32(a.bits(), m.v, a.bits(), sign_bit()));
  }
  ZOADAM_HOST_INLINE friend f32x16 flush(f32x16 a, float threshold) noexcept {
    int const limit = std::bit_cast<int>(threshold);
    __mmask16 const kept = _mm512_cmpge_epi32_mask(a.magnitude(), _mm512_set1_epi32(limit > 0 ? limit : 1));
    return of(_mm512_maskz_mov_ps(kept, a.v));
  }
  ZOADAM_HOST_INLINE friend f32x16 pair_sum(f32x16 a, f32x16 b) noexcept {
    __m512i const even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i const odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return of(_mm512_add_ps(_mm512_permutex2var_ps(a.v, even, b.v), _mm512_permutex2var_ps(a.v, odd, b.v)));
  }

 private:
  ZOADAM_HOST_INLINE static f32x16 of(__m512 x) noexcept {
    f32x16 r;
    r.v = detail::opaque(x);
    return r;
  }
  ZOADAM_HOST_INLINE static f32x16 of(__m512i x) noexcept { return of(_mm512_castsi512_ps(x)); }
  ZOADAM_HOST_INLINE static __mmask16 leading(int n) noexcept { return static_cast<__mmask16>((1u << n) - 1u); }
  ZOADAM_HOST_INLINE static __m512i sign_bit() noexcept { return _mm512_set1_epi32(-0x7fffffff - 1); }
  ZOADAM_HOST_INLINE __m512i bits() const noexcept { return _mm512_castps_si512(v); }
  ZOADAM_HOST_INLINE __m512i magnitude() const noexcept {
    return _mm512_and_si512(bits(), _mm512_set1_epi32(0x7fffffff));
  }
};

}  // namespace zoadam

#endif
