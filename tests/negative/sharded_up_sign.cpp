// SPDX-License-Identifier: Apache-2.0
// Within a node gradients are not compressed to signs.
// expect: zoadam: what travels beside another exchange, or within a node, must have neither scales nor blocks
#include "zoadam/aliases.hpp"
#include "zoadam/sharded.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using up = zoadam::cast_quantizer<zoadam::bfloat16>;
#else
using up = zoadam::sign_quantizer<>;
#endif

using wrong = zoadam::sharded<zoadam::lone_adam<>, zoadam::single_transport, zoadam::residence::always, up>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
