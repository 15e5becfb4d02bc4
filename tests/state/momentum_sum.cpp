// SPDX-License-Identifier: Apache-2.0
// The momentum-sum exchange by both rules, against the plain reference.
#include "zoadam/state/momentum_sum.hpp"

#include "suite/oracle.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <momentum_rule Rule, class Groups, class Norm = l1>
using exchange_of =
    threaded<sign_with_feedback<Groups, Norm>, local_steps, frozen_variance_state<momentum_sum<Rule>>>;

using replace_whole = exchange_of<momentum_rule::replace, whole>;
using replace_block = exchange_of<momentum_rule::replace, block<64>, l2>;
using correct_whole = exchange_of<momentum_rule::correct, whole, l2>;
using correct_tensor = exchange_of<momentum_rule::correct, per_tensor>;

TEST_CASE_TEMPLATE("momentum_sum: every rule", Optimizer, replace_whole, replace_block, correct_whole,
                   correct_tensor) {
  reference::zero_one_options o;
  o.space = reference::exchange_space::momentum_sum;
  o.rule = std::is_same_v<Optimizer, correct_whole> || std::is_same_v<Optimizer, correct_tensor>
               ? reference::momentum_rule::correct
               : reference::momentum_rule::replace;
  for (int const ranks : {1, 2, 3}) {
    job<Optimizer> run;
    run.sizes = {40, 0, 90, 7};
    run.ranks = ranks;
    run.steps = 14;
    run.settings.sync = {2, 4, 4};
    run.settings.weight_decay = 0.2;
    run.rate = [](int t) { return t == 9 ? 0.0 : 1e-2 / (1 + 0.1 * t); };
    compare_with_reference(run, expect_zero_one(o, [](index t, index last, double) {
                             return reference::local_steps{2, 4, 4}.due(t, last);
                           }));
  }
}

TEST_CASE("momentum_sum: the sum is empty after an exchange, and is what was added up before it") {
  job<replace_whole> run;
  run.settings.sync = {0, 1, 4};
  run.steps = 30;
  std::atomic<int> wrong{0}, open{0};
  std::vector<double> sum(100);
  run.after = [&](int step, replace_whole& o, step_report const& r, buffers&) {
    for (std::size_t k = 0; k < 100; ++k) {
      if (r.exchanged) {
        sum[k] = 0;
        wrong += o.values(at::momentum_sum)[k] != 0;
      } else {
        sum[k] += 1e-2 * double(o.values(at::momentum)[k]);
        wrong += std::abs(double(o.values(at::momentum_sum)[k]) - sum[k]) > 1e-6;
        ++open;
      }
    }
    wrong += o.steps() != step;
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(open > 0);
}

}  // namespace
