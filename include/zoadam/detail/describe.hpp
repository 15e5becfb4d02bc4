// SPDX-License-Identifier: Apache-2.0
// Sinks for describe(): a hash that ranks compare, and a readable name.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "zoadam/config.hpp"

namespace zoadam::detail {

/// By its bits, since -ffinite-math-only folds std::isfinite.
constexpr bool finite(double d) noexcept {
  return (std::bit_cast<std::uint64_t>(d) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

/// FNV-1a over bytes, 64 bits. Equal on every platform: numbers are hashed as 64-bit little-endian words.
class hasher {
 public:
  template <class... Numbers>
  constexpr void operator()(std::string_view name, Numbers... numbers) noexcept {
    for (char c : name) byte(static_cast<unsigned char>(c));
    byte(0);
    (number(numbers), ...);
  }
  constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  constexpr void byte(unsigned char b) noexcept { value_ = (value_ ^ b) * 0x100000001b3u; }
  constexpr void word(std::uint64_t w) noexcept {
    for (int i = 0; i < 8; ++i) byte(static_cast<unsigned char>(w >> (8 * i)));
  }
  constexpr void number(double d) noexcept { word(std::bit_cast<std::uint64_t>(d)); }
  template <std::integral Integer>
  constexpr void number(Integer i) noexcept {
    word(static_cast<std::uint64_t>(i));
  }

  std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// Writes "name(1, 2)"-like text.
class namer {
 public:
  template <class... Numbers>
  void operator()(std::string_view name, Numbers... numbers) {
    if (!text_.empty()) text_ += ' ';
    text_ += name;
    if constexpr (sizeof...(numbers) > 0) {
      text_ += '(';
      bool first = true;
      ((text_ += first ? "" : ", ", text_ += number(numbers), first = false), ...);
      text_ += ')';
    }
  }
  std::string const& text() const noexcept { return text_; }

 private:
  static std::string number(double d) {
    std::string s = std::to_string(d);
    while (s.find('.') != std::string::npos && (s.back() == '0' || s.back() == '.')) {
      bool const point = s.back() == '.';
      s.pop_back();
      if (point) break;
    }
    return s;
  }
  template <std::integral Integer>
  static std::string number(Integer i) {
    return static_cast<std::uint64_t>(i) == std::uint64_t{1} << 62 ? "never" : std::to_string(i);
  }

  std::string text_;
};

}  // namespace zoadam::detail
