// SPDX-License-Identifier: Apache-2.0
// Adafactor in shards.
// expect: may have several owners, none of which could compute its
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using inner = zoadam::adam_state;
#else
using inner = zoadam::adafactor_state<>;
#endif

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, zoadam::zero_shard<inner>,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
