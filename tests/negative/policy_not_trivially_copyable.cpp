// SPDX-License-Identifier: Apache-2.0
// A policy is a small value, not an owner of memory.
// expect: satisf(y|action of) .(zoadam::)?policy
#include "zoadam/aliases.hpp"
#include <vector>

#if defined(ZOADAM_NEGATIVE_CONTROL)
using steps = zoadam::index;
#else
using steps = std::vector<zoadam::index>;
#endif

struct listed_sync : zoadam::every_step {
  steps list;
};

using wrong = zoadam::optimizer<zoadam::error_feedback<zoadam::sign_quantizer<>>, listed_sync,
                                zoadam::frozen_variance_state<>, zoadam::cpu_backend, zoadam::single_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
