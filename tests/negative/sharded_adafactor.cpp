// SPDX-License-Identifier: Apache-2.0
// The slices of a tensor cannot be had from shards of it.
// expect: zoadam: sharded: a shard holds parts of tensors, and the optimizer needs sums over whole ones
#include "zoadam/aliases.hpp"
#include "zoadam/sharded.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using across = zoadam::adam<>;
#else
using across = zoadam::adafactor<>;
#endif

using wrong = zoadam::sharded<across, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
