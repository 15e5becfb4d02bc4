// SPDX-License-Identifier: Apache-2.0
// A quantizer that sends scales and does not say how they are computed.
// expect: satisf(y|action of) .(zoadam::)?says_scale
#include "zoadam/aliases.hpp"

struct scaled : zoadam::identity_quantizer {
  static constexpr bool has_scale = true;
#if defined(ZOADAM_NEGATIVE_CONTROL)
  using norm = zoadam::l1;
#endif
};

using wrong =
    zoadam::optimizer<scaled, zoadam::every_step, zoadam::adam_state, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
