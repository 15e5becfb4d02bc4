// SPDX-License-Identifier: Apache-2.0
// What the umbrella header brings; tests/aliases.cpp has what the compositions are.
#include "zoadam/zero_one_adam.hpp"

#include <doctest/doctest.h>

#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;

template <class Optimizer>
void check_step() {
  std::vector<float> x(100, 1.0f), g(100, 0.5f);
  typename Optimizer::options_type settings;
  if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 1;
  Optimizer o({{"x", {}, x, g}}, settings, {});
  for (int t = 0; t < 3; ++t) (void)o.step(1e-2);
  CHECK(x[0] < 1.0f);
}

TEST_CASE("zero_one_adam.hpp: each alias takes steps with nothing but the umbrella header") {
  check_step<zero_one_adam<>>();
  check_step<zero_one_adam_paper<>>();
  check_step<onebit_adam<>>();
  check_step<adam<>>();
  check_step<local_adam<>>();
}

}  // namespace
