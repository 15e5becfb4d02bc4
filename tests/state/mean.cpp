// SPDX-License-Identifier: Apache-2.0
// The compressed mean by itself, against the plain reference.
#include "zoadam/state/mean.hpp"

#include "suite/oracle.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Groups, class Norm>
using mean_of = threaded<sign_with_feedback<Groups, Norm>, every_step, mean_state>;

TEST_CASE_TEMPLATE("mean: every grouping and norm", Optimizer, mean_of<block<32>, l1>, mean_of<block<>, l2>,
                   mean_of<per_tensor, l1>, mean_of<per_tensor, l2>, mean_of<whole, l1>, mean_of<whole, l2>) {
  for (int const ranks : {1, 2, 5}) {
    int compared = 0;
    for (std::uint64_t seed = 1; seed < 20 && compared == 0; ++seed) {
      job<Optimizer> run;
      run.seed = seed;
      run.ranks = ranks;
      run.steps = 6;
      run.sizes = {33, 0, 100, 65};
      reference::compressed_mean<double> r(shape_of(run));
      std::vector<std::vector<double>> expected;
      for (int t = 1; t <= run.steps; ++t) expected.push_back(r(gradients_of(run, t)));
      if (r.margin < least_margin) continue;
      ++compared;
      std::atomic<int> wrong{0};
      run.after = [&](int t, Optimizer&, step_report const& report, buffers& mine) {
        flat const x = mine.parameters();
        for (std::size_t k = 0; k < x.size(); ++k) wrong += std::abs(double(x[k]) - expected[nth(t - 1)][k]) > 1e-5;
        wrong += !report.exchanged || report.variance_updated;
      };
      (void)run.run();
      CHECK(wrong == 0);
    }
    CHECK(compared == 1);
  }
}

TEST_CASE("mean: full precision is the mean in rank order") {
  using exact = threaded<identity_quantizer, every_step, mean_state>;
  job<exact> run;
  run.ranks = 3;
  run.steps = 1;
  auto const x = run.run();
  flat const a = run.gradient_at(0, 1, 100), b = run.gradient_at(1, 1, 100), c = run.gradient_at(2, 1, 100);
  flat expected(100);
  for (std::size_t k = 0; k < 100; ++k) expected[k] = ((a[k] + b[k]) + c[k]) / 3.0f;
  for (flat const& each : x) CHECK(same_bits(each, expected));
}

}  // namespace
