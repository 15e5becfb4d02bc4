// SPDX-License-Identifier: Apache-2.0
// The schedule of variance updates, against the reference and at its limits.
#include "zoadam/sync/doubling_interval.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "reference/reference.hpp"

namespace {

using zoadam::index;

// The due steps among [1, steps], as the optimizer runs a schedule.
std::vector<index> due_steps(zoadam::doubling_interval const& schedule, index steps, index origin = 0) {
  std::vector<index> result;
  zoadam::clock c;
  c.origin = origin;
  for (c.step = origin + 1; c.step <= origin + steps; ++c.step) {
    if (!schedule.due(c)) continue;
    result.push_back(c.step - origin);
    c.last = c.step;
    ++c.count;
  }
  return result;
}

}  // namespace

TEST_CASE("steps are those of the reference, for every small kappa and stop") {
  for (index kappa = 1; kappa <= 9; ++kappa) {
    for (index const stop : {index{0}, index{1}, index{2}, index{7}, index{64}, index{300}, zoadam::never}) {
      CAPTURE(kappa);
      CAPTURE(stop);
      reference::doubling_interval const expected{kappa, stop};
      std::vector<index> steps;
      for (index t = 1; t <= 400; ++t) {
        if (expected.due(t)) steps.push_back(t);
      }
      CHECK(due_steps({kappa, stop}, 400) == steps);
    }
  }
}

TEST_CASE("the first steps, written out") {
  CHECK(due_steps({2, zoadam::never}, 20) == std::vector<index>{1, 2, 3, 5, 7, 11, 15});
  CHECK(due_steps({1, zoadam::never}, 40) == std::vector<index>{1, 2, 4, 8, 16, 32});
}

TEST_CASE("stop may itself be due, and nothing is after it") {
  CHECK(due_steps({1, 8}, 100) == std::vector<index>{1, 2, 4, 8});
  CHECK(due_steps({1, 7}, 100) == std::vector<index>{1, 2, 4});
  CHECK(due_steps({8, 0}, 100).empty());
}

TEST_CASE("steps count from the origin") { CHECK(due_steps({3, 50}, 100, 1000) == due_steps({3, 50}, 100)); }

TEST_CASE("gaps saturate: no shift beyond the width of an index") {
  zoadam::doubling_interval const schedule{1, zoadam::never};
  zoadam::clock c;
  c.step = zoadam::never;
  c.last = 1;
  for (index const count : {index{62}, index{63}, index{64}, index{65}, index{1} << 40}) {
    c.count = count;
    CHECK(schedule.due(c) == (count == 62));  // the gap after update 61 is 2^61, the next ones are never over
  }
}

TEST_CASE("numbers out of range are refused") {
  CHECK(zoadam::doubling_interval{}.defect() == nullptr);
  CHECK(zoadam::doubling_interval{0, 1}.defect() != nullptr);
  CHECK(zoadam::doubling_interval{1, -1}.defect() != nullptr);
}
