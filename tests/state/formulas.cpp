// SPDX-License-Identifier: Apache-2.0
// Element formulas on scalar lanes, against what DESIGN section 1 prints.
#include "zoadam/state/formulas.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "zoadam/lane/lane.hpp"

namespace {

using namespace zoadam;

using lane = lane_t<isa::scalar>;
using registers = detail::registers<lane, tags<at::gradient_t, at::parameter_t, at::momentum_t, at::variance_t>>;

float value(lane x) {
  float result[1];
  x.store(result);
  return result[0];
}

struct element {
  float g = 0, x = 0, m = 0, v = 0;
};
registers load(element e) {
  registers r;
  r[at::gradient] = lane(e.g);
  r[at::parameter] = lane(e.x);
  r[at::momentum] = lane(e.m);
  r[at::variance] = lane(e.v);
  return r;
}
coefficients<lane> numbers(coefficients<float> k) { return k.as<lane>(); }

coefficients<float> usual() {
  coefficients<float> k{};
  k.grad_scale = 1;
  k.beta1 = k.own_beta1 = 0.9f;
  k.one_minus_beta1 = k.own_one_minus_beta1 = 0.1f;
  k.beta2 = k.own_beta2 = 0.75f;
  k.one_minus_beta2 = k.own_one_minus_beta2 = 0.25f;
  k.correction1 = k.correction2 = 1;
  k.lr = 0.5f;
  return k;
}

TEST_CASE("formulas: active iff the variance is above zero") {
  CHECK(formula::active(load({.v = 0x1p-126f})).any());
  CHECK(!formula::active(load({.v = 0})).any());
  CHECK(!formula::active(load({.v = -0.0f})).any());
}

TEST_CASE("formulas: the denominator, with epsilon beside and under the root") {
  auto k = usual();
  k.correction2 = 4.0f;
  k.epsilon = 0.5f;
  CHECK(value(formula::denominator(load({.v = 4}), numbers(k))) == 4.5f);
  k.epsilon = 0;
  k.epsilon_inside = 9;
  CHECK(value(formula::denominator(load({.v = 4}), numbers(k))) == 5.0f);
}

TEST_CASE("formulas: moments of a mean and of the own gradient") {
  auto k = usual();
  CHECK(value(formula::next_momentum(load({.m = 2}), lane(3.0f), numbers(k))) == 0.9f * 2 + 0.1f * 3);
  CHECK(value(formula::next_variance(load({.v = 2}), lane(3.0f), numbers(k))) == 0.75f * 2 + 0.25f * 9);
  k.grad_scale = 0.5f;
  CHECK(value(formula::own_momentum(load({.g = 6, .m = 2}), numbers(k))) == 0.9f * 2 + 0.1f * 3);
  CHECK(value(formula::own_variance(load({.g = 6, .v = 2}), numbers(k))) == 0.75f * 2 + 0.25f * 9);
  // Without a gradient here the own moments stay; those of the mean do not.
  k.own_beta1 = k.own_beta2 = 1;
  k.own_one_minus_beta1 = k.own_one_minus_beta2 = 0;
  CHECK(value(formula::own_momentum(load({.g = 0, .m = 2}), numbers(k))) == 2);
  CHECK(value(formula::own_variance(load({.g = 0, .v = 2}), numbers(k))) == 2);
  CHECK(value(formula::next_momentum(load({.m = 2}), lane(3.0f), numbers(k))) == 0.9f * 2 + 0.1f * 3);
}

TEST_CASE("formulas: tiny state is stored as zero, never as a denormal") {
  auto k = usual();
  k.beta1 = k.own_beta1 = k.beta2 = 1;
  CHECK(value(formula::next_momentum(load({.m = 0x1p-96f}), lane(0.0f), numbers(k))) == 0x1p-96f);
  CHECK(value(formula::next_momentum(load({.m = -0x1.8p-97f}), lane(0.0f), numbers(k))) == 0);
  CHECK(value(formula::own_momentum(load({.m = 0x1.8p-97f}), numbers(k))) == 0);
  CHECK(value(formula::next_variance(load({.v = 0x1p-126f}), lane(0.0f), numbers(k))) == 0x1p-126f);
  k.beta2 = 0.5f;
  CHECK(value(formula::next_variance(load({.v = 0x1p-126f}), lane(0.0f), numbers(k))) == 0);
}

TEST_CASE("formulas: the step, and inactive elements that only decay") {
  auto k = usual();
  k.weight_decay = 0.25f;
  CHECK(value(formula::stepped(load({.x = 8, .v = 4}), lane(6.0f), numbers(k))) == 8 - 0.5f * (6.0f / 2 + 0.25f * 8));
  CHECK(value(formula::stepped(load({.x = 8, .v = 0}), lane(6.0f), numbers(k))) == 8 - 0.5f * (0.25f * 8));
  registers r = load({.x = 8, .m = 6, .v = 4});
  local_step::run(r, numbers(k));
  CHECK(value(r[at::parameter]) == 8 - 0.5f * (6.0f / 2 + 0.25f * 8));
  CHECK(value(r[at::momentum]) == 6);
  r = load({.g = 3, .m = 2});
  local_momentum::run(r, numbers(k));
  CHECK(value(r[at::momentum]) == 0.9f * 2 + 0.1f * 3);
}

}  // namespace
