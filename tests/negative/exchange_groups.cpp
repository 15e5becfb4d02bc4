// SPDX-License-Identifier: Apache-2.0
// One cut serves both phases of an exchange.
// expect: zoadam: the two quantizers of an exchange must group elements alike, since one cut serves both phases
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using down = zoadam::sign_quantizer<>;
#else
using down = zoadam::sign_quantizer<zoadam::whole>;
#endif

using wrong = zoadam::exchange<zoadam::displacement<>, zoadam::every_step, zoadam::sign_quantizer<>, down>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
