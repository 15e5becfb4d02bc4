// SPDX-License-Identifier: Apache-2.0
// Exchange of the displacement from the anchor, weighted by a power of the denominator.
#pragma once

#include "zoadam/concepts/stage.hpp"
#include "zoadam/state/formulas.hpp"

namespace zoadam {

/// p in z = D^p w.
enum class power { zero, half, one };

/// How the momentum follows from an exchange: m <- w D / Gamma, or m <- m + (mean w - w) D / Gamma.
enum class momentum_rule { replace, correct };

/// Worker i sends z = D^p w with w = P a - x. Decoded magnitudes are limited to limit * Gamma * D^p.
/// Then a <- P a - mean w, x <- a, and the momentum by rule; a window of one step always replaces it.
///
/// Source: 0/1 Adam, Algorithm 1, with the displacement from the anchor in place of the sum of momenta.
template <power P = power::one, momentum_rule Rule = momentum_rule::correct>
struct displacement : exchange_facts {
  static constexpr bool closes_window = true;
  static constexpr bool divides_by_gamma = true;
  using fields = zoadam::fields<field<at::anchor_t, home::replica>>;
  using open_pass = void;  ///< nothing to add up between exchanges: w follows from a and x

  template <class Sink>
  void describe(Sink& sink) const {
    sink("displacement", P == power::zero ? 0.0 : P == power::half ? 0.5 : 1.0);
    sink(Rule == momentum_rule::correct ? "correct" : "replace");
  }

  /// single_step: the window has one step. replay: the window's last local step is not stored in x.
  template <class F>
  static decltype(auto) form(bool single_step, bool replay, F f) {
    if constexpr (Rule == momentum_rule::correct) {
      if (!single_step) return replay ? f(correcting<true>{}) : f(correcting<false>{});
    }
    return f(replacing{});
  }

  struct common : exchange_form {
    static constexpr bool masked = true;
    static constexpr bool limited = true;
    using send_reads = tags<at::parameter_t, at::variance_t, at::anchor_t, at::momentum_t>;
    using bound_reads = tags<at::variance_t>;
    using rewrites = tags<at::parameter_t>;

    template <class Registers>
    ZOADAM_INLINE static auto active(Registers const& r) noexcept {
      return formula::active(r);
    }
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      auto const w = k.decay * r[at::anchor] - r[at::parameter];
      if constexpr (P == power::zero) {
        return w;
      } else {
        return weight(r, k) * w;
      }
    }
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto limit(Registers const& r, Coefficients const& k) noexcept {
      auto const bound = k.limit * k.gamma;
      if constexpr (P == power::zero) {
        return bound + k.unlimited;
      } else {
        return bound * weight(r, k) + k.unlimited;
      }
    }

   protected:
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto weight(Registers const& r, Coefficients const& k) noexcept {
      auto const d = formula::denominator(r, k);
      if constexpr (P == power::half) {
        return sqrt(d);
      } else {
        return d;
      }
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static Lane mean_displacement(Registers const& r, Lane value, Coefficients const& k) noexcept {
      if constexpr (P == power::zero) {
        return value;
      } else {
        return select(active(r), value / weight(r, k), Lane(0.0f));
      }
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void move(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::anchor] = k.decay * r[at::anchor] - mean;
      r[at::parameter] = r[at::anchor];
    }
  };

  struct replacing : common {
    using receive_reads = tags<at::variance_t, at::anchor_t>;
    using receive_writes = tags<at::momentum_t, at::anchor_t, at::parameter_t>;
    using rewrites_active = tags<at::momentum_t>;
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane value, Coefficients const& k) noexcept {
      Lane const mean = common::mean_displacement(r, value, k);
      r[at::momentum] = flush(mean * formula::denominator(r, k) * k.per_gamma, smallest_state);
      common::move(r, mean, k);
    }
  };

  // x is not stored before the exchange, so that a failing exchange leaves it as it was; receive() steps again.
  template <bool Replay>
  struct correcting : common {
    using receive_reads = tags<at::variance_t, at::anchor_t, at::momentum_t, at::parameter_t>;
    using receive_writes = tags<at::momentum_t, at::anchor_t, at::parameter_t>;
    using rewrites_active = tags<>;
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane value, Coefficients const& k) noexcept {
      if constexpr (Replay) local_step::run(r, k);
      Lane const w = k.decay * r[at::anchor] - r[at::parameter];
      Lane const mean = common::mean_displacement(r, value, k);
      Lane const corrected = r[at::momentum] + (mean - w) * formula::denominator(r, k) * k.per_gamma;
      r[at::momentum] = select(common::active(r), flush(corrected, smallest_state), r[at::momentum]);
      common::move(r, mean, k);
    }
  };
};

}  // namespace zoadam
