// SPDX-License-Identifier: Apache-2.0
// A sync policy whose due() says a number.
// expect: satisf(y|action of) .(zoadam::)?tells_due
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using answer = bool;
#else
using answer = int;
#endif

struct counting_sync {
  answer due(zoadam::clock const&) const noexcept { return 1; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("counting");
  }
};

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, counting_sync,
                                zoadam::frozen_variance_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
