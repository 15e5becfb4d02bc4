// SPDX-License-Identifier: Apache-2.0
// The published 0/1 Adam knows its own schedules only.
// expect: zoadam: published_zero_one_adam_state needs aligned_local_steps; use frozen_variance_state for others
#include "zoadam/aliases.hpp"
#include "zoadam/state/published.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using schedule = zoadam::aligned_local_steps;
#else
using schedule = zoadam::every_step;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, schedule,
                                zoadam::published_zero_one_adam_state, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
