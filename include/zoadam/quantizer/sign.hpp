// SPDX-License-Identifier: Apache-2.0
// One bit per element and one scale per group.
#pragma once

#include <cstdint>
#include <cstring>

#include "zoadam/concepts/quantizer.hpp"
#include "zoadam/lane/sum.hpp"

namespace zoadam {

/// scale = mean magnitude of the group's active elements.
struct l1 {
  using term = abs_term;
  ZOADAM_INLINE static float scale(double sum, index count) noexcept { return group_scale_l1(sum, count); }
  static constexpr char const* name = "l1";
};

/// scale = root mean square of the group's active elements. It can expand the error: for compatibility only.
struct l2 {
  using term = square_term;
  ZOADAM_INLINE static float scale(double sum, index count) noexcept { return group_scale_l2(sum, count); }
  static constexpr char const* name = "l2";
};

/// Sends C[c] = scale * sign(c) for each group: one bit per element (1 = negative; zero, -0 too, is positive) in
/// little-endian 32-bit words, element k of a piece in bit k mod 32, and one float32 scale.
///
/// Shape:    (n) -> ceil(n / 32) words
/// Accuracy: with `l1`, |decode(encode(c)) - c|_2 <= |c|_2 over a group      tested: tests/quantizer/sign.cpp
/// Source:   1-bit Adam and 0/1 Adam, the compressor of their error-compensated all-reduce
template <groups Groups = block<>, class Norm = l1>
struct sign_quantizer {
  using groups = Groups;
  using norm = Norm;
  static constexpr bool has_scale = true;
  static constexpr bool compensated = false;

  static constexpr index payload_bytes(index n) noexcept { return (n + 31) / 32 * 4; }

  static constexpr int code_bits = 1;
  ZOADAM_INLINE static std::uint32_t code(f32 c) noexcept { return negative(c).bits(); }
  ZOADAM_INLINE static f32 value(std::uint32_t code, f32 scale) noexcept {
    return with_sign(scale, f32_mask::from_bits(code));
  }

  template <class Lane>
  static void encode(float const* c, index n, float scale, std::byte* payload) noexcept {
    encode<Lane>(c, n, scale, payload, [](index, auto, Lane, Lane) {});
  }
  /// The same, and kept(i, count, c, decoded) on each lane, so that nothing has to be decoded for its error.
  template <class Lane, class Kept>
  ZOADAM_HOST_INLINE static void encode(float const* c, index n, float scale, std::byte* payload,
                                        Kept kept) noexcept {
    constexpr int width = Lane::width;
    Lane const magnitude(scale);
    for (index i = 0; i < n; i += 32, payload += 4) {
      std::uint32_t word = 0;
      if (n - i >= 32) {
        for (int j = 0; j < 32; j += width) {
          Lane const value = Lane::load(c + i + j);
          auto const sign = negative(value);
          word |= sign.bits() << j;
          kept(i + j, std::integral_constant<int, width>{}, value, with_sign(magnitude, sign));
        }
      } else {
        int const rest = static_cast<int>(n - i);
        for (int j = 0; j < rest; j += width) {
          int const count = rest - j < width ? rest - j : width;
          Lane const value = Lane::load(c + i + j, count);
          auto const sign = negative(value);
          word |= sign.bits() << j;
          kept(i + j, count, value, with_sign(magnitude, sign));
        }
      }
      std::memcpy(payload, &word, 4);
    }
  }

  template <class Lane>
  static void decode(std::byte const* payload, index skip, index n, float scale, float* out) noexcept {
    constexpr int width = Lane::width;
    Lane const magnitude(scale);
    index i = 0;
    for (; i + width <= n; i += width) decoded(payload, skip + i, magnitude, width).store(out + i);
    if (i < n) decoded(payload, skip + i, magnitude, static_cast<int>(n - i)).store(out + i, static_cast<int>(n - i));
  }
  /// Elements [at, at + count) in one lane.
  template <class Lane>
  ZOADAM_HOST_INLINE static Lane decoded(std::byte const* payload, index at, Lane scale, int count) noexcept {
    return with_sign(scale, Lane::mask::from_bits(bits<Lane::width>(payload, at, count)));
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("sign");
    sink(Norm::name);
    Groups{}.describe(sink);
  }

 private:
  // Bits [at, at + count) of the payload, count <= Width <= 16; reads no word beyond them.
  template <int Width>
  ZOADAM_HOST_INLINE static std::uint32_t bits(std::byte const* payload, index at, int count) noexcept {
    if (at % Width == 0) {  // no lane crosses a word, and what follows `count` bits in the word does no harm
      if constexpr (Width == 16) {
        std::uint16_t part;
        std::memcpy(&part, payload + at / 8, 2);
        return part;
      } else {
        return std::to_integer<std::uint32_t>(payload[at / 8]) >> (at % 8);
      }
    }
    int const shift = static_cast<int>(at % 32);
    std::uint32_t word;
    std::memcpy(&word, payload + at / 32 * 4, 4);
    word >>= shift;
    if (shift + count > 32) {
      std::uint32_t next;
      std::memcpy(&next, payload + (at / 32 + 1) * 4, 4);
      word |= next << (32 - shift);
    }
    return word & ((std::uint32_t{1} << count) - 1);
  }
};
static_assert(elementwise<sign_quantizer<>>);
static_assert(quantizer<sign_quantizer<>> && quantizer<sign_quantizer<whole, l2>>);

}  // namespace zoadam
