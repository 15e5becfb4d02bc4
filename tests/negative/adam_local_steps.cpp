// SPDX-License-Identifier: Apache-2.0
// Adam needs the mean gradient of every step.
// expect: zoadam: adam_state needs the mean gradient of every step; use local_adam_state for local steps
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using schedule = zoadam::every_step;
#else
using schedule = zoadam::local_steps;
#endif

using wrong = zoadam::optimizer<zoadam::identity_quantizer, schedule, zoadam::adam_state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
