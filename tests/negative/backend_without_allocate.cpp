// SPDX-License-Identifier: Apache-2.0
// A backend brings the memory.
// expect: satisf(y|action of) .(zoadam::)?allocates
#include "zoadam/aliases.hpp"

struct homeless_backend : zoadam::cpu_backend {
#if !defined(ZOADAM_NEGATIVE_CONTROL)
 private:
  using zoadam::cpu_backend::allocate;
#endif
};

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, zoadam::adam_state, homeless_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
