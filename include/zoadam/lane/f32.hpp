// SPDX-License-Identifier: Apache-2.0
// Scalar lane: one float32 whose arithmetic no compiler flag can change.
#pragma once

#include <cstdint>

#include "zoadam/config.hpp"

namespace zoadam {
namespace detail {

/// Returns x unchanged; to the compiler the result is an unknown number. Every value that enters a lane and every
/// result of an operation passes through here, so that flags can neither fuse, reorder nor fold anything.
ZOADAM_INLINE float opaque(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return x;  // the operations themselves are opaque there
#elif defined(__SSE2__)
  asm("" : "+v"(x));
  return x;
#elif defined(__aarch64__)
  asm("" : "+w"(x));
  return x;
#else
  auto bits = __builtin_bit_cast(std::uint32_t, x);
  asm("" : "+r"(bits));
  return __builtin_bit_cast(float, bits);
#endif
}

/// Division as an instruction: -freciprocal-math and -mrecip would make it a product.
ZOADAM_INLINE float divide(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#elif defined(__AVX__)
  float r;
  asm("vdivss {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));
  return r;
#elif defined(__SSE2__)
  asm("divss {%1, %0|%0, %1}" : "+x"(a) : "x"(b));
  return a;
#elif defined(__aarch64__)
  float r;
  asm("fdiv %s0, %s1, %s2" : "=w"(r) : "w"(a), "w"(b));
  return r;
#else
  // volatile: each division sees a divisor of its own, so that no reciprocal is shared
  auto bits = __builtin_bit_cast(std::uint32_t, b);
  asm volatile("" : "+r"(bits));
  return opaque(a / __builtin_bit_cast(float, bits));
#endif
}

ZOADAM_INLINE float square_root(float a) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
#elif defined(__AVX__)
  float r;
  asm("vsqrtss {%1, %1, %0|%0, %1, %1}" : "=v"(r) : "v"(a));
  return r;
#elif defined(__SSE2__)
  asm("sqrtss {%0, %0|%0, %0}" : "+x"(a));
  return a;
#elif defined(__aarch64__)
  float r;
  asm("fsqrt %s0, %s1" : "=w"(r) : "w"(a));
  return r;
#else
  return opaque(__builtin_sqrtf(a));
#endif
}

// On a device: PTX without .ftz, which neither --use_fast_math nor contraction reaches.
ZOADAM_INLINE float add(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return opaque(a + b);
#endif
}
ZOADAM_INLINE float minus(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return opaque(a - b);
#endif
}
ZOADAM_INLINE float multiply(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return opaque(a * b);
#endif
}

}  // namespace detail

/// Truth values of one lane of width 1.
struct f32_mask {
  bool v;

  ZOADAM_INLINE static f32_mask from_bits(std::uint32_t bits) noexcept { return {(bits & 1u) != 0}; }
  ZOADAM_INLINE std::uint32_t bits() const noexcept { return v ? 1u : 0u; }
  ZOADAM_INLINE bool all() const noexcept { return v; }
  ZOADAM_INLINE bool any() const noexcept { return v; }
  ZOADAM_INLINE int count() const noexcept { return v ? 1 : 0; }

  ZOADAM_INLINE friend f32_mask operator&(f32_mask a, f32_mask b) noexcept { return {a.v && b.v}; }
  ZOADAM_INLINE friend f32_mask operator|(f32_mask a, f32_mask b) noexcept { return {a.v || b.v}; }
  ZOADAM_INLINE friend f32_mask operator!(f32_mask a) noexcept { return {!a.v}; }
};

/// One float32. The other lane types have the same members and functions; lane.hpp lists them as a concept.
///
/// Arithmetic rounds once per operator, to nearest even, whatever the compiler flags; nothing is fused. Comparisons
/// are those of IEEE 754, false for NaN.
struct f32 {
  using isa = ::zoadam::isa::scalar;
  using mask = f32_mask;
  static constexpr int width = 1;

  float v;

  f32() = default;
  ZOADAM_INLINE explicit f32(float x) noexcept : v(detail::opaque(x)) {}

  ZOADAM_INLINE static f32 load(float const* p) noexcept { return f32(*p); }
  /// The first n of width elements, the others +0; memory beyond them is not touched.
  ZOADAM_INLINE static f32 load(float const* p, int n) noexcept { return f32(n > 0 ? *p : 0.0f); }
  ZOADAM_INLINE void store(float* p) const noexcept { *p = v; }
  ZOADAM_INLINE void store(float* p, int n) const noexcept {
    if (n > 0) *p = v;
  }
  /// Element 0.
  ZOADAM_INLINE float first() const noexcept { return v; }

  ZOADAM_INLINE friend f32 operator+(f32 a, f32 b) noexcept { return f32(detail::add(a.v, b.v)); }
  ZOADAM_INLINE friend f32 operator-(f32 a, f32 b) noexcept { return f32(detail::minus(a.v, b.v)); }
  ZOADAM_INLINE friend f32 operator*(f32 a, f32 b) noexcept { return f32(detail::multiply(a.v, b.v)); }
  ZOADAM_INLINE friend f32 operator/(f32 a, f32 b) noexcept { return f32(detail::divide(a.v, b.v)); }
  ZOADAM_INLINE friend f32 sqrt(f32 a) noexcept { return f32(detail::square_root(a.v)); }

  /// Flips the sign bit.
  ZOADAM_INLINE friend f32 operator-(f32 a) noexcept { return of_bits(a.bits() ^ sign_bit); }
  ZOADAM_INLINE friend f32 abs(f32 a) noexcept { return of_bits(a.bits() & magnitude_bits); }

  ZOADAM_INLINE friend mask less(f32 a, f32 b) noexcept {
    // in integers: -0 and +0 both become 0, and NaN is refused explicitly
    std::int32_t const ma = a.magnitude(), mb = b.magnitude();
    std::int32_t const ka = (a.bits() & sign_bit) != 0 ? -ma : ma;
    std::int32_t const kb = (b.bits() & sign_bit) != 0 ? -mb : mb;
    return {ka < kb && ma <= infinity_bits && mb <= infinity_bits};
  }
  ZOADAM_INLINE friend mask greater(f32 a, f32 b) noexcept { return less(b, a); }
  /// a < b ? a : b, the zero of b if both are zeros.
  ZOADAM_INLINE friend f32 min(f32 a, f32 b) noexcept { return select(less(a, b), a, b); }
  /// a > b ? a : b, the zero of b if both are zeros.
  ZOADAM_INLINE friend f32 max(f32 a, f32 b) noexcept { return select(less(b, a), a, b); }

  /// a < 0; -0 is not negative.
  ZOADAM_INLINE friend mask negative(f32 a) noexcept {
    return {a.bits() > sign_bit && a.magnitude() <= infinity_bits};
  }
  ZOADAM_INLINE friend mask nonzero(f32 a) noexcept { return {a.magnitude() != 0}; }
  /// Whether a is anything but +0: -0 is.
  ZOADAM_INLINE friend mask any_bit(f32 a) noexcept { return {a.bits() != 0}; }
  /// Whether the magnitude, read as an integer, is above `bits` <= 0x7fffffff; counts Inf and NaN as large.
  ZOADAM_INLINE friend mask exceeds(f32 a, std::uint32_t bits) noexcept {
    return {a.magnitude() > static_cast<std::int32_t>(bits)};
  }

  ZOADAM_INLINE friend f32 select(mask m, f32 if_true, f32 if_false) noexcept {
    return of_bits(m.v ? if_true.bits() : if_false.bits());
  }
  /// a, its sign bit flipped where `m` is set.
  ZOADAM_INLINE friend f32 with_sign(f32 a, mask m) noexcept { return of_bits(a.bits() ^ (m.v ? sign_bit : 0u)); }
  /// +0 where |a| < threshold, and for both zeros; else a.
  ZOADAM_INLINE friend f32 flush(f32 a, float threshold) noexcept {
    std::int32_t const limit = __builtin_bit_cast(std::int32_t, threshold);
    return of_bits(a.magnitude() < (limit > 0 ? limit : 1) ? 0u : a.bits());
  }
  /// Sums of neighbours: those of a in the lower half, those of b in the upper; at width 1 plain a + b.
  ZOADAM_INLINE friend f32 pair_sum(f32 a, f32 b) noexcept { return a + b; }

 private:
  static constexpr std::uint32_t sign_bit = 0x80000000u;
  static constexpr std::uint32_t magnitude_bits = 0x7fffffffu;
  static constexpr std::int32_t infinity_bits = 0x7f800000;

  ZOADAM_INLINE static f32 of_bits(std::uint32_t bits) noexcept { return f32(__builtin_bit_cast(float, bits)); }
  ZOADAM_INLINE std::uint32_t bits() const noexcept { return __builtin_bit_cast(std::uint32_t, v); }
  ZOADAM_INLINE std::int32_t magnitude() const noexcept { return static_cast<std::int32_t>(bits() & magnitude_bits); }
};

}  // namespace zoadam
