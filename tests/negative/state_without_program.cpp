// SPDX-License-Identifier: Apache-2.0
// A state is a program.
// expect: (satisfaction of .has_program<|because .has_program<)
#include "zoadam/aliases.hpp"

struct idle_state {
  using fields = zoadam::fields<>;
  using agreed = zoadam::at::parameter_t;
  void start(zoadam::clock&) const noexcept {}
#if defined(ZOADAM_NEGATIVE_CONTROL)
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync) const {
    return std::tuple<>{};
  }
#endif
  template <class Sink>
  void describe(Sink& sink) const {
    sink("idle");
  }
};

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, idle_state, zoadam::cpu_backend,
                                zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
