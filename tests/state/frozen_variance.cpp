// SPDX-License-Identifier: Apache-2.0
// The frozen variance: its schedule, its rounds in 16 bits, sync policies against the plain reference.
#include "zoadam/state/frozen_variance.hpp"

#include "suite/oracle.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Sync, class Variance = identity_quantizer>
using composition = threaded<sign_with_feedback<>, Sync, frozen_variance_state<displacement<>, Variance>>;

template <class Optimizer, class Due>
void compare(job<Optimizer> run, Due due) {
  run.ranks = 2;
  run.steps = 24;
  run.sizes = {70, 33};
  compare_with_reference(run, expect_zero_one({}, due));
}

TEST_CASE("frozen_variance: an exchange at every step") {
  compare(job<composition<every_step>>{}, [](index, index, double) { return true; });
}

TEST_CASE("frozen_variance: a fixed interval after a start") {
  job<composition<fixed_interval>> run;
  run.settings.sync = {3, 5};
  compare(run, [](index t, index last, double) { return t - last >= (t > 5 ? 3 : 1); });
}

TEST_CASE("frozen_variance: an interval that doubles as the learning rate halves") {
  job<composition<learning_rate_interval>> run;
  run.settings.sync = {4, 8};
  run.rate = [](int t) { return 1e-2 / (1 + t / 4); };
  compare(run, [](index t, index last, double lr) {
    return reference::learning_rate_interval{4, 1e-2, 8}.due(t, last, lr);
  });
}

TEST_CASE("frozen_variance: rounds in 16 bits") {
  job<composition<every_step, cast_quantizer<bfloat16>>> run;
  run.settings.state.variance_schedule.kappa = 2;
  compare(run, [](index, index, double) { return true; });
  job<composition<every_step, cast_quantizer<float16>>> other;
  other.settings.state.variance_schedule.kappa = 2;
  compare(other, [](index, index, double) { return true; });
}

TEST_CASE("frozen_variance: updates happen at the steps of the schedule and are counted") {
  using optimizer_type = composition<every_step>;
  for (index const stop : {1, 7, 1000}) {
    job<optimizer_type> run;
    run.steps = 80;
    run.settings.state.variance_schedule = {4, stop};
    reference::doubling_interval const expected{4, stop};
    index count = 0;
    int wrong = 0;
    run.after = [&](int t, optimizer_type& o, step_report const& r, buffers&) {
      count += expected.due(t);
      wrong += r.variance_updated != expected.due(t) || o.variance_updates() != count;
    };
    (void)run.run();
    CHECK(wrong == 0);
  }
}

TEST_CASE("frozen_variance: reopen_variance() counts the schedule from the next step") {
  using optimizer_type = composition<every_step>;
  job<optimizer_type> run;
  run.steps = 60;
  run.settings.state.variance_schedule = {2, 12};
  reference::doubling_interval const expected{2, 12};
  int wrong = 0;
  run.after = [&](int t, optimizer_type& o, step_report const& r, buffers&) {
    wrong += r.variance_updated != (t <= 25 ? expected.due(t) : expected.due(t - 25));
    if (t == 25) o.reopen_variance();
  };
  (void)run.run();
  CHECK(wrong == 0);
}

}  // namespace
