// SPDX-License-Identifier: Apache-2.0
// The displacement exchange in every space, by both rules, against the plain reference.
#include "zoadam/state/displacement.hpp"

#include "suite/oracle.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <power P, momentum_rule Rule, class Groups = block<>, class Norm = l1>
using exchange_of =
    threaded<sign_with_feedback<Groups, Norm>, local_steps, frozen_variance_state<displacement<P, Rule>>>;

template <class State>
struct facts;
template <power P, momentum_rule Rule, class Variance>
struct facts<frozen_variance_state<displacement<P, Rule>, Variance>> {
  static constexpr double p = P == power::zero ? 0 : P == power::half ? 0.5 : 1;
  static constexpr auto rule =
      Rule == momentum_rule::correct ? reference::momentum_rule::correct : reference::momentum_rule::replace;
};

using zero_correct = exchange_of<power::zero, momentum_rule::correct, whole>;
using zero_replace = exchange_of<power::zero, momentum_rule::replace>;
using half_correct = exchange_of<power::half, momentum_rule::correct, per_tensor>;
using half_replace = exchange_of<power::half, momentum_rule::replace, block<64>>;
using one_correct = exchange_of<power::one, momentum_rule::correct, block<64>, l2>;
using one_replace = exchange_of<power::one, momentum_rule::replace, per_tensor, l2>;

TEST_CASE_TEMPLATE("displacement: every space and rule, with and without a limit", Optimizer, zero_correct,
                   zero_replace, half_correct, half_replace, one_correct, one_replace) {
  using state = facts<typename Optimizer::state_type>;
  reference::zero_one_options o;
  o.weight_power = state::p;
  o.rule = state::rule;
  for (double const limit : {0.0, 0.5, 1.0}) {
    for (int const ranks : {1, 3}) {
      job<Optimizer> run;
      run.sizes = {40, 0, 90, 7};
      run.ranks = ranks;
      run.steps = 14;
      run.settings.sync = {2, 4, 4};
      run.settings.limit = limit;
      run.settings.weight_decay = 0.2;
      run.settings.epsilon = 1e-4;
      run.settings.epsilon_inside = ranks == 3;
      run.rate = [](int t) { return 1e-2 / (1 + 0.1 * t); };
      compare_with_reference(run, expect_zero_one(o, [](index t, index last, double) {
                               return reference::local_steps{2, 4, 4}.due(t, last);
                             }));
    }
  }
}

TEST_CASE("displacement: what it is called") {
  detail::namer sink;
  displacement<power::half, momentum_rule::replace>{}.describe(sink);
  CHECK(sink.text() == "displacement(0.5) replace");
}

}  // namespace
