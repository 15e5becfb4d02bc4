// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam with a given and a found freeze step, against the plain reference.
#include "zoadam/state/onebit_adam.hpp"

#include "suite/oracle.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Groups, class Norm, class Freeze = freeze_at>
using composition = threaded<sign_with_feedback<Groups, Norm>, every_step, onebit_adam_state<Freeze>>;

TEST_CASE_TEMPLATE("onebit_adam: every grouping and norm, before, at and after the freeze", Optimizer,
                   composition<block<64>, l1>, composition<per_tensor, l2>, composition<whole, l1>) {
  for (int const ranks : {1, 3}) {
    for (index const freeze : {1, 6, 100}) {
      job<Optimizer> run;
      run.ranks = ranks;
      run.steps = 15;
      run.sizes = {40, 0, 90, 7};
      run.settings.state.freeze.step = freeze;
      run.settings.weight_decay = 0.2;
      compare_with_reference(run, expect_onebit());
    }
  }
}

using settled = composition<block<>, l1, freeze_when_settled>;

TEST_CASE("onebit_adam: the found freeze step is where the variance has settled, the same on all ranks") {
  job<settled> run;
  run.ranks = 2;
  run.steps = 200;
  run.settings.beta2 = 0.9;
  run.settings.state.freeze = {20, 10, 0.96};
  // Gradients that shrink until step 60.
  run.adjust = [](int step, flat& g) {
    for (float& x : g) x *= std::exp2(-0.1f * static_cast<float>(std::min(step, 60)));
  };
  std::vector<std::vector<double>> norms(2);
  std::vector<int> frozen(2);
  std::atomic<int> wrong{0};
  run.after = [&](int t, settled& o, step_report const& r, buffers&) {
    auto const i = nth(o.rank());
    double norm = 0;
    for (float const v : o.values(at::variance)) norm += double(v);
    norms[i].push_back(norm);
    // Seen from outside: the first step without an update comes after the one that found it.
    if (!r.variance_updated && frozen[i] == 0) frozen[i] = t - 1;
    if (frozen[i] != 0) wrong += r.variance_updated;
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(frozen[0] == frozen[1]);
  int expected = 0;
  for (int t = 30; t < 200 && expected == 0; t += 10) {
    if (norms[0][nth(t - 1)] >= 0.96 * norms[0][nth(t - 11)]) expected = t;
  }
  CHECK(expected > 60);
  CHECK(frozen[0] == expected);
}

TEST_CASE("onebit_adam: a freeze step must be set") {
  CHECK(onebit_adam_state<>{}.defect() != nullptr);
  CHECK(freeze_at{1}.defect() == nullptr);
  CHECK(freeze_when_settled{}.defect() == nullptr);
  CHECK(freeze_when_settled{0, 0, 0.96}.defect() != nullptr);
  CHECK(freeze_when_settled{-1, 10, 0.96}.defect() != nullptr);
  CHECK(freeze_when_settled{0, 10, 0}.defect() != nullptr);
}

TEST_CASE("onebit_adam: no element of a replica drifts, before or after the freeze") {
  using optimizer_type = onebit_adam<thread_transport>;
  job<optimizer_type> run;
  run.ranks = 3;
  run.settings.state.freeze.step = 10;
  std::vector<std::vector<std::uint64_t>> hashes(3);
  run.after = [&](int, optimizer_type& o, step_report const&, buffers&) {
    hashes[nth(o.rank())].push_back(o.replica_hash());
  };
  (void)run.run();
  CHECK(hashes[1] == hashes[0]);
  CHECK(hashes[2] == hashes[0]);
}

}  // namespace
