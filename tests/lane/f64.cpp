// SPDX-License-Identifier: Apache-2.0
// Tests of the float64 schedule scalar.
#include "zoadam/lane/f64.hpp"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

namespace {

std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }

// A store to memory after each operation: neither fused nor reassociated.
double stored(double x) {
  double const volatile kept = x;
  return kept;
}

}  // namespace

TEST_CASE("f64: each operator rounds once") {
  using zoadam::f64;
  std::mt19937_64 random(3);
  long wrong = 0;
  for (int i = 0; i < 100000; ++i) {
    double a, b, c;
    if (i % 2 == 0) {
      std::uniform_real_distribution<double> near(0.1, 2.0);
      a = near(random), b = near(random), c = near(random);
    } else {
      // exponents around zero, so that no product leaves the range
      auto const any = [&] {
        return std::bit_cast<double>((random() & 0x800fffffffffffffu) | (896 + random() % 256) << 52);
      };
      a = any(), b = any(), c = any();
    }
    double const volatile x = a, y = b, z = c;
    f64 const p(a), q(b), r(c);
    wrong += bits_of((p + q).v) != bits_of(stored(x + y));
    wrong += bits_of((p - q).v) != bits_of(stored(x - y));
    wrong += bits_of((p * q).v) != bits_of(stored(x * y));
    wrong += bits_of((p / q).v) != bits_of(stored(x / y));
    wrong += bits_of((-p).v) != bits_of(-a);
    wrong += bits_of(sqrt(p * p).v) != bits_of(std::sqrt(stored(x * x)));
    wrong += bits_of((p * q + r).v) != bits_of(stored(stored(x * y) + z));
    wrong += bits_of((r - p * q).v) != bits_of(stored(z - stored(x * y)));
    wrong += bits_of(((p + q) - p).v) != bits_of(stored(stored(x + y) - x));
    wrong +=
        std::bit_cast<std::uint32_t>(p.to_float()) != std::bit_cast<std::uint32_t>(static_cast<float>(stored(x)));
  }
  CHECK(wrong == 0);
}

TEST_CASE("f64: conversions are explicit and exact, to_float rounds to nearest even") {
  using zoadam::f64;
  CHECK_FALSE(std::convertible_to<double, f64>);
  CHECK_FALSE(std::convertible_to<f64, double>);
  CHECK(static_cast<double>(f64(0.1)) == 0.1);
  CHECK(f64(0.1).to_double() == 0.1);
  CHECK(f64(1.0 + 0x1p-24).to_float() == 1.0f);
  CHECK(f64(1.0 + 0x3p-24).to_float() == 1.0f + 0x1p-22f);
  CHECK(f64(1.0 + 0x1p-24 + 0x1p-52).to_float() == 1.0f + 0x1p-23f);
}
