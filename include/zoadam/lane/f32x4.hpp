// SPDX-License-Identifier: Apache-2.0
// SSE2 lane: four float32 whose arithmetic no compiler flag can change. See f32.hpp for the meaning of each function.
#pragma once

#include "zoadam/config.hpp"

#if defined(ZOADAM_HAS_SSE2)

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace zoadam {
namespace detail {

ZOADAM_HOST_INLINE __m128 opaque(__m128 x) noexcept {
  asm("" : "+v"(x));
  return x;
}

}  // namespace detail

struct f32x4_mask {
  __m128i v;

  ZOADAM_HOST_INLINE static f32x4_mask from_bits(std::uint32_t bits) noexcept {
    __m128i const single = _mm_setr_epi32(1, 2, 4, 8);
    return {_mm_cmpeq_epi32(_mm_and_si128(_mm_set1_epi32(static_cast<int>(bits)), single), single)};
  }
  ZOADAM_HOST_INLINE std::uint32_t bits() const noexcept {
    return static_cast<std::uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(v)));
  }
  ZOADAM_HOST_INLINE bool all() const noexcept { return bits() == 0xfu; }
  ZOADAM_HOST_INLINE bool any() const noexcept { return bits() != 0; }
  ZOADAM_HOST_INLINE int count() const noexcept { return std::popcount(bits()); }

  ZOADAM_HOST_INLINE friend f32x4_mask operator&(f32x4_mask a, f32x4_mask b) noexcept {
    return {_mm_and_si128(a.v, b.v)};
  }
  ZOADAM_HOST_INLINE friend f32x4_mask operator|(f32x4_mask a, f32x4_mask b) noexcept {
    return {_mm_or_si128(a.v, b.v)};
  }
  ZOADAM_HOST_INLINE friend f32x4_mask operator!(f32x4_mask a) noexcept {
    return {_mm_xor_si128(a.v, _mm_set1_epi32(-1))};
  }
};

struct f32x4 {
  using isa = ::zoadam::isa::sse2;
  using mask = f32x4_mask;
  static constexpr int width = 4;

  __m128 v;

  f32x4() = default;
  ZOADAM_HOST_INLINE explicit f32x4(float x) noexcept : v(detail::opaque(_mm_set1_ps(x))) {}

  ZOADAM_HOST_INLINE static f32x4 load(float const* p) noexcept { return of(_mm_loadu_ps(p)); }
  ZOADAM_HOST_INLINE static f32x4 load(float const* p, int n) noexcept {
    alignas(16) float part[4] = {};
    if (n > 0) std::memcpy(part, p, static_cast<std::size_t>(n) * sizeof(float));
    return of(_mm_load_ps(part));
  }
  ZOADAM_HOST_INLINE void store(float* p) const noexcept { _mm_storeu_ps(p, v); }
  ZOADAM_HOST_INLINE void store(float* p, int n) const noexcept {
    alignas(16) float part[4];
    _mm_store_ps(part, v);
    if (n > 0) std::memcpy(p, part, static_cast<std::size_t>(n) * sizeof(float));
  }
  ZOADAM_HOST_INLINE float first() const noexcept { return _mm_cvtss_f32(v); }

  ZOADAM_HOST_INLINE friend f32x4 operator+(f32x4 a, f32x4 b) noexcept { return of(_mm_add_ps(a.v, b.v)); }
  ZOADAM_HOST_INLINE friend f32x4 operator-(f32x4 a, f32x4 b) noexcept { return of(_mm_sub_ps(a.v, b.v)); }
  ZOADAM_HOST_INLINE friend f32x4 operator*(f32x4 a, f32x4 b) noexcept { return of(_mm_mul_ps(a.v, b.v)); }

  // Whole instructions below: the intrinsics of these are folded, swapped or approximated under fast-math flags.
  // Vector comparisons have no encoding for the upper sixteen registers, hence "x".
#if defined(__AVX__)
  ZOADAM_HOST_INLINE friend f32x4 operator/(f32x4 a, f32x4 b) noexcept {
    f32x4 r;
    asm("vdivps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x4 sqrt(f32x4 a) noexcept {
    f32x4 r;
    asm("vsqrtps {%1, %0|%0, %1}" : "=v"(r.v) : "v"(a.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x4 min(f32x4 a, f32x4 b) noexcept {
    f32x4 r;
    asm("vminps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x4 max(f32x4 a, f32x4 b) noexcept {
    f32x4 r;
    asm("vmaxps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend mask less(f32x4 a, f32x4 b) noexcept {
    __m128 r;
    asm("vcmpltps {%2, %1, %0|%0, %1, %2}" : "=x"(r) : "x"(a.v), "x"(b.v));
    return {_mm_castps_si128(r)};
  }
#else
  ZOADAM_HOST_INLINE friend f32x4 operator/(f32x4 a, f32x4 b) noexcept {
    asm("divps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return a;
  }
  ZOADAM_HOST_INLINE friend f32x4 sqrt(f32x4 a) noexcept {
    f32x4 r;
    asm("sqrtps {%1, %0|%0, %1}" : "=x"(r.v) : "x"(a.v));
    return r;
  }
  ZOADAM_HOST_INLINE friend f32x4 min(f32x4 a, f32x4 b) noexcept {
    asm("minps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return a;
  }
  ZOADAM_HOST_INLINE friend f32x4 max(f32x4 a, f32x4 b) noexcept {
    asm("maxps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return a;
  }
  ZOADAM_HOST_INLINE friend mask less(f32x4 a, f32x4 b) noexcept {
    asm("cmpltps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return {_mm_castps_si128(a.v)};
  }
#endif
  ZOADAM_HOST_INLINE friend mask greater(f32x4 a, f32x4 b) noexcept { return less(b, a); }

  ZOADAM_HOST_INLINE friend f32x4 operator-(f32x4 a) noexcept { return of(_mm_xor_si128(a.bits(), sign_bit())); }
  ZOADAM_HOST_INLINE friend f32x4 abs(f32x4 a) noexcept { return of(a.magnitude()); }

  ZOADAM_HOST_INLINE friend mask negative(f32x4 a) noexcept {
    // -denormal to -Inf are 0x80000001 to 0xff800000; one less puts -0 out of the range and keeps NaN out
    return {_mm_cmpgt_epi32(_mm_set1_epi32(-0x800000), _mm_add_epi32(a.bits(), _mm_set1_epi32(-1)))};
  }
  ZOADAM_HOST_INLINE friend mask nonzero(f32x4 a) noexcept {
    return {_mm_cmpgt_epi32(a.magnitude(), _mm_setzero_si128())};
  }
  ZOADAM_HOST_INLINE friend mask any_bit(f32x4 a) noexcept {
    return !mask{_mm_cmpeq_epi32(a.bits(), _mm_setzero_si128())};
  }
  ZOADAM_HOST_INLINE friend mask exceeds(f32x4 a, std::uint32_t bits) noexcept {
    return {_mm_cmpgt_epi32(a.magnitude(), _mm_set1_epi32(static_cast<int>(bits)))};
  }

  ZOADAM_HOST_INLINE friend f32x4 select(mask m, f32x4 if_true, f32x4 if_false) noexcept {
    return of(_mm_or_si128(_mm_and_si128(m.v, if_true.bits()), _mm_andnot_si128(m.v, if_false.bits())));
  }
  ZOADAM_HOST_INLINE friend f32x4 with_sign(f32x4 a, mask m) noexcept {
    return of(_mm_xor_si128(a.bits(), _mm_and_si128(m.v, sign_bit())));
  }
  ZOADAM_HOST_INLINE friend f32x4 flush(f32x4 a, float threshold) noexcept {
    int const limit = std::bit_cast<int>(threshold);
    __m128i const small = _mm_cmpgt_epi32(_mm_set1_epi32(limit > 0 ? limit : 1), a.magnitude());
    return of(_mm_andnot_si128(small, a.bits()));
  }
  ZOADAM_HOST_INLINE friend f32x4 pair_sum(f32x4 a, f32x4 b) noexcept {
    return of(_mm_add_ps(_mm_shuffle_ps(a.v, b.v, 0x88), _mm_shuffle_ps(a.v, b.v, 0xdd)));
  }

 private:
  ZOADAM_HOST_INLINE static f32x4 of(__m128 x) noexcept {
    f32x4 r;
    r.v = detail::opaque(x);
    return r;
  }
  ZOADAM_HOST_INLINE static f32x4 of(__m128i x) noexcept { return of(_mm_castsi128_ps(x)); }
  ZOADAM_HOST_INLINE static __m128i sign_bit() noexcept { return _mm_set1_epi32(-0x7fffffff - 1); }
  ZOADAM_HOST_INLINE __m128i bits() const noexcept { return _mm_castps_si128(v); }
  ZOADAM_HOST_INLINE __m128i magnitude() const noexcept { return _mm_and_si128(bits(), _mm_set1_epi32(0x7fffffff)); }
};

}  // namespace zoadam

#endif
