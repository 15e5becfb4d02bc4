// SPDX-License-Identifier: Apache-2.0
// Local SGD over a quantizer that cannot say zero.
// expect: zoadam: in this state nothing says which elements a sign would move for no reason
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::identity_quantizer;
#else
using quantizer = zoadam::error_feedback<zoadam::sign_quantizer<>>;
#endif

using wrong = zoadam::optimizer<quantizer, zoadam::fixed_interval, zoadam::local_sgd_state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
