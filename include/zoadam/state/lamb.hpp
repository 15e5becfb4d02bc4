// SPDX-License-Identifier: Apache-2.0
// LAMB: Adam whose step on each tensor is as long as the tensor, times the learning rate.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/state/adam.hpp"

namespace zoadam {

namespace formula {

/// x^2, magnitudes beyond 2^56 counting as 2^56, so that no sum of squares overflows.
template <class Lane>
ZOADAM_INLINE Lane bounded_square(Lane x) noexcept {
  Lane const magnitude = min(abs(x), Lane(0x1p56f));
  return magnitude * magnitude;
}

/// Ratio of two norms whose squares are given; 1 where either is zero.
ZOADAM_INLINE f64 norm_ratio(f64 numerator, f64 denominator) noexcept {
  if (!(numerator.v > 0 && denominator.v > 0)) return f64(1.0);
  return sqrt(numerator) / sqrt(denominator);
}
ZOADAM_INLINE f64 within(f64 x, f64 low, f64 high) noexcept { return x.v < low.v ? low : x.v > high.v ? high : x; }

}  // namespace formula

/// (m / (1 - beta1^k)) / D on active elements, 0 on others
struct corrected_direction {
  using reads = tags<at::momentum_t, at::variance_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto of(Registers const& r, Coefficients const& k) noexcept {
    using lane = formula::value_of<Registers>;
    auto const step = (r[at::momentum] * k.correction1) / formula::denominator(r, k);
    return select(formula::active(r), step, lane(0.0f));
  }
  /// `value` where the element counts, else 0.
  template <class Registers, class Lane>
  ZOADAM_INLINE static Lane counted(Registers const& r, Lane value) noexcept {
    return select(formula::active(r), value, Lane(0.0f));
  }
};

/// trust ratio = |x| / |u| of each tensor with u = Direction + weight_decay x; 1 where either norm is 0, else
/// limited.
template <class Direction = corrected_direction>
struct lamb_ratio {
  struct parameter_squares {};
  struct update_squares {};
  using reads = detail::unite<tags<at::parameter_t>, typename Direction::reads>;
  using sums = tags<parameter_squares, update_squares>;
  using maxima = tags<>;
  using scalars = tags<at::trust_ratio_t>;

  double least = 0;  ///< limits of the ratio
  double most = 0;   ///< 0: none

  template <class Registers, class Results, class Coefficients>
  ZOADAM_INLINE static void terms(Registers const& r, Results& out, Coefficients const& k) noexcept {
    auto const update = Direction::of(r, k) + k.weight_decay * r[at::parameter];
    out[parameter_squares{}] = formula::bounded_square(r[at::parameter]);
    out[update_squares{}] = formula::bounded_square(update);
  }
  template <class Results>
  ZOADAM_INLINE f64 ratio(Results const& all) const noexcept {
    f64 const x = all[parameter_squares{}], u = all[update_squares{}], ratio = formula::norm_ratio(x, u);
    if (!(x.v > 0 && u.v > 0)) return ratio;
    return formula::within(ratio, f64(least), f64(most > 0 ? most : 0x1p100));  // what float32 holds well
  }
  template <class Results, class Scalars, class Coefficients>
  ZOADAM_INLINE void finish(Results const& all, f64, Scalars& s, Coefficients const&) const noexcept {
    s[at::trust_ratio] = f32(ratio(all).to_float());
  }
};

/// x <- x - lr trust_ratio (Direction + weight_decay x)
template <class Direction = corrected_direction>
struct layerwise_step {
  using reads = detail::unite<tags<at::parameter_t, at::trust_ratio_t>, typename Direction::reads>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    auto const update = Direction::of(r, k) + k.weight_decay * r[at::parameter];
    r[at::parameter] = formula::moved(r[at::parameter], k.lr * r[at::trust_ratio] * update);
  }
};

/// LAMB on the mean gradient of every step, with both bias corrections. Memory traffic from a received mean on, in
/// float32: 24 bytes per element up to the norms and 16 for the step (Adam: 28), since a tensor's norms are known
/// only when its last element is.
///
/// Source: LAMB (You et al.), Algorithm 2, the function phi being a limit on the ratio of the norms.
struct lamb_state {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>,
                                tensor_field<at::trust_ratio_t>>;
  using agreed = at::parameter_t;

  double min_ratio = 0;  ///< limits of |x| / |u|, where neither is 0
  double max_ratio = 0;  ///< 0: none

  constexpr void start(clock&) const noexcept {}
  constexpr char const* defect() const noexcept {
    if (!(detail::finite(min_ratio) && min_ratio >= 0)) return "min_ratio must be finite and >= 0";
    bool const fits = detail::finite(max_ratio) && (max_ratio == 0 || max_ratio >= min_ratio);
    return fits ? nullptr : "max_ratio must be 0 or >= min_ratio";
  }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(
        keeps_zero<Quantizer>,
        "zoadam: lamb_state exchanges gradients, and a quantizer that cannot say zero moves parameters that "
        "have none; use identity_quantizer, a cast, or onebit_lamb_state");
    static_assert(std::same_as<Sync, every_step>, "zoadam: lamb_state needs the mean gradient of every step");
    return std::tuple(exchange<moments_update, Sync, Quantizer>{when},
                      tensor_reduction<lamb_ratio<>>{{}, {min_ratio, max_ratio}}, pass<layerwise_step<>>{});
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("lamb", min_ratio, max_ratio);
  }
};
static_assert(state<lamb_state>);

}  // namespace zoadam
