// SPDX-License-Identifier: Apache-2.0
// LARS against optax and the plain reference.
#include "zoadam/state/lars.hpp"

#include "suite/layerwise.hpp"

namespace {

using namespace zoadam;
using namespace suite;

using composition = lars<thread_transport>;

TEST_CASE("lars: optax, with and without weight decay") {
  for (int const decay : {0, 1}) {
    CAPTURE(decay);
    compare_with_peer<composition>("lars", decay);
  }
}

TEST_CASE("lars: the reference") {
  check_layerwise<composition>([](missing_workers const& bad) { return expect_lars(bad); });
}
TEST_CASE("lars: large gradients") { check_largest_gradients<composition>(); }
TEST_CASE("lars: 16-bit gradients, threads") { check_half_gradients_and_threads<composition>(); }

TEST_CASE("lars: the trust coefficient") {
  CHECK(lars_state{}.defect() == nullptr);
  CHECK(lars_state{0}.defect() != nullptr);
  CHECK(lars_state{std::numeric_limits<double>::infinity()}.defect() != nullptr);
}

}  // namespace
