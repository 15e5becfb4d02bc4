// SPDX-License-Identifier: Apache-2.0
// Faults around elements without gradients, and around a world of one rank.
#include <atomic>

#include "suite/job.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Groups, class Sync, class Space>
using over = threaded<sign_with_feedback<Groups>, Sync, frozen_variance_state<Space>>;

template <power P, momentum_rule Rule = momentum_rule::correct>
using way = displacement<P, Rule>;
using sum_replace = momentum_sum<momentum_rule::replace>;
using sum_correct = momentum_sum<momentum_rule::correct>;

// Every space with every grouping; sync policies take turns, and each meets every grouping.
using c01 = over<block<32>, every_step, way<power::zero>>;
using c02 = over<per_tensor, fixed_interval, way<power::zero>>;
using c03 = over<whole, local_steps, way<power::zero>>;
using c04 = over<block<>, fixed_interval, way<power::half>>;
using c05 = over<per_tensor, local_steps, way<power::half>>;
using c06 = over<whole, learning_rate_interval, way<power::half>>;
using c07 = over<block<>, local_steps, way<power::one>>;
using c08 = over<per_tensor, learning_rate_interval, way<power::one>>;
using c09 = over<whole, every_step, way<power::one>>;
using c10 = over<block<32>, learning_rate_interval, way<power::one, momentum_rule::replace>>;
using c11 = over<per_tensor, every_step, sum_replace>;
using c12 = over<whole, fixed_interval, sum_replace>;
using c13 = over<block<>, local_steps, sum_correct>;
using c14 = threaded<sign_with_feedback<block<>, l2>, every_step, onebit_adam_state<>>;
using c15 = threaded<sign_with_feedback<whole>, every_step, onebit_adam_state<>>;
using c16 = threaded<sign_quantizer<>, local_steps, frozen_variance_state<>>;
using c17 = threaded<cast_quantizer<bfloat16>, fixed_interval, local_adam_state>;
using c18 = placed<adam<thread_transport>>;

template <class Optimizer>
job<Optimizer> one_gradient(std::vector<index> sizes, int steps) {
  job<Optimizer> run;
  run.sizes = std::move(sizes);
  run.ranks = 2;
  run.steps = steps;
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = 50;
  if constexpr (requires { run.settings.sync.period; }) run.settings.sync.period = 100;
  run.gradient = [](int, int, std::size_t n) {
    flat g(n);
    g[0] = 1;
    return g;
  };
  run.rate = [=](int t) { return 1e-3 * (1 - 0.9 * t / steps); };
  return run;
}

TEST_CASE_TEMPLATE_DEFINE("case 6: zero-gradient elements never move, and the first learns as fast as alone",
                          Optimizer, case_6) {
  int const steps = steps_of(1000, 100);
  auto const together = one_gradient<Optimizer>({64}, steps), alone = one_gradient<Optimizer>({1}, steps);
  auto const x = together.run(), y = alone.run();
  for (std::size_t i = 0; i < 2; ++i) {
    int moved = 0;
    for (std::size_t k = 1; k < 64; ++k) moved += x[i][k] != together.start(k);
    CHECK(moved == 0);
    CHECK(same_bits({x[i][0]}, y[i]));
    CHECK(std::abs(x[i][0] - together.start(0)) > 2e-4f * static_cast<float>(steps));
  }
}
TEST_CASE_TEMPLATE_INVOKE(case_6, c01, c05, c12, c14);
#if !ZOADAM_SUITE_DEVICE
TEST_CASE_TEMPLATE_INVOKE(case_6, c02, c03, c04, c06, c07, c08, c09, c10, c11, c13, c15, c16, c17, c18);
#endif

TEST_CASE_TEMPLATE("case 6: the same with the zeros in tensors of their own, one without a gradient", Optimizer, c01,
                   c05, c12, c14) {
  int const steps = steps_of(200, 20);
  auto run = one_gradient<Optimizer>({1, 40, 2100}, steps);
  auto const x = run.run()[1];
  int moved = 0;
  for (std::size_t k = 1; k < x.size(); ++k) moved += x[k] != run.start(k);
  CHECK(moved == 0);
  CHECK(x[0] != run.start(0));

  std::vector<flat> last(2);
  on_all_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({1, 40, 2100}, {}, run.start);
    mine.gradient[0][0] = 1;
    auto list = mine.tensors();
    list[1].gradient = {};
    list[2].gradient = {};
    Optimizer o(list, run.settings, std::move(link));
    for (int t = 1; t <= steps; ++t) (void)o.step(run.rate(t));
    last[nth(me)] = mine.parameters();
  });
  CHECK(same_bits(last[0], x));
  CHECK(same_bits(last[1], x));
}

template <class Space>
using by_256 = over<block<256>, local_steps, Space>;

#if ZOADAM_SUITE_DEVICE  // fibers have no time for more
#define ZOADAM_BY_256 by_256<displacement<>>
#else
using onebit_256 = threaded<sign_with_feedback<block<256>>, every_step, onebit_adam_state<>>;
#define ZOADAM_BY_256 by_256<displacement<>>, by_256<sum_replace>, onebit_256
#endif

TEST_CASE_TEMPLATE("case 16: a small second moment and a quantized first one: weights without gradient stay",
                   Optimizer, ZOADAM_BY_256) {
  for (bool const tiny : {false, true}) {
    auto run = one_gradient<Optimizer>({256}, steps_of(500, 100));
    run.ranks = 1;
    // Gradients in the first round only, too: then m fades while v stays.
    if (tiny) {
      run.gradient = [](int, int step, std::size_t n) {
        flat g(n);
        g[0] = step == 1 ? 1e-12f : 0.0f;
        return g;
      };
    }
    auto const x = run.run()[0];
    int moved = 0;
    for (std::size_t k = 1; k < x.size(); ++k) moved += x[k] != run.start(k);
    CHECK(moved == 0);
    CHECK(x[0] != run.start(0));
    CHECK(finite(x[0]));
  }
}

#if !ZOADAM_SUITE_DEVICE  // more steps and compositions than fibers have time for

// ------------------------------------------------------------------------------------------- a world of one rank

template <class Space, class Sync>
using exact = optimizer<identity_quantizer, Sync, frozen_variance_state<Space>, cpu_backend, single_transport>;

TEST_CASE_TEMPLATE("case 24: one rank, identity quantizer: plain 0/1 Adam, momentum kept", Optimizer,
                   exact<way<power::zero>, every_step>, exact<way<power::half>, fixed_interval>,
                   exact<way<power::one>, fixed_interval>, exact<way<power::one>, every_step>,
                   exact<sum_replace, every_step>, exact<sum_correct, fixed_interval>) {
  job<Optimizer> run;
  run.steps = 60;
  run.settings.limit = 0;  // it bounds what one rank may say, too
  // A sum of momenta is divided by the variance of its last step, so it stays the same within a window.
  bool const windows = !std::is_same_v<typename Optimizer::sync_type, every_step>;
  if (windows) run.settings.state.variance_schedule.stop = 1;
  std::size_t const n = 100;
  std::vector<double> x(n), m(n), v(n);
  for (std::size_t k = 0; k < n; ++k) x[k] = double(run.start(k));
  index count = 0;
  for (int t = 1, next = 1; t <= run.steps; ++t) {
    auto const g = noisy_gradient(run.seed, 0, t, n);
    if (t == next) {
      for (std::size_t k = 0; k < n; ++k) v[k] = 0.999 * v[k] + 0.001 * double(g[k]) * double(g[k]);
      next += windows ? 100 : 1 << count / 8;
      ++count;
    }
    for (std::size_t k = 0; k < n; ++k) {
      m[k] = 0.9 * m[k] + 0.1 * double(g[k]);
      x[k] -= 1e-2 * m[k] / (std::sqrt(v[k] / (1 - std::pow(0.999, count))) + 1e-8);
    }
  }
  double error = 0, momentum_error = 0;
  run.at_end = [&](Optimizer& o, buffers&) {
    (void)o.synchronize();
    for (std::size_t k = 0; k < n; ++k) {
      momentum_error = larger(momentum_error, std::abs(double(o.values(at::momentum)[k]) - m[k]));
    }
    CHECK(o.variance_updates() == count);
  };
  auto const last = run.run()[0];
  for (std::size_t k = 0; k < n; ++k) error = larger(error, std::abs(double(last[k]) - x[k]));
  CHECK(error < 1e-4);
  CHECK(momentum_error < 1e-4);
}

template <class Groups, class Space>
using signs =
    optimizer<sign_with_feedback<Groups>, local_steps, frozen_variance_state<Space>, cpu_backend, single_transport>;

TEST_CASE_TEMPLATE("case 24: one rank with the sign quantizer moves and converges", Optimizer,
                   signs<block<>, displacement<>>, signs<whole, sum_replace>, zero_one_adam<>,
                   zero_one_adam_paper<>) {
  // f(x) = sum (x - c)^2 / 2
  buffers mine({50}, {}, [](std::size_t) { return 0.0f; });
  auto o = make<Optimizer>(mine, {}, single_transport{});
  auto const distance = [&] {
    double sum = 0;
    for (std::size_t k = 0; k < 50; ++k) sum += std::pow(double(mine.parameter[0][k]) - double(noise(2, k)), 2);
    return sum;
  };
  double const before = distance();
  for (int t = 0; t < 1500; ++t) {
    for (std::size_t k = 0; k < 50; ++k) mine.gradient[0][k] = mine.parameter[0][k] - noise(2, k);
    (void)o.step(1e-2 * (1 - t / 1500.0));
  }
  CHECK(distance() < 0.01 * before);
}

#endif

}  // namespace
