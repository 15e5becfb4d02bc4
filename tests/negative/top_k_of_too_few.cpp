// SPDX-License-Identifier: Apache-2.0
// More elements than a block has.
// expect: zoadam: top_k_quantizer: K must be from 1 to the size of a block, at most 4096
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
constexpr int picked = 4;
#else
constexpr int picked = 65;
#endif

using wrong = zoadam::optimizer<zoadam::top_k_quantizer<zoadam::block<64>, picked>, zoadam::fixed_interval,
                                zoadam::outer_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
