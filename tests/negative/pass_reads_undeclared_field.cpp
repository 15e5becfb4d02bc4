// SPDX-License-Identifier: Apache-2.0
// A pass over a field that no state declares.
// expect: zoadam: a pass uses a field that the state does not declare in its fields
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using other_field = zoadam::at::variance_t;
#else
using other_field = zoadam::at::anchor_t;
#endif

struct forgetful_pass {
  using reads = zoadam::tags<zoadam::at::momentum_t, other_field>;
  using writes = zoadam::tags<zoadam::at::momentum_t>;
  template <class Registers, class Coefficients>
  static void run(Registers& r, Coefficients const&) noexcept {
    r[zoadam::at::momentum] = r[zoadam::at::momentum] + r[other_field{}];
  }
};

struct forgetful_state {
  using fields = zoadam::fields<zoadam::field<zoadam::at::momentum_t, zoadam::home::replica>,
                                zoadam::field<zoadam::at::variance_t, zoadam::home::replica>>;
  using agreed = zoadam::at::parameter_t;
  void start(zoadam::clock&) const noexcept {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync when) const {
    return std::tuple(zoadam::exchange<zoadam::momentum_average<>, Sync, Quantizer>{when},
                      zoadam::pass<forgetful_pass>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("forgetful");
  }
};

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, zoadam::every_step, forgetful_state,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
