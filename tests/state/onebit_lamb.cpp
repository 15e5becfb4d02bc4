// SPDX-License-Identifier: Apache-2.0
// 1-bit LAMB against the plain reference.
#include "zoadam/state/onebit_lamb.hpp"

#include "suite/layerwise.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Groups, class Norm>
using composition = threaded<sign_with_feedback<Groups, Norm>, every_step, onebit_lamb_state>;

TEST_CASE_TEMPLATE("onebit_lamb: every grouping and norm, before, at and after the freeze", Optimizer,
                   composition<block<64>, l1>, composition<per_tensor, l2>, composition<whole, l1>) {
  for (int const ranks : {1, 3}) {
    for (index const freeze : {1, 6, 100}) {
      job<Optimizer> run;
      run.ranks = ranks;
      run.steps = 15;
      run.sizes = {40, 0, 90, 7};
      run.settings.state.freeze.step = freeze;
      run.settings.weight_decay = 0.2;
      compare_with_reference(run, expect_lamb());
    }
  }
}

}  // namespace
