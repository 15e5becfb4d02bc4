// SPDX-License-Identifier: Apache-2.0
// A state whose values differ between workers has nobody to own them.
// expect: zoadam: zero_shard: a value that each worker has for itself has no owner
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using state = zoadam::adam_state;
using when = zoadam::every_step;
#else
using state = zoadam::local_adam_state;
using when = zoadam::fixed_interval;
#endif

using wrong = zoadam::optimizer<zoadam::identity_quantizer, when, zoadam::zero_shard<state>, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
