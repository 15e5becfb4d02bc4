// SPDX-License-Identifier: Apache-2.0
// Coefficients change their type field by field.
#include "zoadam/state/coefficients.hpp"

#include <doctest/doctest.h>

#include <cstring>

namespace {

using namespace zoadam;

TEST_CASE("coefficients: as() keeps every field in its place") {
  coefficients<float> k;
  constexpr std::size_t count = sizeof k / sizeof(float);
  float values[count];
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) + 0.5f;
  std::memcpy(&k, values, sizeof k);
  coefficients<double> const wide = k.as<double>();
  double copies[count];
  static_assert(sizeof wide == sizeof copies);
  std::memcpy(copies, &wide, sizeof copies);
  for (std::size_t i = 0; i < count; ++i) CHECK(copies[i] == static_cast<double>(values[i]));
  CHECK(wide.unlimited == static_cast<double>(k.unlimited));
  CHECK(wide.grad_scale == static_cast<double>(k.grad_scale));
}

}  // namespace
