// SPDX-License-Identifier: Apache-2.0
// LARS over a quantizer that cannot say zero.
// expect: zoadam: lars_state exchanges gradients, and a quantizer that cannot say zero moves parameters
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::identity_quantizer;
#else
using quantizer = zoadam::error_feedback<zoadam::sign_quantizer<>>;
#endif

using wrong = zoadam::optimizer<quantizer, zoadam::every_step, zoadam::lars_state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
