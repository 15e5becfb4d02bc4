// SPDX-License-Identifier: Apache-2.0
// 16 bits per element on the wire.
#pragma once

#include <cstring>

#include "zoadam/concepts/quantizer.hpp"
#include "zoadam/lane/half.hpp"

namespace zoadam {

/// Rounds each element to bfloat16 or float16 (nearest even; float16 saturates): 2 bytes per element, no scale.
///
/// Accuracy: bfloat16 2^-8, float16 2^-11 of the element, in the normal range      tested: tests/quantizer/cast.cpp
template <class Half>
struct cast_quantizer {
  using groups = whole;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  static constexpr bool keeps_zero = true;

  static constexpr index payload_bytes(index n) noexcept { return 2 * n; }

  static constexpr int code_bits = 16;
  ZOADAM_INLINE static std::uint32_t code(f32 c) noexcept {
    Half h;
    narrow(&c.v, &h, 1);
    return h.bits;
  }
  ZOADAM_INLINE static f32 value(std::uint32_t code, f32) noexcept {
    return f32(to_float(Half{static_cast<std::uint16_t>(code)}));
  }

  template <class Lane>
  static void encode(float const* c, index n, float, std::byte* payload) noexcept {
    Half chunk[chunk_];
    for (index i = 0; i < n; i += chunk_) {
      index const m = n - i < chunk_ ? n - i : chunk_;
      narrow(c + i, chunk, m);
      std::memcpy(payload + 2 * i, chunk, static_cast<std::size_t>(2 * m));
    }
  }
  template <class Lane>
  static void decode(std::byte const* payload, index skip, index n, float, float* out) noexcept {
    Half chunk[chunk_];
    for (index i = 0; i < n; i += chunk_) {
      index const m = n - i < chunk_ ? n - i : chunk_;
      std::memcpy(chunk, payload + 2 * (skip + i), static_cast<std::size_t>(2 * m));
      widen(chunk, out + i, m);
    }
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink(std::is_same_v<Half, bfloat16> ? "bfloat16" : "float16");
  }

 private:
  static constexpr index chunk_ = 256;  // payloads may be misaligned: values go through a small aligned buffer
};
static_assert(elementwise<cast_quantizer<bfloat16>>);
static_assert(quantizer<cast_quantizer<bfloat16>> && quantizer<cast_quantizer<float16>>);

}  // namespace zoadam
