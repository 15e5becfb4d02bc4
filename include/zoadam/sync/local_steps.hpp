// SPDX-License-Identifier: Apache-2.0
// Local steps between exchanges.
#pragma once

#include "zoadam/concepts/sync.hpp"

namespace zoadam {

/// Every `interval` steps once past step `start`; before that at every step.
struct fixed_interval {
  index interval = 4;
  index start = 0;

  constexpr bool due(clock const& c) const noexcept { return c.step - c.last >= (c.step > start ? interval : 1); }
  constexpr char const* defect() const noexcept {
    return interval < 1 ? "interval must be >= 1" : start < 0 ? "start must be >= 0" : nullptr;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("fixed_interval", interval, start);
  }
};
static_assert(sync<fixed_interval>);

/// Interval 1 up to step `start`, after it min(longest, 2^floor((t - start - 1) / period)).
///
/// Source: 0/1 Adam, the schedule T_u of its experiments.
struct local_steps {
  index start = 0;
  index period = 512;
  index longest = 16;

  constexpr index interval(index step) const noexcept {
    if (step <= start) return 1;
    index const doublings = (step - start - 1) / period;
    return doublings >= 62 || (index{1} << doublings) > longest ? longest : index{1} << doublings;
  }
  constexpr bool due(clock const& c) const noexcept { return c.step - c.last >= interval(c.step); }
  constexpr char const* defect() const noexcept {
    return start < 0     ? "start must be >= 0"
           : period < 1  ? "period must be >= 1"
           : longest < 1 ? "longest must be >= 1"
                         : nullptr;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("local_steps", start, period, longest);
  }
};
static_assert(sync<local_steps>);

/// After step `start` the interval is min(longest, the largest 2^k with 2^k lr <= peak lr): it doubles each time the
/// learning rate halves. Before that 1.
///
/// Source: 0/1 Adam, the principle behind its T_u.
struct learning_rate_interval {
  index start = 0;
  index longest = 16;

  constexpr index interval(clock const& c) const noexcept {
    if (c.step <= start) return 1;
    index n = 1;
    // Powers of two scale exactly, so that ranks and compilers agree on the comparison.
    for (double lr = c.lr; n < longest && 2 * lr <= c.peak; lr = 2 * lr) n *= 2;
    return n < longest ? n : longest;
  }
  constexpr bool due(clock const& c) const noexcept { return c.step - c.last >= interval(c); }
  constexpr char const* defect() const noexcept {
    return start < 0                         ? "start must be >= 0"
           : longest < 1 || longest >= never ? "longest must be in [1, never)"
                                             : nullptr;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("learning_rate_interval", start, longest);
  }
};
static_assert(sync<learning_rate_interval>);

}  // namespace zoadam
