// SPDX-License-Identifier: Apache-2.0
// Outer steps over a quantizer that cannot say zero.
// expect: zoadam: outer_state has no variance that all workers share
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::identity_quantizer;
#else
using quantizer = zoadam::error_feedback<zoadam::sign_quantizer<>>;
#endif

using wrong = zoadam::optimizer<quantizer, zoadam::fixed_interval, zoadam::outer_state<>, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
