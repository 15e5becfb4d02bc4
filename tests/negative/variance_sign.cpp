// SPDX-License-Identifier: Apache-2.0
// Variance rounds by a quantizer that cannot say zero.
// expect: zoadam: a variance round of frozen_variance_state by a quantizer that cannot say zero
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::cast_quantizer<zoadam::float16>;
#else
using quantizer = zoadam::error_feedback<zoadam::sign_quantizer<>>;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, zoadam::local_steps,
                                zoadam::frozen_variance_state<zoadam::displacement<>, quantizer>, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
