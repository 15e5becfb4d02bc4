// SPDX-License-Identifier: Apache-2.0
// 1-bit LAMB against the plain reference.
#include "zoadam/state/onebit_lamb.hpp"

#include "suite/layerwise.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using composition = onebit_lamb<thread_transport>;
using by_tensor = threaded<sign_with_feedback<per_tensor, l2>, every_step, onebit_lamb_state>;

TEST_CASE_TEMPLATE("onebit_lamb: before, at and after the freeze", Optimizer, composition, by_tensor) {
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

TEST_CASE("onebit_lamb: the reference") {
  check_layerwise<composition>([](missing_workers const& bad) { return expect_lamb(bad); });
}
TEST_CASE("onebit_lamb: large gradients") { check_largest_gradients<composition>(); }
TEST_CASE("onebit_lamb: 16-bit gradients, threads") { check_half_gradients_and_threads<composition>(); }

TEST_CASE("onebit_lamb: other ratios") {
  job<composition> run;
  run.ranks = 2;
  run.sizes = {40, 90};
  run.settings.state = {{4}, {0.5, 2, 0.5, 0.9, 1.5, 0.25}};
  compare_with_reference(run, expect_lamb());
}

TEST_CASE("onebit_lamb: momenta of tensors travel at one size") {
  job<composition> run;
  run.sizes = {64, 0, 128, 16};
  run.settings.state.freeze.step = 3;
  run.steps = 3;
  run.adjust = [](int, flat& g) {
    for (std::size_t k = 0; k < 64; ++k) g[k] *= 1000;
    for (std::size_t k = 192; k < 208; ++k) g[k] = 0;
  };
  run.at_end = [](composition& o, buffers&) {
    auto const m = o.values(at::momentum), scale = o.values(at::momentum_scale);
    auto const size = [&](std::size_t first, std::size_t last) {
      double sum = 0;
      for (std::size_t k = first; k < last; ++k) sum += double(m[k]) * double(m[k]);
      return std::sqrt(sum / double(last - first));
    };
    double const mean = (size(0, 64) + size(64, 192)) / 3;  // of three tensors, one of them zero
    CHECK(double(scale[0]) * size(0, 64) == doctest::Approx(mean).epsilon(1e-6));
    CHECK(double(scale[2]) * size(64, 192) == doctest::Approx(mean).epsilon(1e-6));
    CHECK(scale[1] == 1);
    CHECK(scale[3] == 1);
  };
  (void)run.run();
}

TEST_CASE("onebit_lamb: settings") {
  CHECK(onebit_lamb_state{}.defect() != nullptr);  // a freeze step must be set
  CHECK(onebit_lamb_state{{1}, {}}.defect() == nullptr);
  for (onebit_lamb_ratios const& wrong :
       {onebit_lamb_ratios{-1}, onebit_lamb_ratios{1, 0.5}, onebit_lamb_ratios{0.01, 10, 1},
        onebit_lamb_ratios{0.01, 10, 0.9, 0}, onebit_lamb_ratios{0.01, 10, 0.9, 0.5, 0.4},
        onebit_lamb_ratios{0.01, 10, 0.9, 0.5, 4, 1}}) {
    CHECK(onebit_lamb_state{{1}, wrong}.defect() != nullptr);
  }
}

}  // namespace
