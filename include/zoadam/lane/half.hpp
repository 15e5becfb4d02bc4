// SPDX-License-Identifier: Apache-2.0
// bfloat16 and float16 storage: conversions to and from float32 in integer arithmetic.
#pragma once

#include <cstdint>
#include <type_traits>

#include "zoadam/config.hpp"

namespace zoadam {

/// The upper half of a float32.
struct bfloat16 {
  std::uint16_t bits;
};

/// IEEE 754 binary16.
struct float16 {
  std::uint16_t bits;
};

namespace detail {

/// if_true where `condition` holds; as bit operations, since branches keep loops from becoming vector code.
ZOADAM_INLINE std::uint32_t pick(bool condition, std::uint32_t if_true, std::uint32_t if_false) noexcept {
  std::uint32_t const chosen = 0u - static_cast<std::uint32_t>(condition);
  return (if_true & chosen) | (if_false & ~chosen);
}

}  // namespace detail

/// Exact.
ZOADAM_INLINE float to_float(float x) noexcept { return x; }
ZOADAM_INLINE float to_float(bfloat16 h) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(h.bits) << 16);
}

/// Exact.
ZOADAM_INLINE float to_float(float16 h) noexcept {
  std::uint32_t const sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16;
  std::uint32_t const magnitude = h.bits & 0x7fffu;
  std::uint32_t const exponent_bias = 112u << 23;
  std::uint32_t const normal = (magnitude << 13) + exponent_bias;
  // a denormal half counts units of 2^-24; the conversion of such a small integer is exact and never denormal
  std::uint32_t const counted =
      __builtin_bit_cast(std::uint32_t, static_cast<float>(static_cast<std::int32_t>(magnitude)));
  std::uint32_t const denormal = detail::pick(magnitude == 0, 0u, counted - (24u << 23));
  std::uint32_t const special = normal + exponent_bias;
  std::uint32_t const finite = detail::pick(magnitude < 0x0400u, denormal, normal);
  return __builtin_bit_cast(float, sign | detail::pick(magnitude >= 0x7c00u, special, finite));
}

/// Rounds to nearest even; beyond the largest finite value to infinity; NaN stays NaN.
ZOADAM_INLINE bfloat16 to_bfloat16(float x) noexcept {
  auto const bits = __builtin_bit_cast(std::uint32_t, x);
  std::uint32_t const rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  std::uint32_t const quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

/// Rounds to nearest even; saturates at +-65504, infinities too; NaN stays NaN.
ZOADAM_INLINE float16 to_float16(float x) noexcept {
  auto const bits = __builtin_bit_cast(std::uint32_t, x);
  std::uint32_t const sign = (bits >> 16) & 0x8000u;
  std::uint32_t const unlimited = bits & 0x7fffffffu;
  std::uint32_t const magnitude = unlimited < 0x477fe000u ? unlimited : 0x477fe000u;  // 65504
  // from 2^-14 on: another bias and 13 bits less
  std::uint32_t const rebiased = magnitude - (112u << 23);
  std::uint32_t const normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  // below: units of 2^-24, a right shift of the significand; 25 and more places leave nothing
  std::uint32_t const places = 126u - (magnitude >> 23);
  std::uint32_t const shift = places < 25u ? places : 25u;
  std::uint32_t const significand = (magnitude & 0x7fffffu) | 0x800000u;
  std::uint32_t const half_unit = (1u << shift) >> 1;
  std::uint32_t const odd = (significand >> shift) & 1u;
  std::uint32_t const denormal = (significand + half_unit - 1u + odd) >> shift;

  std::uint32_t const finite = detail::pick(magnitude < 0x38800000u, denormal, normal);
  std::uint32_t const quiet = 0x7e00u | ((unlimited >> 13) & 0x3ffu);
  return {static_cast<std::uint16_t>(sign | detail::pick(unlimited > 0x7f800000u, quiet, finite))};
}

template <class Half>
ZOADAM_INLINE Half to_half(float x) noexcept {
  if constexpr (std::is_same_v<Half, bfloat16>) {
    return to_bfloat16(x);
  } else {
    return to_float16(x);
  }
}

/// Element-wise array forms, (n) -> (n); the arrays do not overlap.
template <class Half>
ZOADAM_INLINE void widen(Half const* __restrict in, float* __restrict out, index n) noexcept {
  for (index i = 0; i < n; ++i) out[i] = to_float(in[i]);
}
template <class Half>
ZOADAM_INLINE void narrow(float const* __restrict in, Half* __restrict out, index n) noexcept {
  for (index i = 0; i < n; ++i) out[i].bits = to_half<Half>(in[i]).bits;
}

}  // namespace zoadam
