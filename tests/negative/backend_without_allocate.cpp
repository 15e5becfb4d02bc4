// SPDX-License-Identifier: Apache-2.0
// A backend brings the memory.
// expect: satisf(y|action of) .(zoadam::)?allocates
#include "zoadam/aliases.hpp"

struct homeless_backend {
  using memory = zoadam::cpu_backend::memory;
#if defined(ZOADAM_NEGATIVE_CONTROL)
  memory allocate(zoadam::index bytes) { return memory(bytes); }
#endif
  void reserve(zoadam::index) {}
  zoadam::index workspace_bytes() const noexcept { return 0; }
};

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, zoadam::adam_state, homeless_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
