// SPDX-License-Identifier: Apache-2.0
// An exchange at every step, against the reference.
#include "zoadam/sync/every_step.hpp"

#include <doctest/doctest.h>

#include "reference/reference.hpp"

TEST_CASE("every step is due") {
  zoadam::every_step const sync;
  for (zoadam::index step = 1; step < 100; ++step) {
    zoadam::clock c;
    c.step = step;
    c.last = step / 2;
    CHECK(sync.due(c) == reference::every_step{}.due(step, step / 2));
  }
}
