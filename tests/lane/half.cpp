// SPDX-License-Identifier: Apache-2.0
// Tests of the conversions to and from 16-bit storage.
#include "zoadam/lane/half.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace {

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Value of a 16-bit format by its definition.
double value_of(std::uint32_t bits, int exponent_bits) {
  int const fraction_bits = 15 - exponent_bits;
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  int const fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
  double const sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

// Nearest even by scaling to an integer in float64, which is exact here.
double nearest(double x, int fraction_bits, int least_exponent) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  int const unit = std::max(exponent - 1, least_exponent) - fraction_bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

double to_half_reference(float x) {
  double const r = std::isinf(x) ? double(x) : nearest(x, 10, -14);
  return std::fabs(r) > 65504 ? std::copysign(65504.0, r) : r;
}

double to_brain_reference(float x) {
  if (std::isinf(x)) return x;
  double const r = nearest(x, 7, -126);
  return std::fabs(r) >= 0x1p128 ? std::copysign(HUGE_VAL, r) : r;
}

std::vector<float> samples() {
  std::vector<float> x;
  std::mt19937 random(1);
  auto const word = [&] { return static_cast<std::uint32_t>(random()); };
  for (int i = 0; i < 200000; ++i) x.push_back(float_of(word()));
  // the range of halves, denormal ones included
  for (int i = 0; i < 200000; ++i) x.push_back(float_of((word() & 0x807fffffu) | (100 + word() % 45) << 23));
  // every half, every midpoint between neighbours, and the floats around it
  for (std::uint32_t h = 0; h < 0x7c00u; ++h) {
    float const middle = static_cast<float>((value_of(h, 5) + (h == 0x7bffu ? 65536.0 : value_of(h + 1, 5))) / 2);
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      for (std::uint32_t d : {0u, 1u, ~0u}) x.push_back(float_of((bits_of(middle) + d) | sign));
    }
  }
  // ties of bfloat16 and their neighbours
  for (int i = 0; i < 50000; ++i) {
    std::uint32_t const tie = (word() & 0xffff0000u) | 0x8000u;
    for (std::uint32_t d : {0u, 1u, ~0u}) x.push_back(float_of(tie + d));
  }
  for (std::uint32_t bits :
       {0u, 1u, 0x7fffffu, 0x800000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x477fefffu,
        0x477ff000u, 0x477fe000u, 0x33000000u, 0x33000001u, 0x32ffffffu}) {
    x.push_back(float_of(bits));
    x.push_back(float_of(bits | 0x80000000u));
  }
  return x;
}

}  // namespace

TEST_CASE("half: every 16-bit pattern widens to its value and narrows back") {
  long wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    auto const pattern = static_cast<std::uint16_t>(bits);
    float const h = zoadam::to_float(zoadam::float16{pattern});
    float const b = zoadam::to_float(zoadam::bfloat16{pattern});
    if (std::isnan(value_of(bits, 5))) {
      std::uint16_t const back = zoadam::to_float16(h).bits;
      wrong += !std::isnan(h) || std::signbit(h) != (bits >= 0x8000u) || !std::isnan(value_of(back, 5));
    } else {
      wrong += bits_of(h) != bits_of(static_cast<float>(value_of(bits, 5)));
      std::uint32_t const limited = (bits & 0x7fffu) == 0x7c00u ? bits - 1 : bits;
      wrong += zoadam::to_float16(h).bits != limited;
    }
    if (std::isnan(value_of(bits, 8))) {
      wrong += !std::isnan(b) || !std::isnan(value_of(zoadam::to_bfloat16(b).bits, 8));
    } else {
      wrong += bits_of(b) != bits_of(static_cast<float>(value_of(bits, 8)));
      wrong += zoadam::to_bfloat16(b).bits != bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("half: narrowing rounds to nearest even, float16 saturates") {
  long wrong_half = 0, wrong_brain = 0;
  for (float x : samples()) {
    double const h = value_of(zoadam::to_float16(x).bits, 5);
    double const b = value_of(zoadam::to_bfloat16(x).bits, 8);
    if (std::isnan(x)) {
      wrong_half += !std::isnan(h);
      wrong_brain += !std::isnan(b);
      continue;
    }
    double const expected_half = to_half_reference(x), expected_brain = to_brain_reference(x);
    wrong_half += h != expected_half || std::signbit(h) != std::signbit(x);
    wrong_brain += b != expected_brain || std::signbit(b) != std::signbit(x);
  }
  CHECK(wrong_half == 0);
  CHECK(wrong_brain == 0);
  CHECK(zoadam::to_float16(65504.0f).bits == 0x7bff);
  CHECK(zoadam::to_float16(65536.0f).bits == 0x7bff);
  CHECK(zoadam::to_float16(-1e30f).bits == 0xfbff);
  CHECK(zoadam::to_float16(-HUGE_VALF).bits == 0xfbff);
}

TEST_CASE("half: array forms equal the scalar ones for every length up to 100 and every offset") {
  auto const x = samples();
  long wrong = 0;
  for (std::size_t n = 0; n < 100; ++n) {
    std::size_t const at = n * 997 % (x.size() - n);
    std::vector<zoadam::float16> h(n + 1, zoadam::float16{0x1234});
    std::vector<zoadam::bfloat16> b(n + 1, zoadam::bfloat16{0x1234});
    zoadam::narrow(x.data() + at, h.data(), static_cast<zoadam::index>(n));
    zoadam::narrow(x.data() + at, b.data(), static_cast<zoadam::index>(n));
    std::vector<float> from_h(n + 1, 7.0f), from_b(n + 1, 7.0f);
    zoadam::widen(h.data(), from_h.data(), static_cast<zoadam::index>(n));
    zoadam::widen(b.data(), from_b.data(), static_cast<zoadam::index>(n));
    for (std::size_t i = 0; i < n; ++i) {
      wrong += h[i].bits != zoadam::to_float16(x[at + i]).bits || b[i].bits != zoadam::to_bfloat16(x[at + i]).bits;
      wrong += bits_of(from_h[i]) != bits_of(zoadam::to_float(h[i]));
      wrong += bits_of(from_b[i]) != bits_of(zoadam::to_float(b[i]));
    }
    wrong += h[n].bits != 0x1234 || b[n].bits != 0x1234 || from_h[n] != 7.0f || from_b[n] != 7.0f;
  }
  CHECK(wrong == 0);
}
