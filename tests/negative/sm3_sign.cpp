// SPDX-License-Identifier: Apache-2.0
// SM3 over a quantizer that cannot say zero.
// expect: zoadam: this state exchanges gradients, and the sign of a zero would raise its second moments
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::identity_quantizer;
#else
using quantizer = zoadam::error_feedback<zoadam::sign_quantizer<>>;
#endif

using wrong = zoadam::optimizer<quantizer, zoadam::every_step, zoadam::sm3_state<>, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
