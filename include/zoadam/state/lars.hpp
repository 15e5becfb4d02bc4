// SPDX-License-Identifier: Apache-2.0
// LARS: momentum whose learning rate on each tensor follows the ratio of its norm to its gradient's.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/state/lamb.hpp"
#include "zoadam/state/sgd.hpp"

namespace zoadam {

namespace at {
struct mean_gradient_t {
  static constexpr char const* name = "mean_gradient";
};
inline constexpr mean_gradient_t mean_gradient;
}  // namespace at

/// The mean gradient is kept.
struct kept_gradient : gradient_update {
  using reads = tags<>;
  using writes = tags<at::mean_gradient_t>;
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane mean, Coefficients const&) noexcept {
    r[at::mean_gradient] = flush(mean, smallest_state);
  }
};
struct mean_gradient_update : gradient_exchange<kept_gradient> {
  static constexpr bool tells_contributed = true;
};

/// trust ratio = trust |x| / (|g| + weight_decay |x|) of each tensor; 1 where |x| or |g| is 0
struct lars_ratio {
  struct parameter_squares {};
  struct gradient_squares {};
  using reads = tags<at::parameter_t, at::mean_gradient_t>;
  using sums = tags<parameter_squares, gradient_squares>;
  using maxima = tags<>;
  using scalars = tags<at::trust_ratio_t>;

  double trust = 0;

  template <class Registers, class Results, class Coefficients>
  ZOADAM_INLINE static void terms(Registers const& r, Results& out, Coefficients const&) noexcept {
    out[parameter_squares{}] = formula::bounded_square(r[at::parameter]);
    out[gradient_squares{}] = formula::bounded_square(r[at::mean_gradient]);
  }
  template <class Results, class Scalars, class Coefficients>
  ZOADAM_INLINE void finish(Results const& all, f64, Scalars& s, Coefficients const& k) const noexcept {
    f64 const x = sqrt(all[parameter_squares{}]), g = sqrt(all[gradient_squares{}]);
    f64 ratio(1.0);
    if (x.v > 0 && g.v > 0) ratio = f64(trust) * x / (g + f64(k.weight_decay) * x);
    s[at::trust_ratio] = f32(ratio.to_float());
  }
};

/// m <- beta1 m + lr trust_ratio (g + weight_decay x), if any worker had a gradient; x <- x - m
struct lars_step {
  using reads = tags<at::parameter_t, at::momentum_t, at::mean_gradient_t, at::trust_ratio_t>;
  using writes = tags<at::parameter_t, at::momentum_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    auto const update = r[at::mean_gradient] + k.weight_decay * r[at::parameter];
    auto const next = flush(k.beta1 * r[at::momentum] + k.lr * r[at::trust_ratio] * update, smallest_state);
    r[at::momentum] = select(nonzero(k.contributed), next, r[at::momentum]);
    r[at::parameter] = formula::moved(r[at::parameter], r[at::momentum]);
  }
};

/// LARS: options.beta1 is the momentum; beta2 and epsilon are not used. The momentum is in the units of the
/// parameters and holds the learning rates of its steps. Memory traffic from a received mean on, in float32: 12 bytes
/// per element up to the norms and 20 for the step.
///
/// Source: LARS (You, Gitman, Ginsburg), Algorithm 1. Where a norm is 0 the ratio is 1, as in optax; optax divides by
/// |g + weight_decay x|, which differs where there is weight decay.
struct lars_state {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::mean_gradient_t, home::replica>,
                                tensor_field<at::trust_ratio_t>>;
  using agreed = at::parameter_t;

  double trust = 0.001;  ///< the trust coefficient

  constexpr void start(clock&) const noexcept {}
  constexpr char const* defect() const noexcept {
    return detail::finite(trust) && trust > 0 ? nullptr : "trust must be finite and > 0";
  }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(
        keeps_zero<Quantizer>,
        "zoadam: lars_state exchanges gradients, and a quantizer that cannot say zero moves parameters that "
        "have none; use identity_quantizer or a cast");
    static_assert(std::same_as<Sync, every_step>, "zoadam: lars_state needs the mean gradient of every step");
    return std::tuple(exchange<mean_gradient_update, Sync, Quantizer>{when},
                      tensor_reduction<lars_ratio>{{}, {trust}}, pass<lars_step>{});
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("lars", trust);
  }
};
static_assert(state<lars_state>);

}  // namespace zoadam
