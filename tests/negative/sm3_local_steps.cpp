// SPDX-License-Identifier: Apache-2.0
// SM3 with local steps.
// expect: zoadam: this state needs the mean gradient of every step
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using schedule = zoadam::every_step;
#else
using schedule = zoadam::local_steps;
#endif

using wrong = zoadam::optimizer<zoadam::identity_quantizer, schedule, zoadam::sm3_state<>, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
