// SPDX-License-Identifier: Apache-2.0
// An exchange at every step.
#pragma once

#include "zoadam/concepts/sync.hpp"

namespace zoadam {

struct every_step {
  constexpr bool due(clock const&) const noexcept { return true; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("every_step");
  }
};
static_assert(sync<every_step>);

}  // namespace zoadam
