// SPDX-License-Identifier: Apache-2.0
// Why a flat shard takes no local steps: a pass has no value that only owners keep.
// expect: zoadam: a pass runs on every worker and cannot use a field that only the owner of a chunk has
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using home_of_error = zoadam::at::variance_t;
#else
using home_of_error = zoadam::at::owner_error_t<zoadam::momentum_average<>>;
#endif

struct leaking_pass {
  using reads = zoadam::tags<zoadam::at::momentum_t, home_of_error>;
  using writes = zoadam::tags<zoadam::at::momentum_t>;
  template <class Registers, class Coefficients>
  static void run(Registers& r, Coefficients const&) noexcept {
    r[zoadam::at::momentum] = r[zoadam::at::momentum] + r[home_of_error{}];
  }
};

struct leaking_state {
  using fields = zoadam::fields<zoadam::field<zoadam::at::momentum_t, zoadam::home::replica>,
                                zoadam::field<zoadam::at::variance_t, zoadam::home::replica>>;
  using agreed = zoadam::at::parameter_t;
  void start(zoadam::clock&) const noexcept {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync when) const {
    return std::tuple(zoadam::exchange<zoadam::momentum_average<>, Sync, Quantizer>{when},
                      zoadam::pass<leaking_pass>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("leaking");
  }
};

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, zoadam::every_step, leaking_state,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
