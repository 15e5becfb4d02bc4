// SPDX-License-Identifier: Apache-2.0
// A policy that cannot say what it is, so that ranks could not compare it.
// expect: satisf(y|action of) .(zoadam::)?describes_itself
#include "zoadam/aliases.hpp"

struct nameless_sync {
  bool due(zoadam::clock const&) const noexcept { return true; }
#if defined(ZOADAM_NEGATIVE_CONTROL)
  template <class Sink>
  void describe(Sink& sink) const {
    sink("named");
  }
#endif
};

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, nameless_sync,
                                zoadam::frozen_variance_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
