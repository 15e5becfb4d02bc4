// SPDX-License-Identifier: Apache-2.0
// SGD on the mean gradient with local steps.
// expect: zoadam: this state needs the mean gradient of every step; for local steps use local_sgd_state
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using state = zoadam::local_sgd_state;
#else
using state = zoadam::sgd_state;
#endif

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::fixed_interval, state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
