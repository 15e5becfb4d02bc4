// SPDX-License-Identifier: Apache-2.0
// The concepts of stages and programs, and what the defaults of exchanges say.
#include "zoadam/concepts/stage.hpp"

#include <doctest/doctest.h>

#include "zoadam/aliases.hpp"

namespace {

using namespace zoadam;

struct formula_archetype {
  using reads = tags<at::parameter_t, at::gradient_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = r[at::parameter] - k.lr * r[at::gradient];
  }
};
struct sum_archetype {
  using reads = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  static auto term(Registers const& r, Coefficients const&) noexcept {
    return abs(r[at::parameter]);
  }
};

using step = pass<formula_archetype>;
using sum = reduction<sum_archetype, every_step>;
using swap = exchange<displacement<>, local_steps, sign_quantizer<>>;
static_assert(stage<step> && stage<sum> && stage<swap>);
static_assert(!stage<formula_archetype> && !stage<int> && !stage<std::tuple<step>>);

static_assert(program<std::tuple<>> && program<std::tuple<step>> && program<std::tuple<step, sum, swap>>);
static_assert(!program<step> && !program<std::tuple<step, int>> && !program<std::pair<step, swap>>);

// A quantizer for both phases unless two are named.
static_assert(std::is_same_v<swap::up, swap::down>);
static_assert(
    std::is_same_v<exchange<displacement<>, every_step, sign_quantizer<>, error_feedback<sign_quantizer<>>>::down,
                   error_feedback<sign_quantizer<>>>);

// An exchange without words of its own serves nothing in particular.
static_assert(!exchange_facts::carries_gradient && !exchange_facts::advances_variance &&
              !exchange_facts::variance_only);
static_assert(!exchange_facts::closes_window && !exchange_facts::divides_by_gamma);
static_assert(!exchange_form::masked && !exchange_form::limited);

struct descent_state {
  using fields = zoadam::fields<>;
  using agreed = at::parameter_t;
  void start(zoadam::clock&) const noexcept {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync) const {
    return std::tuple(step{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("descent");
  }
};

TEST_CASE("a program of one pass of a user's own: gradient descent") {
  std::vector<float> x(33, 1.0f), g(33, 0.5f);
  optimizer<identity_quantizer, every_step, descent_state, cpu_backend, single_transport> descent(
      {{"x", {}, x, g}}, {}, single_transport{});
  auto const report = descent.step(0.25);
  for (float each : x) CHECK(each == 0.875f);
  CHECK_FALSE(report.exchanged);
  CHECK(report.bytes_sent == 0);
  CHECK(descent.memory().fields == 0);
}

TEST_CASE("always is always due") {
  CHECK(always{}.due(zoadam::clock{}));
  static_assert(zoadam::sync<always>);
}

}  // namespace
