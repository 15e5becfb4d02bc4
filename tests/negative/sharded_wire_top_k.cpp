// SPDX-License-Identifier: Apache-2.0
// Parameters that are gathered must arrive, all of them.
// expect: zoadam: what travels beside another exchange, or within a node, must have neither scales nor blocks
#include "zoadam/aliases.hpp"
#include "zoadam/sharded.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using wire = zoadam::cast_quantizer<zoadam::bfloat16>;
#else
using wire = zoadam::top_k_quantizer<>;
#endif

using wrong = zoadam::sharded<zoadam::lone_adam<>, zoadam::single_transport, zoadam::residence::always,
                              zoadam::identity_quantizer, wire>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
