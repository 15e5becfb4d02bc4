// SPDX-License-Identifier: Apache-2.0
// A state of two exchanges, of which the second needs what the owner alone has.
// expect: zoadam: zero_shard needs a state that is one exchange and the passes after it
#include "zoadam/aliases.hpp"
#include "zoadam/state/published.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using state = zoadam::adam_state;
#else
using state = zoadam::published_onebit_adam_state;
#endif

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, zoadam::zero_shard<state>,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
