// SPDX-License-Identifier: Apache-2.0
// Element formulas that several states share, evaluated left to right as written.
#pragma once

#include "zoadam/state/coefficients.hpp"
#include "zoadam/state/field.hpp"

namespace zoadam {

/// Magnitudes below 2^-96 (variance: 2^-126) are stored as zero: no denormals, no slow tail.
inline constexpr float smallest_state = 0x1p-96f;
inline constexpr float smallest_variance = 0x1p-126f;

namespace formula {

template <class Registers>
using value_of = typename Registers::value_type;

/// An element is active once its variance is above zero.
template <class Registers>
ZOADAM_INLINE auto active(Registers const& r) noexcept {
  return greater(r[at::variance], value_of<Registers>(0.0f));
}

/// D = sqrt(v / bias + epsilon_inside) + epsilon, the bias dividing once for all elements
template <class Lane, class Coefficients>
ZOADAM_INLINE Lane denominator_of(Lane variance, Coefficients const& k) noexcept {
  return sqrt(variance * k.correction2 + k.epsilon_inside) + k.epsilon;
}
template <class Registers, class Coefficients>
ZOADAM_INLINE auto denominator(Registers const& r, Coefficients const& k) noexcept {
  return denominator_of(r[at::variance], k);
}

template <class Registers, class Coefficients>
ZOADAM_INLINE auto gradient(Registers const& r, Coefficients const& k) noexcept {
  return k.grad_scale * r[at::gradient];
}

/// beta1 m + (1 - beta1) g, with a mean over the workers that have a gradient
template <class Registers, class Coefficients, class Lane>
ZOADAM_INLINE Lane next_momentum(Registers const& r, Lane g, Coefficients const& k) noexcept {
  return flush(k.beta1 * r[at::momentum] + k.one_minus_beta1 * g, smallest_state);
}

/// beta2 v + (1 - beta2) g^2
template <class Registers, class Coefficients, class Lane>
ZOADAM_INLINE Lane next_variance(Registers const& r, Lane g, Coefficients const& k) noexcept {
  return flush(k.beta2 * r[at::variance] + k.one_minus_beta2 * (g * g), smallest_variance);
}

/// The same two with this worker's own gradient, if it has one.
template <class Registers, class Coefficients>
ZOADAM_INLINE auto own_momentum(Registers const& r, Coefficients const& k) noexcept {
  return flush(k.own_beta1 * r[at::momentum] + k.own_one_minus_beta1 * gradient(r, k), smallest_state);
}
template <class Registers, class Coefficients>
ZOADAM_INLINE auto own_variance(Registers const& r, Coefficients const& k) noexcept {
  auto const g = gradient(r, k);
  return flush(k.own_beta2 * r[at::variance] + k.own_one_minus_beta2 * (g * g), smallest_variance);
}

/// A zero as -0 where active, as +0 elsewhere: see exchange_form::marks_active.
template <class Lane>
ZOADAM_INLINE Lane marked(Lane value, typename Lane::mask active) noexcept {
  return select(nonzero(value), value, with_sign(Lane(0.0f), active));
}

/// x - step; a step of 0 leaves x as it is, -0 too, so that learning rate 0 moves nobody
template <class Lane>
ZOADAM_INLINE Lane moved(Lane x, Lane step) noexcept {
  return select(nonzero(step), x - step, x);
}

/// x - lr (direction / D + weight_decay x); inactive elements only decay
template <class Registers, class Coefficients, class Lane>
ZOADAM_INLINE Lane stepped(Registers const& r, Lane direction, Coefficients const& k) noexcept {
  Lane const move = select(active(r), direction / denominator(r, k), Lane(0.0f));
  return moved(r[at::parameter], k.lr * (move + k.weight_decay * r[at::parameter]));
}

}  // namespace formula

/// m <- beta1 m + (1 - beta1) g, with this worker's own gradient.
struct local_momentum {
  using reads = tags<at::gradient_t, at::momentum_t>;
  using writes = tags<at::momentum_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::momentum] = formula::own_momentum(r, k);
  }
};

/// x <- x - lr (m / D + weight_decay x)
struct local_step {
  using reads = tags<at::parameter_t, at::momentum_t, at::variance_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::stepped(r, r[at::momentum], k);
  }
};

}  // namespace zoadam
