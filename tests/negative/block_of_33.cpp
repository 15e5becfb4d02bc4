// SPDX-License-Identifier: Apache-2.0
// Blocks hold whole words of signs.
// expect: zoadam: block<N>: N must be a positive multiple of 32
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using groups = zoadam::block<64>;
#else
using groups = zoadam::block<33>;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<groups>>, zoadam::local_steps,
                                zoadam::frozen_variance_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
