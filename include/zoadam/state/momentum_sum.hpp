// SPDX-License-Identifier: Apache-2.0
// Exchange of the sum of momenta since the last exchange.
#pragma once

#include "zoadam/concepts/stage.hpp"
#include "zoadam/state/displacement.hpp"
#include "zoadam/state/formulas.hpp"

namespace zoadam {

/// u <- u + lr m on every step; worker i sends u. Then a <- P a - mean u / D, x <- a, u <- 0, and
/// m <- mean u / Gamma or m + (mean u - u) / Gamma by rule; a window of one step always replaces it. No limit.
///
/// Source: 0/1 Adam, Algorithm 1 (rule `replace`).
template <momentum_rule Rule = momentum_rule::replace>
struct momentum_sum : exchange_facts {
  static constexpr bool closes_window = true;
  static constexpr bool divides_by_gamma = true;
  using fields = zoadam::fields<field<at::anchor_t, home::replica>, field<at::momentum_sum_t, home::worker>>;

  template <class Sink>
  void describe(Sink& sink) const {
    sink("momentum_sum");
    sink(Rule == momentum_rule::correct ? "correct" : "replace");
  }

  template <class F>
  static decltype(auto) form(bool single_step, bool, F f) {
    if constexpr (Rule == momentum_rule::correct) {
      if (!single_step) return f(correcting{});
    }
    return f(replacing{});
  }

  /// u <- u + lr m on active elements
  struct open_pass {
    using reads = tags<at::momentum_t, at::variance_t, at::momentum_sum_t>;
    using writes = tags<at::momentum_sum_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
      auto const sum = flush(r[at::momentum_sum] + k.lr * r[at::momentum], smallest_state);
      r[at::momentum_sum] = select(formula::active(r), sum, r[at::momentum_sum]);
    }
  };

  struct common : exchange_form {
    static constexpr bool masked = true;
    using send_reads = tags<at::variance_t, at::momentum_sum_t, at::momentum_t>;
    using bound_reads = tags<at::variance_t>;

    template <class Registers>
    ZOADAM_INLINE static auto active(Registers const& r) noexcept {
      return formula::active(r);
    }
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const&) noexcept {
      return r[at::momentum_sum];
    }

   protected:
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void move(Registers& r, Lane mean, Coefficients const& k) noexcept {
      Lane const step = select(active(r), mean / formula::denominator(r, k), Lane(0.0f));
      r[at::anchor] = k.decay * r[at::anchor] - step;
      r[at::parameter] = r[at::anchor];
      r[at::momentum_sum] = Lane(0.0f);
    }
  };

  struct replacing : common {
    using rewrites = tags<at::parameter_t, at::momentum_sum_t>;
    using rewrites_active = tags<at::momentum_t>;
    using receive_reads = tags<at::variance_t, at::anchor_t>;
    using receive_writes = tags<at::momentum_t, at::anchor_t, at::parameter_t, at::momentum_sum_t>;
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::momentum] = flush(mean * k.per_gamma, smallest_state);
      common::move(r, mean, k);
    }
  };

  struct correcting : common {
    using rewrites = tags<at::parameter_t>;
    using receive_reads = tags<at::variance_t, at::anchor_t, at::momentum_t, at::momentum_sum_t>;
    using receive_writes = tags<at::momentum_t, at::anchor_t, at::parameter_t, at::momentum_sum_t>;
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      Lane const corrected = r[at::momentum] + (mean - r[at::momentum_sum]) * k.per_gamma;
      r[at::momentum] = select(common::active(r), flush(corrected, smallest_state), r[at::momentum]);
      common::move(r, mean, k);
    }
  };
};

}  // namespace zoadam
