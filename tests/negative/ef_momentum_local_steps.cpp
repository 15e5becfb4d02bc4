// SPDX-License-Identifier: Apache-2.0
// Compressed gradients with local steps.
// expect: zoadam: ef_momentum_state exchanges gradients at every step; use frozen_variance_state
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using policy = zoadam::every_step;
#else
using policy = zoadam::local_steps;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, policy, zoadam::ef_momentum_state<>,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
