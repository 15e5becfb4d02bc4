// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam: exact moments until the variance freezes, a compressed momentum after that.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/state/adam.hpp"

namespace zoadam {

/// Until and including the step at which the state freezes.
struct before_freeze {
  constexpr bool due(clock const& c) const noexcept { return c.step <= c.frozen_at; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("before_freeze");
  }
};
/// After that step.
struct after_freeze {
  constexpr bool due(clock const& c) const noexcept { return c.step > c.frozen_at; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("after_freeze");
  }
};

/// The state freezes at a given step.
struct freeze_at {
  index step = 0;  ///< the last exact step; 0: the variance never changes, so a caller must set it

  constexpr void start(clock& c) const noexcept { c.frozen_at = step; }
  constexpr char const* defect() const noexcept {
    return step < 1 ? "freeze.step must be set, to 1 or more" : nullptr;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("freeze_at", step);
  }
};

/// The state freezes once the variance has settled: |v_t|_1 / |v_{t - lag}|_1 >= ratio, looked at every `lag` steps
/// after `warmup`. The usual lag is 1 / (1 - beta2).
///
/// Source: 1-bit Adam, section 7.1; there the ratio is watched at every step, here at every lag-th, so that one
/// number is all there is to remember.
struct freeze_when_settled {
  index warmup = 0;
  index lag = 1000;
  double ratio = 0.96;

  constexpr bool due(clock const& c) const noexcept {
    return c.frozen_at == never && c.step >= warmup && (c.step - warmup) % lag == 0;
  }
  constexpr void start(clock&) const noexcept {}
  constexpr char const* defect() const noexcept {
    if (warmup < 0) return "freeze.warmup must be >= 0";
    if (lag < 1) return "freeze.lag must be >= 1";
    return detail::finite(ratio) && ratio > 0 ? nullptr : "freeze.ratio must be finite and > 0";
  }
  constexpr void observe(clock& c, double norm) const noexcept {
    if (c.statistic > 0 && norm >= ratio * c.statistic) c.frozen_at = c.step;
    c.statistic = norm;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("freeze_when_settled", warmup, lag, ratio);
  }
};

/// |v|
struct variance_norm {
  using reads = tags<at::variance_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto term(Registers const& r, Coefficients const&) noexcept {
    return r[at::variance];
  }
};

/// Worker i sends m_i = beta1 m + (1 - beta1) g; m <- mean m_i on active elements (Masked), or on all.
template <bool Masked = true>
struct momentum_average : exchange_facts {
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    static constexpr bool masked = Masked;
    using send_reads = tags<at::gradient_t, at::momentum_t, at::variance_t>;
    using bound_reads = tags<at::variance_t>;
    using receive_reads = tags<at::momentum_t, at::variance_t>;
    using receive_writes = tags<at::momentum_t>;
    template <class Registers>
    ZOADAM_INLINE static auto active(Registers const& r) noexcept {
      return formula::active(r);
    }
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::own_momentum(r, k);
    }
    template <class Registers, class Lane>
    ZOADAM_INLINE static auto waiting(Registers const&, Lane momentum) noexcept {
      return nonzero(momentum);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const&) noexcept {
      Lane const next = flush(mean, smallest_state);
      if constexpr (Masked) {
        r[at::momentum] = select(active(r), next, r[at::momentum]);
      } else {
        r[at::momentum] = next;
      }
    }
  };
};

/// 1-bit Adam. Freeze: freeze_at, or freeze_when_settled.
///
/// Source: 1-bit Adam, Algorithm 1.
template <class Freeze = freeze_at>
struct onebit_adam_state {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>>;
  using agreed = at::parameter_t;

  Freeze freeze{};

  constexpr void start(clock& c) const noexcept { freeze.start(c); }
  constexpr char const* defect() const noexcept { return freeze.defect(); }
  constexpr void observe(clock& c, double value) const noexcept requires requires(Freeze f) { f.observe(c, value); }
  { freeze.observe(c, value); }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    static_assert(std::same_as<Sync, every_step>,
                  "zoadam: onebit_adam_state exchanges at every step; use frozen_variance_state for local steps");
    auto const exact = exchange<moments_update, before_freeze, identity_quantizer>{};
    auto const compressed = exchange<momentum_average<>, after_freeze, Quantizer>{};
    if constexpr (sync<Freeze>) {
      return std::tuple(exact, reduction<variance_norm, Freeze>{freeze}, compressed, pass<local_step>{});
    } else {
      return std::tuple(exact, compressed, pass<local_step>{});
    }
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("onebit_adam");
    freeze.describe(sink);
  }
};
static_assert(state<onebit_adam_state<>> && state<onebit_adam_state<freeze_when_settled>>);

}  // namespace zoadam
