// SPDX-License-Identifier: Apache-2.0
// Variance rounds that cannot say zero would take every element for one that has had a gradient.
// expect: zoadam: a variance round of ef_momentum_state by a quantizer that cannot say zero
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using rounds = zoadam::identity_quantizer;
#else
using rounds = zoadam::sign_quantizer<>;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, zoadam::every_step,
                                zoadam::ef_momentum_state<rounds>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
