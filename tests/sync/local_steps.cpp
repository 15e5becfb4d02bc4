// SPDX-License-Identifier: Apache-2.0
// Local steps between exchanges, against the reference and at their limits.
#include "zoadam/sync/local_steps.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "reference/reference.hpp"

namespace {

using zoadam::index;

constexpr index longest_index = index{1} << 61;

}  // namespace

TEST_CASE("local_steps: intervals and steps of the reference, exhaustively for small numbers") {
  for (index start = 0; start <= 5; ++start) {
    for (index period = 1; period <= 7; ++period) {
      for (index longest = 1; longest <= 17; ++longest) {
        zoadam::local_steps const sync{start, period, longest};
        reference::local_steps const expected{start, period, longest};
        zoadam::clock c;
        bool equal = true;
        for (c.step = 1; c.step <= 120; ++c.step) {
          equal = equal && sync.interval(c.step) == expected.interval(c.step);
          equal = equal && sync.due(c) == expected.due(c.step, c.last);
          if (expected.due(c.step, c.last)) c.last = c.step;
        }
        CAPTURE(start);
        CAPTURE(period);
        CAPTURE(longest);
        CHECK(equal);
      }
    }
  }
}

TEST_CASE("local_steps: the interval saturates at the longest") {
  for (index const step : {index{61}, index{62}, index{63}, index{64}, index{65}, index{200}, longest_index}) {
    CHECK(zoadam::local_steps{0, 1, 16}.interval(step) == 16);
    CHECK(zoadam::local_steps{0, 1, longest_index}.interval(step) <= longest_index);
  }
  CHECK(zoadam::local_steps{0, 1, longest_index}.interval(62) == longest_index);
  CHECK(zoadam::local_steps{0, 1, longest_index}.interval(61) == longest_index / 2);
}

TEST_CASE("local_steps: every step up to the start") {
  zoadam::local_steps const sync{10, 2, 8};
  for (index step = 1; step <= 10; ++step) CHECK(sync.interval(step) == 1);
  CHECK(sync.interval(11) == 1);
  CHECK(sync.interval(13) == 2);
  CHECK(sync.interval(15) == 4);
  CHECK(sync.interval(17) == 8);
  CHECK(sync.interval(19) == 8);
}

TEST_CASE("learning_rate_interval: steps of the reference") {
  std::vector<double> const rates{1.0, 0.75, 0.5, 0.500001, 0.25, 0.3, 0.1249, 0.125, 0.06, 0.01, 1e-9, 0.0};
  for (index start = 0; start <= 3; ++start) {
    for (index const longest : {index{1}, index{2}, index{3}, index{8}, index{16}, index{1} << 40}) {
      zoadam::learning_rate_interval const sync{start, longest};
      reference::learning_rate_interval const expected{start, 1.0, longest};
      zoadam::clock c;
      c.peak = 1.0;
      for (c.step = 1; c.step <= 96; ++c.step) {
        c.lr = rates[static_cast<std::size_t>(c.step / 8) % rates.size()];
        CAPTURE(c.step);
        CAPTURE(longest);
        CHECK(sync.interval(c) == expected.interval(c.step, c.lr));
        CHECK(sync.due(c) == expected.due(c.step, c.last, c.lr));
        if (sync.due(c)) c.last = c.step;
      }
    }
  }
}

TEST_CASE("learning_rate_interval: doubles exactly where the learning rate has halved") {
  zoadam::learning_rate_interval const sync{0, 16};
  zoadam::clock c;
  c.step = 100;
  c.peak = 0.3;
  c.lr = 0.15;
  CHECK(sync.interval(c) == 2);
  c.lr = 0.15000000000000002;
  CHECK(sync.interval(c) == 1);
  c.lr = 0.0;
  CHECK(sync.interval(c) == 16);
}

TEST_CASE("fixed_interval: every interval-th step past the start") {
  for (index start = 0; start <= 6; ++start) {
    for (index interval = 1; interval <= 6; ++interval) {
      zoadam::fixed_interval const sync{interval, start};
      zoadam::clock c;
      for (c.step = 1; c.step <= 60; ++c.step) {
        bool const expected = c.step <= start || (c.step - start) % interval == 0;
        CAPTURE(start);
        CAPTURE(interval);
        CAPTURE(c.step);
        CHECK(sync.due(c) == expected);
        if (sync.due(c)) c.last = c.step;
      }
    }
  }
}

TEST_CASE("numbers out of range are refused") {
  CHECK(zoadam::local_steps{}.defect() == nullptr);
  CHECK(zoadam::local_steps{-1, 1, 1}.defect() != nullptr);
  CHECK(zoadam::local_steps{0, 0, 1}.defect() != nullptr);
  CHECK(zoadam::local_steps{0, 1, 0}.defect() != nullptr);
  CHECK(zoadam::fixed_interval{}.defect() == nullptr);
  CHECK(zoadam::fixed_interval{0, 0}.defect() != nullptr);
  CHECK(zoadam::fixed_interval{1, -1}.defect() != nullptr);
  CHECK(zoadam::learning_rate_interval{}.defect() == nullptr);
  CHECK(zoadam::learning_rate_interval{-1, 1}.defect() != nullptr);
  CHECK(zoadam::learning_rate_interval{0, 0}.defect() != nullptr);
  CHECK(zoadam::learning_rate_interval{0, zoadam::never}.defect() != nullptr);
}
