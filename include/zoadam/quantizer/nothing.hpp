// SPDX-License-Identifier: Apache-2.0
// Nothing on the wire but headers.
#pragma once

#include <cstring>

#include "zoadam/concepts/quantizer.hpp"

namespace zoadam {

/// Sends no bytes; every decoded value is 0. As the way down it makes a reduce-scatter of an exchange, as the way up
/// an all-gather.
struct nothing_quantizer {
  using groups = whole;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  static constexpr bool keeps_zero = true;

  static constexpr index payload_bytes(index) noexcept { return 0; }

  static constexpr int code_bits = 0;
  ZOADAM_INLINE static std::uint32_t code(f32) noexcept { return 0; }
  ZOADAM_INLINE static f32 value(std::uint32_t, f32) noexcept { return f32(0.0f); }

  template <class Lane>
  static void encode(float const*, index, float, std::byte*) noexcept {}
  template <class Lane>
  static void decode(std::byte const*, index, index n, float, float* out) noexcept {
    if (n > 0) std::memset(out, 0, static_cast<std::size_t>(n) * sizeof(float));
  }
  template <class Lane, class Count>
  ZOADAM_HOST_INLINE static Lane decoded(std::byte const*, index, Lane, Count) noexcept {
    return Lane(0.0f);
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("nothing");
  }
};
static_assert(elementwise<nothing_quantizer>);
static_assert(quantizer<nothing_quantizer>);

}  // namespace zoadam
