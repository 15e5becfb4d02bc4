// SPDX-License-Identifier: Apache-2.0
// 1-bit LAMB with local steps.
// expect: zoadam: onebit_lamb_state exchanges at every step
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using schedule = zoadam::every_step;
#else
using schedule = zoadam::local_steps;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, schedule, zoadam::onebit_lamb_state,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
