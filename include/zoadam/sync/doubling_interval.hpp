// SPDX-License-Identifier: Apache-2.0
// When the variance is updated.
#pragma once

#include "zoadam/concepts/sync.hpp"

namespace zoadam {

/// Due at step 1; the gap after the j-th update (j = 0, 1, ...) is 2^floor(j / kappa); never after step `stop`, which
/// may itself be due. Steps count from the last reopen_variance().
///
/// Source: 0/1 Adam, T_v. Published: kappa = 16, stop at the end of warm-up.
struct doubling_interval {
  index kappa = 8;
  index stop = never;

  constexpr bool due(clock const& c) const noexcept {
    if (c.step - c.origin > stop) return false;
    if (c.count == 0) return true;
    index const doublings = (c.count - 1) / kappa;
    return doublings < 62 && c.step - c.last >= (index{1} << doublings);
  }
  constexpr char const* defect() const noexcept {
    return kappa < 1 ? "kappa must be >= 1" : stop < 0 ? "stop must be >= 0" : nullptr;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("doubling_interval", kappa, stop);
  }
};
static_assert(sync<doubling_interval>);

}  // namespace zoadam
