// SPDX-License-Identifier: Apache-2.0
// Adafactor: the second moment of a matrix from the means of its rows and columns.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/layout/slices.hpp"
#include "zoadam/state/lamb.hpp"
#include "zoadam/state/sgd.hpp"

namespace zoadam {

namespace at {
/// Running means of squares: a tensor is matrices over its last two axes, a vector a matrix of one column.
struct row_mean_square_t : slice_value {
  static constexpr char const* name = "row_mean_square";
  template <class Add>
  static void slices(std::vector<index> shape, Add const& add) {
    if (shape.size() == 1) shape.push_back(1);
    add(across_axis(shape, shape.size() - 1));
  }
};
struct column_mean_square_t : slice_value {
  static constexpr char const* name = "column_mean_square";
  template <class Add>
  static void slices(std::vector<index> shape, Add const& add) {
    if (shape.size() == 1) shape.push_back(1);
    add(across_axis(shape, shape.size() - 2));
  }
};
struct matrix_mean_square_t : slice_value {
  static constexpr char const* name = "matrix_mean_square";
  template <class Add>
  static void slices(std::vector<index> shape, Add const& add) {
    if (shape.size() == 1) shape.push_back(1);
    add(across_matrix(shape));
  }
};
/// What multiplies a tensor's direction: learning rate, scale of the parameter, clipping.
struct step_scale_t : tensor_scalar {
  static constexpr char const* name = "step_scale";
};
inline constexpr row_mean_square_t row_mean_square;
inline constexpr column_mean_square_t column_mean_square;
inline constexpr matrix_mean_square_t matrix_mean_square;
inline constexpr step_scale_t step_scale;
}  // namespace at

/// Row, column and matrix <- beta2 of before + (1 - beta2) (mean of g^2 + epsilon1), beta2 = 1 - k^-decay_rate
struct factored_squares {
  using reads = tags<at::arriving_gradient_t>;
  using slices = tags<at::row_mean_square_t, at::column_mean_square_t, at::matrix_mean_square_t>;
  static constexpr bool maximum = false;

  double epsilon1 = 0;

  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto term(Registers const& r, Coefficients const&) noexcept {
    auto const g = r[at::arriving_gradient];
    return g * g;
  }
  template <class Coefficients>
  ZOADAM_INLINE f32 finish(f64 sum, f64 n, f32 before, Coefficients const& k) const noexcept {
    f64 const mean = sum / n + f64(epsilon1);
    f32 const next((f64(k.beta2) * f64(before) + f64(k.one_minus_beta2) * mean).to_float());
    return select(nonzero(k.contributed), flush(next, smallest_variance), before);
  }
};

/// u = g / sqrt(row / matrix * column), 0 where the root is: the mean of a matrix's rows is the mean of the matrix.
struct factored_direction {
  using reads =
      tags<at::arriving_gradient_t, at::row_mean_square_t, at::column_mean_square_t, at::matrix_mean_square_t>;
  template <class Registers>
  ZOADAM_INLINE static auto of(Registers const& r) noexcept {
    using lane = formula::value_of<Registers>;
    auto const some = greater(r[at::matrix_mean_square], lane(0.0f));
    auto const share = select(some, r[at::row_mean_square] / r[at::matrix_mean_square], lane(0.0f));
    auto const v = share * r[at::column_mean_square];
    return select(greater(v, lane(0.0f)), r[at::arriving_gradient] / sqrt(v), lane(0.0f));
  }
};

/// step scale = rho max(epsilon2, RMS(x)) / max(1, RMS(u) / clipping_threshold)
struct adafactor_scale {
  struct parameter_squares {};
  struct update_squares {};
  using reads = detail::unite<tags<at::parameter_t>, factored_direction::reads>;
  using sums = tags<parameter_squares, update_squares>;
  using maxima = tags<>;
  using scalars = tags<at::step_scale_t>;

  double epsilon2 = 0;
  double clipping_threshold = 0;
  bool scale_parameter = false;
  bool relative_step = false;

  template <class Registers, class Results, class Coefficients>
  ZOADAM_INLINE static void terms(Registers const& r, Results& out, Coefficients const&) noexcept {
    out[parameter_squares{}] = formula::bounded_square(r[at::parameter]);
    out[update_squares{}] = formula::bounded_square(factored_direction::of(r));
  }
  template <class Results, class Scalars, class Coefficients>
  ZOADAM_INLINE void finish(Results const& all, f64 elements, Scalars& s, Coefficients const& k) const noexcept {
    f64 const one(1.0), most(0x1p100), n = formula::within(elements, one, most);
    f64 scale(k.lr);
    if (relative_step) {
      scale = formula::within(scale, f64(0.0), one / sqrt(formula::within(f64(k.updates), one, most)));
    }
    if (scale_parameter) scale = scale * formula::within(sqrt(all[parameter_squares{}] / n), f64(epsilon2), most);
    if (clipping_threshold > 0) {
      scale = scale / formula::within(sqrt(all[update_squares{}] / n) / f64(clipping_threshold), one, most);
    }
    s[at::step_scale] = f32(scale.to_float());
  }
};

/// x <- x - (step scale u + lr weight_decay x)
struct adafactor_step {
  using reads = detail::unite<tags<at::parameter_t, at::step_scale_t>, factored_direction::reads>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    auto const step = r[at::step_scale] * factored_direction::of(r);
    r[at::parameter] = formula::moved(r[at::parameter], step + k.lr * (k.weight_decay * r[at::parameter]));
  }
};
/// m <- beta1 m + (1 - beta1) step scale u where there is a gradient, x <- x - (m + lr weight_decay x)
struct adafactor_momentum_step {
  using reads = detail::unite<tags<at::parameter_t, at::momentum_t, at::step_scale_t>, factored_direction::reads>;
  using writes = tags<at::parameter_t, at::momentum_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    auto const next = formula::next_momentum(r, r[at::step_scale] * factored_direction::of(r), k);
    r[at::momentum] = select(nonzero(k.contributed), next, r[at::momentum]);
    r[at::parameter] = formula::moved(r[at::parameter], r[at::momentum] + k.lr * (k.weight_decay * r[at::parameter]));
  }
};

/// Adafactor on the mean gradient of every step. Of a matrix of r rows and c columns it remembers r + c + 1 values,
/// of a vector one per element and one; of a tensor of more axes those of every matrix over its last two. The
/// momentum, if asked for, is of the steps, one value per element; the mean gradient stays in the messages.
///
/// Source: Shazeer and Stern, Adafactor, Algorithms 4 and 5; optax.adafactor with the last two axes for its two
/// largest, and weight decay times the learning rate.
template <bool Momentum = false>
struct adafactor_state {
  using factors = zoadam::fields<slice_field<at::row_mean_square_t>, slice_field<at::column_mean_square_t>,
                                 slice_field<at::matrix_mean_square_t>, tensor_field<at::step_scale_t>>;
  using fields =
      std::conditional_t<Momentum, detail::join<factors, zoadam::fields<field<at::momentum_t, home::replica>>>,
                         factors>;
  using agreed = at::parameter_t;
  static constexpr bool bias_correction = false;

  double decay_rate = 0.8;        ///< beta2 = 1 - k^-decay_rate at the k-th update; in (0, 1]
  double epsilon1 = 1e-30;        ///< added to squared gradients
  double epsilon2 = 1e-3;         ///< least scale of a parameter
  double clipping_threshold = 1;  ///< of the root mean square of u; 0: none
  bool scale_parameter = true;    ///< steps are in units of the parameter's root mean square
  bool relative_step = false;     ///< the learning rate is at most 1 / sqrt(k)

  constexpr void start(clock&) const noexcept {}
  constexpr void set(detail::hyper_numbers& h) const noexcept { h.decay_rate = decay_rate; }
  constexpr char const* defect() const noexcept {
    if (!(decay_rate > 0 && decay_rate <= 1)) return "decay_rate must be in (0, 1]";
    auto const fits = [](double x) { return detail::finite(x) && x >= 0; };
    if (!fits(epsilon1) || !fits(epsilon2)) return "epsilon1 and epsilon2 must be finite and >= 0";
    return fits(clipping_threshold) ? nullptr : "clipping_threshold must be finite and >= 0";
  }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    using step = std::conditional_t<Momentum, adafactor_momentum_step, adafactor_step>;
    return std::tuple(
        arriving_gradient_exchange::stage<Quantizer>(when), slice_reduction<factored_squares>{{}, {epsilon1}},
        tensor_reduction<adafactor_scale>{{}, {epsilon2, clipping_threshold, scale_parameter, relative_step}},
        pass<step>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink(Momentum ? "adafactor momentum" : "adafactor", decay_rate, epsilon1, epsilon2, clipping_threshold,
         int{scale_parameter}, int{relative_step});
  }
};
static_assert(state<adafactor_state<>>);

}  // namespace zoadam
