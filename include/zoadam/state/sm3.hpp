// SPDX-License-Identifier: Apache-2.0
// SM3: AdaGrad that remembers the largest sums of squares of every index of every axis.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/layout/slices.hpp"
#include "zoadam/state/sgd.hpp"

namespace zoadam {

namespace at {
/// mu: one per index of every axis; of a vector one per element.
struct axis_maximum_t : slice_value {
  static constexpr char const* name = "axis_maximum";
  template <class Add>
  static void slices(std::vector<index> const& shape, Add const& add) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) add(along_axis(shape, axis));
  }
};
inline constexpr axis_maximum_t axis_maximum;
}  // namespace at

namespace formula {

/// nu = min over axes of mu, + g^2
template <class Registers>
ZOADAM_INLINE auto covered_squares(Registers const& r) noexcept {
  auto const g = r[at::arriving_gradient];
  return flush(r[at::axis_maximum] + g * g, smallest_variance);
}
/// g / D, and 0 where nu is
template <class Registers, class Coefficients>
ZOADAM_INLINE auto covered_direction(Registers const& r, Coefficients const& k) noexcept {
  using lane = value_of<Registers>;
  auto const nu = covered_squares(r);
  return select(greater(nu, lane(0.0f)), r[at::arriving_gradient] / denominator_of(nu, k), lane(0.0f));
}

}  // namespace formula

/// x <- x - lr (g / D + weight_decay x)
struct sm3_step {
  using reads = tags<at::parameter_t, at::arriving_gradient_t, at::axis_maximum_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::descended(r, formula::covered_direction(r, k), k);
  }
};
/// m <- beta1 m + (1 - beta1) g / D where there is a gradient, x <- x - lr (m + weight_decay x)
struct sm3_momentum_step {
  using reads = tags<at::parameter_t, at::momentum_t, at::arriving_gradient_t, at::axis_maximum_t>;
  using writes = tags<at::parameter_t, at::momentum_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    auto const next = formula::next_momentum(r, formula::covered_direction(r, k), k);
    r[at::momentum] = select(nonzero(k.contributed), next, r[at::momentum]);
    r[at::parameter] = formula::descended(r, r[at::momentum], k);
  }
};

/// mu <- max of nu over the slice
struct sm3_maxima {
  using reads = tags<at::arriving_gradient_t, at::axis_maximum_t>;
  using slices = tags<at::axis_maximum_t>;
  static constexpr bool maximum = true;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto term(Registers const& r, Coefficients const&) noexcept {
    return formula::covered_squares(r);
  }
  template <class Coefficients>
  ZOADAM_INLINE f32 finish(f64 most, f64, f32 before, Coefficients const& k) const noexcept {
    return select(nonzero(k.contributed), f32(most.to_float()), before);
  }
};

/// SM3 on the mean gradient of every step. It remembers sum n_i values of a tensor of shape (n_1, ..., n_k), and a
/// momentum per element if asked for; the mean gradient stays in the messages. A tensor without a shape is a vector,
/// for which this is AdaGrad.
///
/// Source: Anil et al., Memory-Efficient Adaptive Optimization, Algorithm SM3-II, the sets of its cover being the
/// indices of each axis, and the momentum of its section 4; optax.sm3, whose epsilon is inside the root.
template <bool Momentum = false>
struct sm3_state {
  using fields =
      std::conditional_t<Momentum,
                         zoadam::fields<slice_field<at::axis_maximum_t>, field<at::momentum_t, home::replica>>,
                         zoadam::fields<slice_field<at::axis_maximum_t>>>;
  using agreed = at::parameter_t;
  static constexpr bool bias_correction = false;

  constexpr void start(clock&) const noexcept {}
  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    using step = std::conditional_t<Momentum, sm3_momentum_step, sm3_step>;
    // The step in the loop of the maxima: both read the values of before.
    return std::tuple(arriving_gradient_exchange::stage<Quantizer>(when), pass<step>{},
                      slice_reduction<sm3_maxima>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink(Momentum ? "sm3 momentum" : "sm3");
  }
};
static_assert(state<sm3_state<>>);

}  // namespace zoadam
