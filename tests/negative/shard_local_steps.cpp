// SPDX-License-Identifier: Apache-2.0
// Local steps need the moments of every element on every worker.
// expect: zoadam: a flat shard cannot take local steps: a worker has the moments of its own chunk alone
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using when = zoadam::every_step;
#else
using when = zoadam::local_steps;
#endif

using wrong =
    zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, when,
                      zoadam::zero_shard<zoadam::onebit_adam_state<>>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
