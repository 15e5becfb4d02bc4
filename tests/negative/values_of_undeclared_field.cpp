// SPDX-License-Identifier: Apache-2.0
// Observing a field that the composition does not have.
// expect: contains<.*at::anchor_t.*evaluated to .*false
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using composition = zoadam::zero_one_adam<>;
#else
using composition = zoadam::adam<>;
#endif

auto anchor(composition const& optimizer) { return optimizer.values(zoadam::at::anchor); }

int main() {}
