// SPDX-License-Identifier: Apache-2.0
// Adaptive methods beside Adam on the mean gradient of every step: AdaGrad, RMSProp, NAdam, AMSGrad. Weight decay is
// decoupled; an element without variance only decays.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/state/adam.hpp"
#include "zoadam/state/sgd.hpp"

namespace zoadam {

// ---- AdaGrad, RMSProp ----

/// v <- v + g^2, x <- x - lr (g / D + weight_decay x)
struct adagrad_update : gradient_update {
  static constexpr bool advances_variance = true;
  using reads = tags<at::parameter_t, at::variance_t>;
  using writes = tags<at::parameter_t, at::variance_t>;
  using otherwise = decay_step;
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    r[at::variance] = flush(r[at::variance] + g * g, smallest_variance);
    r[at::parameter] = formula::stepped(r, g, k);
  }
};

/// AdaGrad. `variance` is the sum of squares, without bias correction.
///
/// Source: Duchi et al., Adaptive Subgradient Methods, Figure 1; torch.optim.Adagrad without lr_decay, whose epsilon
/// is 1e-10 by default.
struct adagrad_state : gradient_program<adagrad_update> {
  using fields = zoadam::fields<field<at::variance_t, home::replica>>;
  static constexpr bool bias_correction = false;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("adagrad");
  }
};
static_assert(state<adagrad_state>);

/// v <- beta2 v + (1 - beta2) g^2, x <- x - lr (g / D + weight_decay x)
struct rmsprop_update : adagrad_update {
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    r[at::variance] = formula::next_variance(r, g, k);
    r[at::parameter] = formula::stepped(r, g, k);
  }
};

/// RMSProp, without bias correction unless asked for.
///
/// Source: torch.optim.RMSprop with alpha = beta2 (0.99 by default there), not centered, without momentum.
struct rmsprop_state : gradient_program<rmsprop_update> {
  using fields = zoadam::fields<field<at::variance_t, home::replica>>;
  static constexpr bool bias_correction = false;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("rmsprop");
  }
};
static_assert(state<rmsprop_state>);

// ---- NAdam ----

/// Both moments, then x <- x - lr ((ahead_gradient g + ahead_momentum m) / D + weight_decay x).
struct nadam_update : gradient_update {
  static constexpr bool advances_variance = true;
  using reads = tags<at::parameter_t, at::momentum_t, at::variance_t>;
  using writes = tags<at::parameter_t, at::momentum_t, at::variance_t>;
  struct otherwise {
    using reads = nadam_update::reads;
    using writes = tags<at::parameter_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
      r[at::parameter] = formula::stepped(r, k.ahead_momentum * r[at::momentum], k);
    }
  };
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    r[at::variance] = formula::next_variance(r, g, k);
    r[at::momentum] = formula::next_momentum(r, g, k);
    r[at::parameter] = formula::stepped(r, k.ahead_gradient * g + k.ahead_momentum * r[at::momentum], k);
  }
};

/// Adam with Nesterov's momentum, whose weight at update k is mu_k = beta1 (1 - 0.96^(k momentum_decay) / 2).
///
/// Source: Dozat, Incorporating Nesterov Momentum into Adam, Algorithm 8; torch.optim.NAdam.
struct nadam_state : gradient_program<nadam_update> {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>>;

  double momentum_decay = 0.004;

  double warming() const noexcept { return __builtin_pow(0.96, momentum_decay); }
  void set(detail::hyper_numbers& h) const noexcept { h.warming = warming(); }
  constexpr char const* defect() const noexcept {
    return detail::finite(momentum_decay) && momentum_decay >= 0 ? nullptr : "momentum_decay must be finite and >= 0";
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("nadam", momentum_decay, warming());  // ranks whose libraries disagree about the power must not go on
  }
};
static_assert(state<nadam_state>);

// ---- AMSGrad ----

/// m and s <- beta2 s + (1 - beta2) g^2; v <- max(v, s)
struct amsgrad_update : gradient_update {
  static constexpr bool advances_variance = true;
  using reads = tags<at::momentum_t, at::variance_t, at::mean_square_t>;
  using writes = reads;
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    auto const next = k.beta2 * r[at::mean_square] + k.one_minus_beta2 * (g * g);
    r[at::mean_square] = flush(next, smallest_variance);
    r[at::variance] = max(r[at::variance], r[at::mean_square]);
    r[at::momentum] = formula::next_momentum(r, g, k);
  }
};

/// Adam whose steps divide by the largest mean square so far, which is what `variance` holds.
///
/// Source: Reddi et al., On the Convergence of Adam and Beyond, Algorithm 2; torch.optim.AdamW(amsgrad=True), with
/// both bias corrections, the variance's after the maximum.
struct amsgrad_state : gradient_program<amsgrad_update, corrected_step> {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>,
                                field<at::mean_square_t, home::replica>>;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("amsgrad");
  }
};
static_assert(state<amsgrad_state>);

}  // namespace zoadam
