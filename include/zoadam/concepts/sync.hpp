// SPDX-License-Identifier: Apache-2.0
// What a sync policy is: a pure function of the step and of numbers in the checkpoint.
#pragma once

#include <concepts>

#include "zoadam/concepts/policy.hpp"

namespace zoadam {

inline constexpr index never = index{1} << 62;

/// All schedule state; equal on every rank and checkpointed whole. `last` and `count` belong to the stage that asks.
struct clock {
  index step = 0;           ///< the present step, 1, 2, ...
  index last = 0;           ///< the stage's last due step, 0 before the first
  index count = 0;          ///< how many times the stage was due
  double lr = 0;            ///< learning rate of the present step
  double peak = 0;          ///< largest learning rate so far
  index origin = 0;         ///< the variance schedule counts from here (reopen_variance)
  index frozen_at = never;  ///< last step before the state froze; a finite number once it is known
  double statistic = 0;     ///< last value of the composition's reduction

  constexpr void advance(double rate) noexcept {
    step += 1;
    lr = rate;
    if (rate > peak) peak = rate;
  }
};

template <class Sync>
concept tells_due = requires(Sync const s, clock const& c) {
  { s.due(c) }
  noexcept->std::same_as<bool>;
};

template <class Sync>
concept sync = policy<Sync> && tells_due<Sync>;

}  // namespace zoadam
