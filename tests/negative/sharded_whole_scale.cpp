// SPDX-License-Identifier: Apache-2.0
// One scale for the whole buffer cannot be had from a shard of it.
// expect: zoadam: sharded: a group of the optimizer's quantizer would reach over several shards; use block scales
#include "zoadam/aliases.hpp"
#include "zoadam/sharded.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using across = zoadam::zero_one_adam<>;
#else
using across = zoadam::zero_one_adam_paper<>;
#endif

using wrong = zoadam::sharded<across, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
