// SPDX-License-Identifier: Apache-2.0
// LAMB against optax and the plain reference.
#include "zoadam/state/lamb.hpp"

#include "suite/layerwise.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using composition = lamb<thread_transport>;

TEST_CASE("lamb: optax, with and without weight decay") {
  for (int const decay : {0, 1}) {
    CAPTURE(decay);
    compare_with_peer<composition>("lamb", decay);
  }
}

TEST_CASE("lamb: the reference") {
  check_layerwise<composition>([](missing_workers const& bad) { return expect_lamb(bad); });
}
TEST_CASE("lamb: large gradients") { check_largest_gradients<composition>(); }
TEST_CASE("lamb: 16-bit gradients, threads") { check_half_gradients_and_threads<composition>(); }

TEST_CASE("lamb: limits of the ratio, which a zero norm does not know") {
  job<composition> run;
  run.sizes = {60, 40, 30};
  run.start = [](std::size_t k) { return k < 60 ? 10.0f : k < 100 ? 1e-4f : 0.0f; };
  run.settings.state = {0.25, 2.0};
  run.steps = 1;
  run.at_end = [&](composition& o, buffers&) {
    CHECK(copy_of(o.values(at::trust_ratio)) == flat{2.0f, 0.25f, 1.0f});
  };
  (void)run.run();
  run.steps = 10;
  run.at_end = {};
  compare_with_reference(run, expect_lamb());

  CHECK(lamb_state{}.defect() == nullptr);
  CHECK(lamb_state{0.5, 0.5}.defect() == nullptr);
  CHECK(lamb_state{-1, 0}.defect() != nullptr);
  CHECK(lamb_state{1, 0.5}.defect() != nullptr);
  CHECK(lamb_state{0, std::numeric_limits<double>::infinity()}.defect() != nullptr);
}

TEST_CASE("lamb: the step of a tensor is as long as the tensor, times the learning rate") {
  job<composition> run;
  run.sizes = {300};
  run.steps = 1;
  run.rate = [](int) { return 0.125; };
  auto const x = run.run();
  double before = 0, step = 0;
  for (std::size_t k = 0; k < 300; ++k) {
    double const from = double(run.start(k));
    before += from * from;
    step += (double(x[0][k]) - from) * (double(x[0][k]) - from);
  }
  CHECK(std::sqrt(step / before) == doctest::Approx(0.125).epsilon(1e-5));
}

TEST_CASE("lamb: the hash of replicas tells a bit of a trust ratio") {
  job<composition> run;
  run.sizes = {5, 6};
  run.at_end = [](composition& o, buffers&) {
    auto const ratios = o.values(at::trust_ratio);
    auto const before = o.replica_hash();
    auto& last = const_cast<float&>(ratios[1]);
    last = std::nextafter(last, 100.0f);
    CHECK(o.replica_hash() != before);
  };
  (void)run.run();
}

}  // namespace
