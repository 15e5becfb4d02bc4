// SPDX-License-Identifier: Apache-2.0
// LAMB against optax.
#include "zoadam/state/lamb.hpp"

#include "suite/layerwise.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

TEST_CASE("lamb: optax, with and without weight decay") {
  for (int const decay : {0, 1}) {
    CAPTURE(decay);
    compare_with_peer<threaded<identity_quantizer, every_step, lamb_state>>("lamb", decay);
  }
}

}  // namespace
