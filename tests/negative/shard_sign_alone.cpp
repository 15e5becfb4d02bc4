// SPDX-License-Identifier: Apache-2.0
// Without errors there is no place for the marks of active elements.
// expect: zoadam: zero_shard<onebit_adam_state> needs error_feedback, where it marks active elements
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::error_feedback<zoadam::sign_quantizer<>>;
#else
using quantizer = zoadam::sign_quantizer<>;
#endif

using wrong = zoadam::optimizer<quantizer, zoadam::every_step, zoadam::zero_shard<zoadam::onebit_adam_state<>>,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
