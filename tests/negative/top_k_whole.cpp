// SPDX-License-Identifier: Apache-2.0
// The largest elements of no block.
// expect: zoadam: top_k_quantizer picks from blocks: use block<N> with N <= 65536
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using groups = zoadam::block<256>;
#else
using groups = zoadam::whole;
#endif

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::top_k_quantizer<groups, 4>>, zoadam::fixed_interval,
                                zoadam::outer_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
