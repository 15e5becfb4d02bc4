// SPDX-License-Identifier: Apache-2.0
// Owner fields follow one cut.
// expect: zoadam: a state with owner fields needs exchanges that cut elements into the same chunks
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using exact = zoadam::regrouped<zoadam::identity_quantizer, zoadam::block<>>;
#else
using exact = zoadam::identity_quantizer;
#endif

struct two_cuts : zoadam::zero_shard<zoadam::onebit_adam_state<>> {
  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    return std::tuple(zoadam::exchange<zoadam::exact_shard_direction, zoadam::before_freeze, exact>{},
                      zoadam::exchange<zoadam::shard_direction, zoadam::after_freeze, Quantizer>{});
  }
};

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, zoadam::every_step, two_cuts,
                                zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
