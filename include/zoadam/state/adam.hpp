// SPDX-License-Identifier: Apache-2.0
// Adam with decoupled weight decay on the mean gradient of every step.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/state/formulas.hpp"
#include "zoadam/sync/every_step.hpp"

namespace zoadam {

/// Exchange of the mean gradient for both moments.
struct moments_update : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool advances_variance = true;
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::gradient_t>;
    using receive_reads = tags<at::momentum_t, at::variance_t>;
    using receive_writes = tags<at::momentum_t, at::variance_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::variance] = formula::next_variance(r, mean, k);
      r[at::momentum] = formula::next_momentum(r, mean, k);
    }
  };
};

/// x <- x - lr ((m / (1 - beta1^k)) / D + weight_decay x)
struct corrected_step {
  using reads = tags<at::parameter_t, at::momentum_t, at::variance_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::stepped(r, r[at::momentum] * k.correction1, k);
  }
};

/// Adam (AdamW): both moments and the parameters are the same on every worker.
///
/// Source: Adam, Algorithm 1; AdamW, Algorithm 2.
struct adam_state {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>>;
  using agreed = at::parameter_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(
        keeps_zero<Quantizer>,
        "zoadam: adam_state exchanges gradients, and a quantizer that cannot say zero moves parameters that "
        "have none; use identity_quantizer, a cast, or onebit_adam_state");
    static_assert(std::same_as<Sync, every_step>,
                  "zoadam: adam_state needs the mean gradient of every step; use local_adam_state for local steps");
    return std::tuple(exchange<moments_update, Sync, Quantizer>{when}, pass<corrected_step>{});
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("adam");
  }
};
static_assert(state<adam_state>);

}  // namespace zoadam
