// SPDX-License-Identifier: Apache-2.0
// The concepts of stages and programs, and what the defaults of exchanges say.
#include "zoadam/concepts/stage.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "zoadam/aliases.hpp"

namespace at_user {
struct total_t : zoadam::at::tensor_scalar {
  static constexpr char const* name = "total";
};
struct most_t : zoadam::at::tensor_scalar {
  static constexpr char const* name = "most";
};
struct mean_total_t : zoadam::at::tensor_scalar {
  static constexpr char const* name = "mean_total";
};
}  // namespace at_user

namespace {

using namespace zoadam;
using zoadam::index;

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
using norms = tensor_reduction<sum_archetype>;
static_assert(stage<step> && stage<sum> && stage<swap> && stage<norms>);
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

/// Sum and maximum of |g| over each tensor, and the mean of the sums over tensors that are not empty, scaled.
struct totals {
  struct sum {};
  struct peak {};
  using reads = tags<at::gradient_t>;
  using sums = tags<sum>;
  using maxima = tags<peak>;
  using scalars = tags<at_user::total_t, at_user::most_t, at_user::mean_total_t>;
  using united = tags<at_user::total_t>;

  double factor = 1;

  template <class Registers, class Results, class Coefficients>
  static void terms(Registers const& r, Results& out, Coefficients const& k) noexcept {
    out[sum{}] = out[peak{}] = abs(k.grad_scale * r[at::gradient]);
  }
  template <class Results, class Scalars, class Coefficients>
  void finish(Results const& all, f64 elements, Scalars& s, Coefficients const&) const noexcept {
    s[at_user::total_t{}] = f32((f64(factor) * all[sum{}]).to_float());
    // An earlier value can be read: this one grows by the number of elements, step by step.
    s[at_user::most_t{}] = f32((f64(s[at_user::most_t{}]) + all[peak{}] + elements).to_float());
  }
  template <class Sums, class Scalars, class Coefficients>
  void unite(Sums const& all, f64 tensors, Scalars& s, Coefficients const&) const noexcept {
    s[at_user::mean_total_t{}] = f32((all[at_user::total_t{}] / tensors).to_float());
  }
};
/// x <- total - mean total
struct take_scalars {
  using reads = tags<at_user::total_t, at_user::mean_total_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  static void run(Registers& r, Coefficients const&) noexcept {
    r[at::parameter] = r[at_user::total_t{}] - r[at_user::mean_total_t{}];
  }
};
struct even_steps {
  bool due(zoadam::clock const& c) const noexcept { return c.step % 2 == 0; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("even_steps");
  }
};
struct totals_state {
  using fields = zoadam::fields<tensor_field<at_user::total_t, home::worker>,
                                tensor_field<at_user::most_t, home::worker>, tensor_field<at_user::mean_total_t>>;
  using agreed = at::parameter_t;
  double factor = 1;
  void start(zoadam::clock&) const noexcept {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync when) const {
    return std::tuple(tensor_reduction<totals, Sync>{when, {factor}}, pass<take_scalars>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("totals", factor);
  }
};

TEST_CASE("a tensor reduction: sums, maxima and scalars of each tensor, whatever the number of threads") {
  std::vector<std::size_t> const sizes{1, 0, 130, 2048, 2049, 7000, 33};
  for (int const threads : {1, 3}) {
    std::vector<std::vector<float>> x, g;
    std::vector<tensor> tensors;
    for (std::size_t const n : sizes) {
      x.emplace_back(n);
      g.emplace_back(n);
      for (std::size_t k = 0; k < n; ++k) g.back()[k] = static_cast<float>(static_cast<int>((k * 7 + n) % 11) - 5);
    }
    for (std::size_t t = 0; t < sizes.size(); ++t) tensors.push_back({std::to_string(t), {}, x[t], g[t]});
    tensors[6].gradient = {};
    optimizer<identity_quantizer, even_steps, totals_state, cpu_backend, single_transport> o(
        tensors, {.state = {2.0}}, single_transport{}, cpu_backend(threads));
    double mean = 0;
    std::vector<double> total, most;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      total.push_back(0);
      most.push_back(0);
      for (float const each : t == 6 ? std::vector<float>() : g[t]) {
        total[t] += 2 * 0.5 * std::abs(double(each));
        most[t] = std::max(most[t], 0.5 * std::abs(double(each)));
      }
      mean += total[t] / 6;
    }
    (void)o.step(0.1, 0.5);
    for (float const each : o.values(at_user::total_t{})) CHECK(each == 0);  // not due, and zero at first
    for (int due = 1; due <= 2; ++due) {
      (void)o.step(0.1, 0.5);
      REQUIRE(o.values(at_user::total_t{}).size() == sizes.size());
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        CHECK(double(o.values(at_user::total_t{})[t]) == total[t]);
        CHECK(double(o.values(at_user::most_t{})[t]) == due * (most[t] + double(sizes[t])));
        CHECK(o.values(at_user::mean_total_t{})[t] == static_cast<float>(mean));
        for (float const each : x[t]) CHECK(each == static_cast<float>(total[t]) - static_cast<float>(mean));
      }
      (void)o.step(0.1, 0.5);
    }
    CHECK(o.memory().fields == 3 * (64 + memory_use::field_gap));
  }
}

TEST_CASE("always is always due") {
  CHECK(always{}.due(zoadam::clock{}));
  static_assert(zoadam::sync<always>);
}

}  // namespace
