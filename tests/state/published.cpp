// SPDX-License-Identifier: Apache-2.0
// The compositions of the published Python code, against plain references of it.
#include "zoadam/state/published.hpp"

#include "suite/layerwise.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Groups, class Norm = l2>
using zero_one = threaded<sign_with_feedback<Groups, Norm>, aligned_local_steps, published_zero_one_adam_state>;
template <class Groups, class Norm = l2>
using onebit = threaded<sign_with_feedback<Groups, Norm>, every_step, published_onebit_adam_state>;

TEST_CASE_TEMPLATE("published: 0/1 Adam", Optimizer, zero_one<per_tensor>, zero_one<whole>) {
  for (int const ranks : {1, 2, 3}) {
    job<Optimizer> run;
    run.ranks = ranks;
    run.steps = 40;
    run.sizes = {64, 40};
    run.settings.sync = {8, 4};
    run.settings.state.variance_freeze_step = 12;
    run.settings.state.variance_scaler = 3;
    run.settings.weight_decay = 0.1;
    run.settings.epsilon = 1e-4;
    auto const expect = []<class Job>(Job const& j, std::vector<std::vector<expectation>>& expected) {
      reference::deepspeed_zero_one_options o;
      copy_options(j, o);
      o.lr = j.rate(1);
      o.var_freeze_step = j.settings.state.variance_freeze_step;
      o.var_update_scaler = j.settings.state.variance_scaler;
      o.local_step_scaler = j.settings.sync.period;
      o.local_step_clipper = j.settings.sync.longest;
      reference::deepspeed_zero_one_adam<double> r(shape_of(j), o, start_of(j));
      double margin = 1;
      for (int t = 1; t <= j.steps; ++t) {
        r.step(gradients_of(j, t));
        margin = std::min(margin, r.mean.margin);
        auto& row = expected.emplace_back();
        for (std::size_t i = 0; i < r.x.size(); ++i) row.push_back({r.x[i], r.m[i], r.second.v});
      }
      return margin;
    };
    compare_with_reference(run, expect, 1e-4);
  }
}

TEST_CASE_TEMPLATE("published: 1-bit Adam", Optimizer, onebit<per_tensor>, onebit<whole>) {
  for (int const ranks : {1, 2, 3}) {
    job<Optimizer> run;
    run.ranks = ranks;
    run.sizes = {64, 40};
    run.settings.state.freeze.step = 7;
    run.settings.weight_decay = 0.1;
    auto const expect = []<class Job>(Job const& j, std::vector<std::vector<expectation>>& expected) {
      reference::adam_options o;
      copy_options(j, o);
      reference::deepspeed_onebit_adam<double> r(shape_of(j), o, j.rate(1), 7, start_of(j));
      for (int t = 1; t <= j.steps; ++t) {
        r.step(gradients_of(j, t));
        expected.push_back(std::vector<expectation>(nth(j.ranks), {r.x, r.m, r.second.v}));
      }
      return r.mean.margin;
    };
    compare_with_reference(run, expect);
  }
}

TEST_CASE("published: 1-bit LAMB") {
  for (int const ranks : {1, 2, 3}) {
    job<threaded<sign_with_feedback<whole, l2>, every_step, published_onebit_lamb_state>> run;
    run.ranks = ranks;
    run.sizes = {64, 40};
    run.settings.state.freeze.step = 7;
    run.settings.weight_decay = 0.1;
    compare_with_reference(run, expect_lamb());
  }
}

TEST_CASE("published: variance steps are aligned to multiples of the interval") {
  aligned_warmup<true> const variance{2};
  std::vector<index> steps;
  for (index t = 2; t <= 24; ++t)
    if (variance.variance_step(t)) steps.push_back(t);
  CHECK(steps == std::vector<index>{2, 3, 4, 6, 8, 12, 16, 24});
}

}  // namespace
