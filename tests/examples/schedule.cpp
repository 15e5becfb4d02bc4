// SPDX-License-Identifier: Apache-2.0
// The example's learning rate: its corners, by every shape.
#include "../../examples/schedule.hpp"

#include <initializer_list>

#include <doctest/doctest.h>

using example::decay;
using example::learning_rate;

TEST_CASE("warm-up is linear and reaches the peak at its last step") {
  for (decay const shape : {decay::cosine, decay::linear, decay::constant}) {
    learning_rate const rate{.peak = 0.8, .lowest = 0.1, .warmup = 4, .steps = 20, .shape = shape};
    CHECK(rate.at(1) == doctest::Approx(0.2));
    CHECK(rate.at(3) == doctest::Approx(0.6));
    CHECK(rate.at(4) == doctest::Approx(0.8));
  }
}

TEST_CASE("decay: half-way values and the last step") {
  learning_rate rate{.peak = 0.8, .lowest = 0.2, .warmup = 4, .steps = 20, .shape = decay::cosine};
  CHECK(rate.at(12) == doctest::Approx(0.5));
  CHECK(rate.at(8) == doctest::Approx(0.2 + 0.6 * 0.8535533905932737));
  CHECK(rate.at(20) == doctest::Approx(0.2));
  rate.shape = decay::linear;
  CHECK(rate.at(8) == doctest::Approx(0.65));
  CHECK(rate.at(20) == doctest::Approx(0.2));
  rate.shape = decay::constant;
  CHECK(rate.at(5) == 0.8);
  CHECK(rate.at(20) == 0.8);
}

TEST_CASE("no warm-up, and nothing but warm-up") {
  learning_rate const none{.peak = 1, .lowest = 0, .warmup = 0, .steps = 2};
  CHECK(none.at(1) == doctest::Approx(0.5));
  CHECK(none.at(2) == doctest::Approx(0));
  learning_rate const all{.peak = 1, .lowest = 0, .warmup = 2, .steps = 2};
  CHECK(all.at(2) == 1);
}
