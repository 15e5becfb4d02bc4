// SPDX-License-Identifier: Apache-2.0
// Errors that grow by themselves.
// expect: zoadam: error_feedback: the decay of errors must be a std::ratio above 0 and at most 1
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using decay = std::ratio<19, 20>;
#else
using decay = std::ratio<20, 19>;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>, decay>, zoadam::local_steps,
                                zoadam::frozen_variance_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
