// SPDX-License-Identifier: Apache-2.0
// The numbers that formulas use besides element values: per parameter group and step.
#pragma once

#include "zoadam/config.hpp"

namespace zoadam {

/// float64 on the host, rounded once to T = float; formulas see T = a lane type.
template <class T>
struct coefficients {
  T grad_scale;  ///< multiplies the gradient: accumulation, loss scaling, clipping
  T beta1;
  T one_minus_beta1;
  T beta2;  ///< where it rises: 1 - k^-decay_rate
  T one_minus_beta2;
  T own_beta1;            ///< for moments of this worker's own gradient: 1 where it has none, so that they stay
  T own_one_minus_beta1;  ///< 0 there
  T own_beta2;
  T own_one_minus_beta2;
  T correction1;     ///< 1 / (1 - beta1^k); 1 for k = 0
  T correction2;     ///< 1 / (1 - beta2^k); 1 for k = 0 or without bias correction
  T ahead_gradient;  ///< of a step that looks one update ahead, k at least 1: (1 - mu_k) / (1 - mu_1 ... mu_k),
  T ahead_momentum;  ///< and mu_(k + 1) / (1 - mu_1 ... mu_(k + 1)); mu_k: beta1 as of update k
  T epsilon_inside;  ///< under the root; 0 unless asked for
  T epsilon;         ///< beside the root; 0 if it is under it
  T weight_decay;
  T lr;           ///< learning rate of the group
  T gamma;        ///< sum of lr since the last exchange
  T per_gamma;    ///< 1 / gamma; 0 for gamma = 0
  T decay;        ///< product of 1 - lr * weight_decay since the last exchange
  T limit;        ///< bound on decoded magnitudes in units of gamma * D^p
  T unlimited;    ///< added to the bound: 0, or the largest float if there is none
  T updates;      ///< k
  T contributed;  ///< after an exchange that tells it: 1, or 0 where no worker had a gradient
  T outer_momentum;
  T outer_lr;

  template <class U>
  ZOADAM_HOST_DEVICE constexpr coefficients<U> as() const noexcept {
    return {U(grad_scale),
            U(beta1),
            U(one_minus_beta1),
            U(beta2),
            U(one_minus_beta2),
            U(own_beta1),
            U(own_one_minus_beta1),
            U(own_beta2),
            U(own_one_minus_beta2),
            U(correction1),
            U(correction2),
            U(ahead_gradient),
            U(ahead_momentum),
            U(epsilon_inside),
            U(epsilon),
            U(weight_decay),
            U(lr),
            U(gamma),
            U(per_gamma),
            U(decay),
            U(limit),
            U(unlimited),
            U(updates),
            U(contributed),
            U(outer_momentum),
            U(outer_lr)};
  }
};

}  // namespace zoadam
