// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: closed forms, PyTorch's schedulers, bad arguments.
#include "zoadam/schedule.hpp"

#include <functional>
#include <limits>

#include "conformance/safetensors.hpp"
#include "suite/ranks.hpp"

namespace {

using namespace zoadam;
using zoadam::index;

static_assert(linear_warmup(3, 4) == 0.75 && gradual_warmup(0, 5, 8) == 0.125 && linear_scaling(1024, 256) == 4);
static_assert(step_decay(7, 3, 0.5) == 0.25);

TEST_CASE("schedules: PyTorch's schedulers, which count steps from 0") {
  auto const file =
      safetensors::file::read(std::string(ZOADAM_CONFORMANCE_DIR) + "/../../reference/pytorch.safetensors");
  auto const compare = [&](std::string const& name, std::function<double(index)> const& schedule) {
    CAPTURE(name);
    auto const expected = file.numbers("schedule." + name, {50});
    for (index step = 0; step < 50; ++step) {
      CHECK(std::abs(schedule(step) - expected[static_cast<std::size_t>(step)]) < 1e-14);
    }
  };
  compare("gradual_warmup", [](index step) { return gradual_warmup(step, 20, 8); });
  compare("step_decay", [](index step) { return step_decay(step, 7, 0.3); });
  compare("cosine_decay", [](index step) { return cosine_decay(step, 50); });
  compare("polynomial_decay", [](index step) { return polynomial_decay(step, 40, 1.7); });
}

TEST_CASE("schedules: ends are exact, and nothing moves beyond them") {
  for (index const steps : {1, 3, 49, 1000}) {
    for (index const beyond : {index{0}, index{1}, index{1} << 60}) {
      CHECK(linear_warmup(steps + beyond, steps) == 1);
      CHECK(gradual_warmup(steps + beyond, steps, 49) == 1);
      CHECK(cosine_decay(steps + beyond, steps) == 0);
      CHECK(polynomial_decay(steps + beyond, steps, 0.5) == 0);
      CHECK(linear_warmup(-beyond, steps) == 0);
      CHECK(gradual_warmup(-beyond, steps, 49) == 1.0 / 49);
      CHECK(cosine_decay(-beyond, steps) == 1);
      CHECK(polynomial_decay(-beyond, steps, 0.5) == 1);
      CHECK(step_decay(-beyond, steps, 0.1) == 1);
    }
  }
  CHECK(linear_warmup(1, 0) == 1);  // no warm-up
  CHECK(step_decay(index{1} << 60, 1, 0.5) == 0);
  CHECK(step_decay(index{1} << 60, 1, 1) == 1);
  CHECK(step_decay(5, 5, 0) == 0);
}

TEST_CASE("schedules: values between the ends") {
  CHECK(linear_warmup(1, 4) == 0.25);
  CHECK(gradual_warmup(10, 20, 3) == doctest::Approx(2.0 / 3));
  CHECK(cosine_decay(50, 100) == doctest::Approx(0.5));
  CHECK(cosine_decay(25, 100) == doctest::Approx(0.8535533905932737));
  CHECK(polynomial_decay(25, 100) == 0.75);
  CHECK(polynomial_decay(50, 100, 2) == 0.25);
  CHECK(step_decay(29, 10, 0.1) == doctest::Approx(0.01));
  CHECK(square_root_scaling(1024, 256) == 2);
  CHECK(square_root_scaling(256, 1024) == 0.5);
}

TEST_CASE("schedules: they compose by products") {
  auto const rate = [](index t) {
    return 0.1 * linear_scaling(512, 256) * linear_warmup(t, 10) * cosine_decay(t - 10, 90);
  };
  CHECK(rate(5) == doctest::Approx(0.1));
  CHECK(rate(10) == doctest::Approx(0.2));
  CHECK(rate(55) == doctest::Approx(0.1));
  CHECK(rate(100) == 0);
}

TEST_CASE("schedules: bad arguments are named") {
  double const nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  auto const refuse = [](std::string const& words, auto const& call) {
    auto const e = suite::ending_of([&] { (void)call(); });
    CHECK(e.what == suite::outcome::argument);
    CAPTURE(e.text);
    CHECK(suite::mentions(e, words));
  };
  refuse("linear_warmup: steps must be >= 0", [] { return linear_warmup(1, -1); });
  refuse("gradual_warmup: steps must be >= 0", [] { return gradual_warmup(1, -1, 2); });
  refuse("cosine_decay: steps must be >= 0", [] { return cosine_decay(1, -1); });
  refuse("polynomial_decay: steps must be >= 0", [] { return polynomial_decay(1, -1); });
  for (double const bad : {nan, infinite, -1.0, 0.5}) {
    refuse("gradual_warmup: k must be finite and >= 1", [&] { return gradual_warmup(1, 2, bad); });
  }
  for (double const bad : {nan, infinite, -1.0, 0.0}) {
    refuse("polynomial_decay: power must be finite and > 0", [&] { return polynomial_decay(1, 2, bad); });
  }
  for (double const bad : {nan, infinite, -0.1, 1.1}) {
    refuse("step_decay: factor must be in [0, 1]", [&] { return step_decay(1, 2, bad); });
  }
  refuse("step_decay: period must be >= 1", [] { return step_decay(1, 0, 0.5); });
  refuse("linear_scaling: batch must be >= 1", [] { return linear_scaling(0, 1); });
  refuse("linear_scaling: base must be >= 1", [] { return linear_scaling(1, 0); });
  refuse("square_root_scaling: base must be >= 1", [] { return square_root_scaling(1, -1); });
}

}  // namespace
