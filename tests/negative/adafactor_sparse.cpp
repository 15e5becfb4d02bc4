// SPDX-License-Identifier: Apache-2.0
// Adafactor over a sparse quantizer.
// expect: zoadam: sums over slices read single elements of a message, which a sparse one does not give
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using quantizer = zoadam::identity_quantizer;
#else
using quantizer = zoadam::error_feedback<zoadam::top_k_quantizer<>>;
#endif

using wrong = zoadam::optimizer<quantizer, zoadam::every_step, zoadam::adafactor_state<>, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
