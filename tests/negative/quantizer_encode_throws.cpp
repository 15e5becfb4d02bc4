// SPDX-License-Identifier: Apache-2.0
// A quantizer whose encode() may throw in the middle of a loop.
// expect: satisf(y|action of) .(zoadam::)?encodes
#include "zoadam/aliases.hpp"

struct throwing : zoadam::identity_quantizer {
#if defined(ZOADAM_NEGATIVE_CONTROL)
  template <class Lane>
  static void encode(float const*, zoadam::index, float, std::byte*) noexcept {}
#else
  template <class Lane>
  static void encode(float const*, zoadam::index, float, std::byte*) {}
#endif
};

using wrong = zoadam::optimizer<throwing, zoadam::every_step, zoadam::adam_state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
