// SPDX-License-Identifier: Apache-2.0
// Adam with decoupled weight decay, against the plain reference.
#include "zoadam/state/adam.hpp"

#include "suite/oracle.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using exact = adam<thread_transport>;

TEST_CASE("adam: sizes, ranks and hyper-parameters") {
  for (int const ranks : {1, 2, 4}) {
    for (std::vector<index> const& sizes : {std::vector<index>{1}, {64, 0, 3}, {2500}}) {
      job<exact> run;
      run.ranks = ranks;
      run.sizes = sizes;
      run.settings.weight_decay = 0.1 * ranks;
      run.settings.beta1 = 0.8;
      run.settings.beta2 = 0.95;
      run.settings.epsilon_inside = ranks == 2;
      compare_with_reference(run, expect_adam());
    }
  }
}

TEST_CASE("adam: the first step goes by the learning rate, whatever the gradient's size") {
  for (float const size : {1e-6f, 1.0f, 1e6f}) {
    job<exact> run;
    run.steps = 1;
    run.settings.epsilon = 0;
    run.gradient = [=](int, int, std::size_t n) { return flat(n, -size); };
    run.start = [](std::size_t) { return 0.0f; };
    auto const last = run.run();
    for (float const x : last[0]) CHECK(x == doctest::Approx(1e-2).epsilon(1e-5));
  }
}

TEST_CASE("adam: gradients in 16 bits stay near") {
  using half = threaded<cast_quantizer<bfloat16>, every_step, adam_state>;
  job<half> run;
  job<exact> full;
  run.ranks = full.ranks = 2;
  auto const x = run.run(), y = full.run();
  double error = 0;
  for (std::size_t k = 0; k < x[0].size(); ++k) error = larger(error, std::abs(double(x[0][k]) - double(y[0][k])));
  CHECK(error > 0);
  CHECK(error < 3e-2);  // a tenth of the way, after 20 steps of 1e-2
  CHECK(same_bits(x[0], x[1]));
}

TEST_CASE("adam: an exchange and a variance update at every step") {
  job<exact> run;
  int wrong = 0;
  run.after = [&](int t, exact& o, step_report const& r, buffers&) {
    wrong += !r.exchanged || !r.variance_updated || o.variance_updates() != t;
  };
  (void)run.run();
  CHECK(wrong == 0);
}

}  // namespace
