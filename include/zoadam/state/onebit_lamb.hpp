// SPDX-License-Identifier: Apache-2.0
// 1-bit LAMB: LAMB until the variance freezes; after that a compressed momentum, and ratios that follow from the
// averages of the first phase and from how far the variance would have moved.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/state/lamb.hpp"
#include "zoadam/state/onebit_adam.hpp"

namespace zoadam {

namespace at {
/// The variance that would be, had it not been frozen.
struct fresh_variance_t {
  static constexpr char const* name = "fresh_variance";
};
/// What the momentum of a tensor is multiplied by for the exchange, so that tensors are of one size.
struct momentum_scale_t : tensor_scalar {
  static constexpr char const* name = "momentum_scale";
};
/// Running mean of the ratios before the freeze, and the last factor on it after that.
struct average_ratio_t : tensor_scalar {
  static constexpr char const* name = "average_ratio";
};
struct ratio_factor_t : tensor_scalar {
  static constexpr char const* name = "ratio_factor";
};
inline constexpr fresh_variance_t fresh_variance;
inline constexpr momentum_scale_t momentum_scale;
inline constexpr average_ratio_t average_ratio;
inline constexpr ratio_factor_t ratio_factor;
}  // namespace at

/// At the step at which the state freezes.
struct at_freeze {
  constexpr bool due(clock const& c) const noexcept { return c.step == c.frozen_at; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("at_freeze");
  }
};

/// Exchange of the mean gradient for both moments; the fresh variance is the variance.
struct fresh_moments_update : moments_update {
  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : moments_update::the_form {
    using receive_writes = tags<at::momentum_t, at::variance_t, at::fresh_variance_t>;
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      moments_update::the_form::receive(r, mean, k);
      r[at::fresh_variance] = r[at::variance];
    }
  };
};

/// The ratio of LAMB, and its running mean c <- beta c + (1 - beta) ratio, which leaves out ratios of exactly 1.
template <class Direction>
struct averaged_lamb_ratio : lamb_ratio<Direction> {
  using scalars = tags<at::trust_ratio_t, at::average_ratio_t>;

  double beta = 0;

  template <class Results, class Scalars, class Coefficients>
  ZOADAM_INLINE void finish(Results const& all, f64, Scalars& s, Coefficients const&) const noexcept {
    f64 const ratio = this->ratio(all), average = f64(beta) * f64(s[at::average_ratio]) + f64(1 - beta) * ratio;
    s[at::trust_ratio] = f32(ratio.to_float());
    if (ratio.v != 1) s[at::average_ratio] = f32(average.to_float());
  }
};

/// momentum scale = mean over tensors of root mean square of m, over the tensor's own, within 2^32 of 1; 1 for a
/// tensor without momentum.
struct momentum_scales {
  struct momentum_squares {};
  using reads = tags<at::momentum_t>;
  using sums = tags<momentum_squares>;
  using maxima = tags<>;
  using scalars = tags<at::momentum_scale_t, at::ratio_factor_t>;
  using united = tags<at::momentum_scale_t>;

  template <class Registers, class Results, class Coefficients>
  ZOADAM_INLINE static void terms(Registers const& r, Results& out, Coefficients const&) noexcept {
    out[momentum_squares{}] = formula::bounded_square(r[at::momentum]);
  }
  template <class Results, class Scalars, class Coefficients>
  ZOADAM_INLINE static void finish(Results const& all, f64 elements, Scalars& s, Coefficients const&) noexcept {
    f64 const squares = all[momentum_squares{}];
    s[at::momentum_scale] = f32(squares.v > 0 ? sqrt(squares / elements).to_float() : 0.0f);
    s[at::ratio_factor] = f32(1.0f);
  }
  template <class Sums, class Scalars, class Coefficients>
  ZOADAM_INLINE static void unite(Sums const& all, f64 tensors, Scalars& s, Coefficients const&) noexcept {
    f64 const own{s[at::momentum_scale]};
    f64 scale(1.0);
    if (own.v > 0) scale = formula::within(all[at::momentum_scale] / tensors / own, f64(0x1p-32), f64(0x1p32));
    s[at::momentum_scale] = f32(scale.to_float());
  }
};

/// Worker i sends scale (beta1 m + (1 - beta1) g); m <- mean / scale. The gradient that this is worth updates the
/// fresh variance: f <- beta2 f + (1 - beta2) ((m - beta1 m_old) / (1 - beta1))^2. On active elements (Masked), or on
/// all.
template <bool Masked = true>
struct scaled_momentum_average : exchange_facts {
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : momentum_average<Masked>::the_form {
    using send_reads = tags<at::gradient_t, at::momentum_t, at::variance_t, at::momentum_scale_t>;
    using receive_reads = tags<at::momentum_t, at::variance_t, at::fresh_variance_t, at::momentum_scale_t>;
    using receive_writes = tags<at::momentum_t, at::fresh_variance_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::own_momentum(r, k) * r[at::momentum_scale];
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      Lane const next = flush(mean / r[at::momentum_scale], smallest_state);
      Lane const g = (next - k.beta1 * r[at::momentum]) / k.one_minus_beta1;
      Lane const fresh = flush(k.beta2 * r[at::fresh_variance] + k.one_minus_beta2 * (g * g), smallest_variance);
      if constexpr (Masked) {
        r[at::fresh_variance] = select(formula::active(r), fresh, r[at::fresh_variance]);
        r[at::momentum] = select(formula::active(r), next, r[at::momentum]);
      } else {
        r[at::fresh_variance] = fresh;
        r[at::momentum] = next;
      }
    }
  };
};

/// trust ratio = average ratio * factor, where the factor is the largest D / D_fresh of the tensor, with weight decay
/// blended with 1 by min(1, |u without decay| / |u|), within its limits and near the last one.
template <class Direction>
struct frozen_lamb_ratio {
  struct update_squares {};
  struct direction_squares {};
  struct largest_ratio {};
  using reads = detail::unite<tags<at::parameter_t, at::fresh_variance_t>, typename Direction::reads>;
  using sums = tags<update_squares, direction_squares>;
  using maxima = tags<largest_ratio>;
  using scalars = tags<at::trust_ratio_t, at::average_ratio_t, at::ratio_factor_t>;

  double least = 0, most = 0, step = 0;

  template <class Registers, class Results, class Coefficients>
  ZOADAM_INLINE static void terms(Registers const& r, Results& out, Coefficients const& k) noexcept {
    auto const direction = Direction::of(r, k);
    auto const update = direction + k.weight_decay * r[at::parameter];
    out[direction_squares{}] = formula::bounded_square(direction);
    out[update_squares{}] = formula::bounded_square(update);
    auto const ratio = formula::denominator(r, k) / formula::denominator_of(r[at::fresh_variance], k);
    out[largest_ratio{}] = Direction::counted(r, min(ratio, formula::value_of<Registers>(0x1p56f)));
  }
  template <class Results, class Scalars, class Coefficients>
  ZOADAM_INLINE void finish(Results const& all, f64, Scalars& s, Coefficients const&) const noexcept {
    f64 const one(1.0), last{s[at::ratio_factor]};
    f64 const share =
        formula::within(formula::norm_ratio(all[direction_squares{}], all[update_squares{}]), f64(0.0), one);
    f64 factor = all[largest_ratio{}] * share + (one - share);
    factor = formula::within(factor, f64(least), f64(most));
    factor = formula::within(factor, last * f64(1 - step), last * f64(1 + step));
    s[at::ratio_factor] = f32(factor.to_float());
    s[at::trust_ratio] = f32((f64(s[at::average_ratio]) * factor).to_float());
  }
};

/// Settings of 1-bit LAMB; the defaults are those of the published implementation.
struct onebit_lamb_ratios {
  double least = 0.01, most = 10;                                 ///< limits of |x| / |u| before the freeze
  double beta = 0.9;                                              ///< of its running mean
  double least_factor = 0.5, most_factor = 4, factor_step = 0.1;  ///< of the factor after it

  constexpr char const* defect() const noexcept {
    if (!(detail::finite(least) && least >= 0)) return "ratios.least must be finite and >= 0";
    if (!(detail::finite(most) && (most == 0 || most >= least))) return "ratios.most must be 0 or >= ratios.least";
    if (!(detail::finite(beta) && beta >= 0 && beta < 1)) return "ratios.beta must be in [0, 1)";
    if (!(detail::finite(least_factor) && least_factor > 0)) return "ratios.least_factor must be finite and > 0";
    if (!(detail::finite(most_factor) && most_factor >= least_factor))
      return "ratios.most_factor must be >= ratios.least_factor";
    return detail::finite(factor_step) && factor_step >= 0 && factor_step < 1
               ? nullptr
               : "ratios.factor_step must be in [0, 1)";
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("ratios", least, most, beta, least_factor, most_factor, factor_step);
  }
};

/// The program of 1-bit LAMB.
template <class Direction, bool Masked, class Quantizer>
constexpr auto onebit_lamb_program(onebit_lamb_ratios const& r) {
  return std::tuple(exchange<fresh_moments_update, before_freeze, identity_quantizer>{},
                    tensor_reduction<momentum_scales, at_freeze>{},
                    tensor_reduction<averaged_lamb_ratio<Direction>, before_freeze>{{}, {{r.least, r.most}, r.beta}},
                    exchange<scaled_momentum_average<Masked>, after_freeze, Quantizer>{},
                    tensor_reduction<frozen_lamb_ratio<Direction>, after_freeze>{
                        {}, {r.least_factor, r.most_factor, r.factor_step}},
                    pass<layerwise_step<Direction>>{});
}

/// 1-bit LAMB with both bias corrections, which stay as they are at the freeze. options.state.freeze.step must be
/// set.
///
/// Memory traffic after the freeze, in float32 with block scales: 20.1 bytes per element on the worker's side (g m v
/// e; e), 28.1 up to the norms (m v f x; m f) and 16 for the step.
///
/// Source: 1-bit LAMB (Li et al.), Algorithm 1.
struct onebit_lamb_state {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>,
                                field<at::fresh_variance_t, home::replica>, tensor_field<at::trust_ratio_t>,
                                tensor_field<at::average_ratio_t>, tensor_field<at::momentum_scale_t>,
                                tensor_field<at::ratio_factor_t>>;
  using agreed = at::parameter_t;

  freeze_at freeze{};
  onebit_lamb_ratios ratios{};

  constexpr void start(clock& c) const noexcept { freeze.start(c); }
  constexpr char const* defect() const noexcept { return freeze.defect() ? freeze.defect() : ratios.defect(); }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    static_assert(std::same_as<Sync, every_step>, "zoadam: onebit_lamb_state exchanges at every step");
    return onebit_lamb_program<corrected_direction, true, Quantizer>(ratios);
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("onebit_lamb");
    freeze.describe(sink);
    ratios.describe(sink);
  }
};
static_assert(state<onebit_lamb_state>);

}  // namespace zoadam
