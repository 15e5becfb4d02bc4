// SPDX-License-Identifier: Apache-2.0
// Local Adam, against Adam on each worker with averaged parameters.
#include "zoadam/state/local_adam.hpp"

#include <limits>

#include "suite/oracle.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using exact = local_adam<thread_transport>;

TEST_CASE("local_adam: intervals, ranks and hyper-parameters") {
  for (int const ranks : {1, 2, 3}) {
    for (index const interval : {1, 4, 7}) {
      job<exact> run;
      run.ranks = ranks;
      run.sizes = {50, 0, 41};
      run.settings.sync.interval = interval;
      run.settings.weight_decay = 0.3;
      run.settings.epsilon_inside = interval == 4;
      run.rate = [](int t) { return 1e-2 / (1 + 0.1 * t); };
      compare_with_reference(run, expect_local_adam());
    }
  }
}

TEST_CASE("local_adam: workers differ within a window and agree after it; moments stay their own") {
  job<exact> run;
  run.ranks = 2;
  run.steps = 8;
  std::vector<std::vector<flat>> x(2), v(2);
  run.after = [&](int, exact& o, step_report const&, buffers& mine) {
    x[nth(o.rank())].push_back(mine.parameters());
    v[nth(o.rank())].push_back(copy_of(o.values(at::variance)));
  };
  (void)run.run();
  for (std::size_t t = 0; t < 8; ++t) {
    CHECK(same_bits(x[0][t], x[1][t]) == (t % 4 == 3));
    CHECK(!same_bits(v[0][t], v[1][t]));
  }
}

TEST_CASE("local_adam: parameters in 16 bits on the wire: replicas still agree") {
  using half = threaded<error_feedback<cast_quantizer<bfloat16>>, fixed_interval, local_adam_state>;
  job<half> run;
  job<exact> full;
  run.ranks = full.ranks = 2;
  auto const a = run.run(), b = full.run();
  CHECK(same_bits(a[0], a[1]));
  double error = 0;
  for (std::size_t k = 0; k < a[0].size(); ++k) error = larger(error, std::abs(double(a[0][k]) - double(b[0][k])));
  CHECK(error < 1e-3);
}

TEST_CASE("lone_adam: the bits of Adam on one worker, without messages, nothing open after a step") {
  using lone = lone_adam<>;
  job<lone> run;
  job<adam<>> whole;
  run.sizes = whole.sizes = {100, 0, 2500};
  run.settings.weight_decay = whole.settings.weight_decay = 0.1;
  run.adjust = whole.adjust = [](int step, flat& g) {
    if (step == 5) g[3] = std::numeric_limits<float>::infinity();
  };
  run.after = [](int step, lone& o, step_report const& r, buffers&) {
    CHECK(!r.exchanged);
    CHECK(r.skipped_here == (step == 5));
    CHECK(o.local_steps() == 0);
    CHECK(o.memory().messages == 0);
  };
  CHECK(same_bits(run.run()[0], whole.run()[0]));
}

}  // namespace
