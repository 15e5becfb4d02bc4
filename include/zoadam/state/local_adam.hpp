// SPDX-License-Identifier: Apache-2.0
// Local Adam: each worker keeps its own moments; parameters are averaged now and then.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/state/adam.hpp"

namespace zoadam {

/// v <- beta2 v + (1 - beta2) g^2 with this worker's own gradient.
struct local_variance {
  static constexpr bool advances_variance = true;
  using reads = tags<at::gradient_t, at::variance_t>;
  using writes = tags<at::variance_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::variance] = formula::own_variance(r, k);
  }
};

/// Worker i sends w = P a - x; a <- P a - mean w, x <- a. Moments stay.
struct parameter_average : exchange_facts {
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::parameter_t, at::anchor_t>;
    using rewrites = tags<at::parameter_t>;
    using receive_reads = tags<at::anchor_t>;
    using receive_writes = tags<at::anchor_t, at::parameter_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return k.decay * r[at::anchor] - r[at::parameter];
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::anchor] = k.decay * r[at::anchor] - mean;
      r[at::parameter] = r[at::anchor];
    }
  };
};

/// Adam on each worker by itself, with an average of the parameters when the sync policy says so.
///
/// Source: local SGD with Adam as the local optimizer (the inner part of DiLoCo).
struct local_adam_state {
  using fields = zoadam::fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::worker>,
                                field<at::anchor_t, home::replica>>;
  using agreed = at::anchor_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(keeps_zero<Quantizer>,
                  "zoadam: local_adam_state has no variance that all workers share, so nothing says which elements a "
                  "sign would move for no reason; use identity_quantizer, a cast, or frozen_variance_state");
    return std::tuple(pass<local_variance>{}, pass<local_momentum>{}, pass<corrected_step>{},
                      exchange<parameter_average, Sync, Quantizer>{when});
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("local_adam");
  }
};
static_assert(state<local_adam_state>);

/// Adam on one worker that has no peers, or whose peers come in elsewhere, as in a shard: no exchange, no messages,
/// the bits of adam_state.
struct lone_adam_state {
  using fields = zoadam::fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::worker>>;
  using agreed = at::parameter_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    return std::tuple(pass<local_variance>{}, pass<local_momentum>{}, pass<corrected_step>{});
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("lone_adam");
  }
};
static_assert(state<lone_adam_state>);

}  // namespace zoadam
