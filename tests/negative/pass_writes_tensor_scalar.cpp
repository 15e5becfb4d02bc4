// SPDX-License-Identifier: Apache-2.0
// A pass that sets a value which a tensor has once.
// expect: zoadam: a pass sets values of elements; the scalars of a tensor are set by a tensor_reduction
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using target = zoadam::at::parameter_t;
#else
using target = zoadam::at::trust_ratio_t;
#endif

struct setting_pass {
  using reads = zoadam::tags<zoadam::at::parameter_t>;
  using writes = zoadam::tags<target>;
  template <class Registers, class Coefficients>
  static void run(Registers& r, Coefficients const&) noexcept {
    r[target{}] = r[zoadam::at::parameter];
  }
};

struct setting_state {
  using fields = zoadam::fields<zoadam::tensor_field<zoadam::at::trust_ratio_t>>;
  using agreed = zoadam::at::parameter_t;
  void start(zoadam::clock&) const noexcept {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync) const {
    return std::tuple(zoadam::pass<setting_pass>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("setting");
  }
};

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, setting_state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
