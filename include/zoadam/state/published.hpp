// SPDX-License-Identifier: Apache-2.0
// What the published Python implementations of 1-bit Adam, 1-bit LAMB and 0/1 Adam compute, for comparison and
// migration.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/state/onebit_adam.hpp"
#include "zoadam/state/onebit_lamb.hpp"

namespace zoadam {

/// x <- x - lr (m / D + weight_decay x) on every element, with variance or without.
struct unmasked_step {
  using reads = tags<at::parameter_t, at::momentum_t, at::variance_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto direction(Registers const& r, Coefficients const& k) noexcept {
    return r[at::momentum] / formula::denominator(r, k) + k.weight_decay * r[at::parameter];
  }
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::moved(r[at::parameter], k.lr * direction(r, k));
  }
};

/// 1-bit Adam as published: its step counter stands at 1 before the first step, and elements without variance are
/// treated like others.
struct published_onebit_adam_state {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>>;
  using agreed = at::parameter_t;
  static constexpr bool bias_correction = false;

  freeze_at freeze{};

  constexpr void start(clock& c) const noexcept {
    c.step = 1;
    freeze.start(c);
  }
  constexpr char const* defect() const noexcept { return freeze.defect(); }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    static_assert(std::same_as<Sync, every_step>, "zoadam: published_onebit_adam_state exchanges at every step");
    return std::tuple(exchange<moments_update, before_freeze, identity_quantizer>{},
                      exchange<momentum_average<false>, after_freeze, Quantizer>{}, pass<unmasked_step>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("published_onebit_adam");
    freeze.describe(sink);
  }
};
static_assert(state<published_onebit_adam_state>);

/// m / D on every element, with variance or without.
struct unmasked_direction {
  using reads = tags<at::momentum_t, at::variance_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto of(Registers const& r, Coefficients const& k) noexcept {
    return r[at::momentum] / formula::denominator(r, k);
  }
  template <class Registers, class Lane>
  ZOADAM_INLINE static Lane counted(Registers const&, Lane value) noexcept {
    return value;
  }
};

/// 1-bit LAMB as published: its step counter stands at 1 before the first step, there is no bias correction, and
/// elements without variance are treated like others.
struct published_onebit_lamb_state : onebit_lamb_state {
  static constexpr bool bias_correction = false;

  constexpr void start(clock& c) const noexcept {
    c.step = 1;
    freeze.start(c);
  }
  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    static_assert(std::same_as<Sync, every_step>, "zoadam: published_onebit_lamb_state exchanges at every step");
    return onebit_lamb_program<unmasked_direction, false, Quantizer>(ratios);
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("published");
    onebit_lamb_state::describe(sink);
  }
};
static_assert(state<published_onebit_lamb_state>);

/// Before the freeze: variance steps are the multiples of an interval that doubles after every `scaler` of them.
/// Variance: due on those steps; else on the others.
template <bool Variance>
struct aligned_warmup {
  index scaler = 16;

  constexpr bool variance_step(index t) const noexcept {
    index done = 1;  // the step counter before the first step
    for (index interval = 1;; interval *= 2) {
      index const first = (done / interval + 1) * interval, last = first + (scaler - 1) * interval;
      if (t <= last) return t >= first && t % interval == 0;
      done = last;
    }
  }
  constexpr bool due(clock const& c) const noexcept {
    return c.step <= c.frozen_at && variance_step(c.step) == Variance;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("aligned_warmup", scaler, Variance);
  }
};

/// After the freeze: steps that are multiples of min(longest, 2^floor(steps since the freeze / period)).
struct aligned_local_steps {
  index period = 512;
  index longest = 16;

  constexpr bool due(clock const& c) const noexcept {
    if (c.step <= c.frozen_at) return false;
    index const doublings = (c.step - c.frozen_at - 1) / period;
    index const interval = doublings >= 62 || (index{1} << doublings) > longest ? longest : index{1} << doublings;
    return c.step % interval == 0;
  }
  constexpr char const* defect() const noexcept {
    return period < 1 ? "period must be >= 1" : longest < 1 ? "longest must be >= 1" : nullptr;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("aligned_local_steps", period, longest);
  }
};
static_assert(sync<aligned_local_steps> && sync<aligned_warmup<true>>);

/// Compressed mean gradient for the momentum alone.
struct momentum_from_gradient : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : moments_update::the_form {
    using receive_reads = tags<at::momentum_t>;
    using receive_writes = tags<at::momentum_t>;
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::momentum] = formula::next_momentum(r, mean, k);
    }
  };
};

/// Before the freeze: the step, and the anchor follows.
struct anchored_step : unmasked_step {
  using writes = tags<at::parameter_t, at::anchor_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    unmasked_step::run(r, k);
    r[at::anchor] = r[at::parameter];
  }
};

/// After it: local momentum, u <- u + lr (m / D + weight_decay x), the step.
struct summed_step {
  using reads = tags<at::gradient_t, at::parameter_t, at::momentum_t, at::variance_t, at::momentum_sum_t>;
  using writes = tags<at::parameter_t, at::momentum_t, at::momentum_sum_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    local_momentum::run(r, k);
    r[at::momentum_sum] = flush(r[at::momentum_sum] + k.lr * unmasked_step::direction(r, k), smallest_state);
    unmasked_step::run(r, k);
  }
};

/// Worker i sends u D; m <- mean / Gamma, a <- a - mean / D, x <- a, u <- 0.
struct weighted_sum : exchange_facts {
  static constexpr bool closes_window = true;
  static constexpr bool divides_by_gamma = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::variance_t, at::momentum_sum_t>;
    using rewrites = tags<at::parameter_t, at::momentum_t, at::momentum_sum_t>;
    using receive_reads = tags<at::variance_t, at::anchor_t>;
    using receive_writes = tags<at::parameter_t, at::momentum_t, at::anchor_t, at::momentum_sum_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return r[at::momentum_sum] * formula::denominator(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::momentum] = flush(mean * k.per_gamma, smallest_state);
      r[at::anchor] = r[at::anchor] - mean / formula::denominator(r, k);
      r[at::parameter] = r[at::anchor];
      r[at::momentum_sum] = Lane(0.0f);
    }
  };
};

/// 0/1 Adam as published: aligned schedules, compressed gradients until the variance freezes, no bias correction.
struct published_zero_one_adam_state {
  using fields = zoadam::fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::replica>,
                                field<at::anchor_t, home::replica>, field<at::momentum_sum_t, home::worker>>;
  using agreed = at::anchor_t;
  static constexpr bool bias_correction = false;

  index variance_freeze_step = 0;
  index variance_scaler = 16;

  constexpr void start(clock& c) const noexcept {
    c.step = 1;
    c.frozen_at = variance_freeze_step + 1;  // the first step beyond it still belongs to the warm-up
  }
  constexpr char const* defect() const noexcept {
    if (variance_freeze_step < 1 || variance_freeze_step >= never)
      return "variance_freeze_step must be in [1, never)";
    if (variance_scaler < 1 || variance_scaler >= never) return "variance_scaler must be in [1, never)";
    return nullptr;
  }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(
        std::same_as<Sync, aligned_local_steps>,
        "zoadam: published_zero_one_adam_state needs aligned_local_steps; use frozen_variance_state for others");
    return std::tuple(exchange<moments_update, aligned_warmup<true>, identity_quantizer>{{variance_scaler}},
                      exchange<momentum_from_gradient, aligned_warmup<false>, Quantizer>{{variance_scaler}},
                      pass<anchored_step, before_freeze>{}, pass<summed_step, after_freeze>{},
                      exchange<weighted_sum, Sync, Quantizer>{when});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("published_zero_one_adam", variance_freeze_step, variance_scaler);
  }
};
static_assert(state<published_zero_one_adam_state>);

}  // namespace zoadam
