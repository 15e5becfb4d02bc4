// SPDX-License-Identifier: Apache-2.0
// A quantizer that only encodes.
// expect: satisf(y|action of) .(zoadam::)?decodes
#include "zoadam/aliases.hpp"

struct one_way : zoadam::identity_quantizer {
#if !defined(ZOADAM_NEGATIVE_CONTROL)
  template <class Lane>
  static void decode(std::byte const*) = delete;
#endif
};

using wrong =
    zoadam::optimizer<one_way, zoadam::every_step, zoadam::adam_state, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
