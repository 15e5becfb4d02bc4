// SPDX-License-Identifier: Apache-2.0
// Scalar float64 whose arithmetic no compiler flag can change: schedule scalars and sums over blocks.
#pragma once

#include <cstdint>

#include "zoadam/lane/f32.hpp"

namespace zoadam {
namespace detail {

ZOADAM_INLINE double opaque(double x) noexcept {
#if defined(__CUDA_ARCH__)
  return x;
#elif defined(__SSE2__)
  asm("" : "+v"(x));
  return x;
#elif defined(__aarch64__)
  asm("" : "+w"(x));
  return x;
#else
  auto bits = __builtin_bit_cast(std::uint64_t, x);
  asm("" : "+r"(bits));
  return __builtin_bit_cast(double, bits);
#endif
}

ZOADAM_INLINE double divide(double a, double b) noexcept {
#if defined(__CUDA_ARCH__)
  double r;
  asm("div.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
#elif defined(__AVX__)
  double r;
  asm("vdivsd {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));
  return r;
#elif defined(__SSE2__)
  asm("divsd {%1, %0|%0, %1}" : "+x"(a) : "x"(b));
  return a;
#elif defined(__aarch64__)
  double r;
  asm("fdiv %d0, %d1, %d2" : "=w"(r) : "w"(a), "w"(b));
  return r;
#else
  // volatile: each division sees a divisor of its own, so that no reciprocal is shared
  auto bits = __builtin_bit_cast(std::uint64_t, b);
  asm volatile("" : "+r"(bits));
  return opaque(a / __builtin_bit_cast(double, bits));
#endif
}

ZOADAM_INLINE double square_root(double a) noexcept {
#if defined(__CUDA_ARCH__)
  double r;
  asm("sqrt.rn.f64 %0, %1;" : "=d"(r) : "d"(a));
  return r;
#elif defined(__AVX__)
  double r;
  asm("vsqrtsd {%1, %1, %0|%0, %1, %1}" : "=v"(r) : "v"(a));
  return r;
#elif defined(__SSE2__)
  asm("sqrtsd {%0, %0|%0, %0}" : "+x"(a));
  return a;
#elif defined(__aarch64__)
  double r;
  asm("fsqrt %d0, %d1" : "=w"(r) : "w"(a));
  return r;
#else
  return opaque(__builtin_sqrt(a));
#endif
}

ZOADAM_INLINE double add(double a, double b) noexcept {
#if defined(__CUDA_ARCH__)
  double r;
  asm("add.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
#else
  return opaque(a + b);
#endif
}
ZOADAM_INLINE double minus(double a, double b) noexcept {
#if defined(__CUDA_ARCH__)
  double r;
  asm("sub.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
#else
  return opaque(a - b);
#endif
}
ZOADAM_INLINE double multiply(double a, double b) noexcept {
#if defined(__CUDA_ARCH__)
  double r;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
#else
  return opaque(a * b);
#endif
}

}  // namespace detail

/// One float64 with operators that round once each, to nearest even, whatever the compiler flags.
struct f64 {
  double v;

  f64() = default;
  ZOADAM_INLINE explicit f64(double x) noexcept : v(detail::opaque(x)) {}
  /// Exact.
  ZOADAM_INLINE explicit f64(f32 x) noexcept {
#if defined(__CUDA_ARCH__)
    asm("cvt.f64.f32 %0, %1;" : "=d"(v) : "f"(x.v));
#else
    v = detail::opaque(static_cast<double>(x.v));
#endif
  }

  ZOADAM_INLINE explicit operator double() const noexcept { return v; }
  ZOADAM_INLINE double to_double() const noexcept { return v; }
  /// Rounded once, to nearest even.
  ZOADAM_INLINE float to_float() const noexcept {
    float x = static_cast<float>(v);
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(x) : "d"(v));
#elif defined(__SSE2__)
    asm("" : "+v"(x));
#else
    auto bits = __builtin_bit_cast(std::uint32_t, x);
    asm("" : "+r"(bits));
    x = __builtin_bit_cast(float, bits);
#endif
    return x;
  }

  ZOADAM_INLINE friend f64 operator+(f64 a, f64 b) noexcept { return f64(detail::add(a.v, b.v)); }
  ZOADAM_INLINE friend f64 operator-(f64 a, f64 b) noexcept { return f64(detail::minus(a.v, b.v)); }
  ZOADAM_INLINE friend f64 operator*(f64 a, f64 b) noexcept { return f64(detail::multiply(a.v, b.v)); }
  ZOADAM_INLINE friend f64 operator/(f64 a, f64 b) noexcept { return f64(detail::divide(a.v, b.v)); }
  ZOADAM_INLINE friend f64 sqrt(f64 a) noexcept { return f64(detail::square_root(a.v)); }
  /// Flips the sign bit.
  ZOADAM_INLINE friend f64 operator-(f64 a) noexcept {
    return f64(__builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, a.v) ^ 0x8000000000000000u));
  }
};

}  // namespace zoadam
