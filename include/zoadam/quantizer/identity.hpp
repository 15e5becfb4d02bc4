// SPDX-License-Identifier: Apache-2.0
// Full precision on the wire.
#pragma once

#include <cstring>
#include <type_traits>

#include "zoadam/concepts/quantizer.hpp"

namespace zoadam {

/// Sends float32 values as they are: 4 bytes per element, no scale, exact.
struct identity_quantizer {
  using groups = whole;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  static constexpr bool keeps_zero = true;

  static constexpr index payload_bytes(index n) noexcept { return 4 * n; }

  static constexpr int code_bits = 32;
  ZOADAM_INLINE static std::uint32_t code(f32 c) noexcept { return __builtin_bit_cast(std::uint32_t, c.v); }
  ZOADAM_INLINE static f32 value(std::uint32_t code, f32) noexcept { return f32(__builtin_bit_cast(float, code)); }

  template <class Lane>
  static void encode(float const* c, index n, float, std::byte* payload) noexcept {
    if (n > 0) std::memcpy(payload, c, static_cast<std::size_t>(4 * n));  // null where there is nothing
  }
  template <class Lane>
  static void decode(std::byte const* payload, index skip, index n, float, float* out) noexcept {
    if (n > 0) std::memcpy(out, payload + 4 * skip, static_cast<std::size_t>(4 * n));
  }
  /// Elements [at, at + count) in one lane; payloads of messages lie at multiples of 4 bytes.
  template <class Lane, class Count>
  ZOADAM_HOST_INLINE static Lane decoded(std::byte const* payload, index at, Lane, Count count) noexcept {
    float const* const from = reinterpret_cast<float const*>(payload) + at;
    if constexpr (std::is_same_v<Count, int>) {
      return Lane::load(from, count);
    } else {
      return Lane::load(from);
    }
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("identity");
  }
};
static_assert(elementwise<identity_quantizer>);
static_assert(quantizer<identity_quantizer>);

}  // namespace zoadam
