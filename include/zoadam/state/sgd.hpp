// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent: plain, with momentum, with Nesterov's; with local steps; with compressed gradients.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/state/frozen_variance.hpp"
#include "zoadam/state/local_adam.hpp"
#include "zoadam/sync/every_step.hpp"

namespace zoadam {

/// Defaults for what every rank makes of the mean gradient g of a step:
///   Update::reads, Update::writes, Update::run(r, g, k)
struct gradient_update {
  static constexpr bool advances_variance = false;
  using otherwise = void;  ///< the formula of a step for which no worker has a gradient, see exchange_form
};

/// Exchange of the mean gradient.
template <class Update>
struct gradient_exchange : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool advances_variance = Update::advances_variance;
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::gradient_t>;
    using receive_reads = typename Update::reads;
    using receive_writes = typename Update::writes;
    using otherwise = typename Update::otherwise;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      Update::run(r, mean, k);
    }
  };
};

/// Exchange of the mean gradient, which nobody stores: all loops of the step read it from the messages.
struct arriving_gradient_exchange : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool advances_variance = true;
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    static constexpr bool repeatable = true;
    using send_reads = tags<at::gradient_t>;
    using receive_reads = tags<>;
    using receive_writes = tags<at::arriving_gradient_t>;
    struct otherwise {
      using reads = tags<>;
      using writes = tags<at::arriving_gradient_t>;
      template <class Registers, class Coefficients>
      ZOADAM_INLINE static void run(Registers& r, Coefficients const&) noexcept {
        r[at::arriving_gradient] = formula::value_of<Registers>(0.0f);
      }
    };
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const&) noexcept {
      r[at::arriving_gradient] = mean;
    }
  };

  /// The stage, for states that live on the mean gradient of every step.
  template <class Quantizer, class Sync>
  static constexpr auto stage(Sync when) {
    static_assert(
        keeps_zero<Quantizer>,
        "zoadam: this state exchanges gradients, and the sign of a zero would raise its second moments; use "
        "identity_quantizer or a cast");
    static_assert(!sparse<Quantizer>,
                  "zoadam: sums over slices read single elements of a message, which a sparse one does not give; use "
                  "identity_quantizer or a cast");
    static_assert(std::same_as<Sync, every_step>, "zoadam: this state needs the mean gradient of every step");
    return exchange<arriving_gradient_exchange, Sync, Quantizer>{when};
  }
};

/// The program of a state that lives on the mean gradient of every step: its exchange with Update, then Passes.
template <class Update, class... Passes>
struct gradient_program {
  using agreed = at::parameter_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(
        keeps_zero<Quantizer>,
        "zoadam: this state exchanges gradients, and a quantizer that cannot say zero moves parameters that "
        "have none; use identity_quantizer, a cast, or ef_momentum_state");
    static_assert(std::same_as<Sync, every_step>,
                  "zoadam: this state needs the mean gradient of every step; for local steps use local_sgd_state, "
                  "local_momentum_state or local_adam_state");
    return std::tuple(exchange<gradient_exchange<Update>, Sync, Quantizer>{when}, pass<Passes>{}...);
  }
};

namespace formula {

/// x - lr (direction + weight_decay x)
template <class Registers, class Lane, class Coefficients>
ZOADAM_INLINE Lane descended(Registers const& r, Lane direction, Coefficients const& k) noexcept {
  return moved(r[at::parameter], k.lr * (direction + k.weight_decay * r[at::parameter]));
}

/// beta1 m + g
template <class Registers, class Lane, class Coefficients>
ZOADAM_INLINE Lane heavy_ball(Registers const& r, Lane g, Coefficients const& k) noexcept {
  return flush(k.beta1 * r[at::momentum] + g, smallest_state);
}

}  // namespace formula

/// x <- x - lr weight_decay x
struct decay_step {
  using reads = tags<at::parameter_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::moved(r[at::parameter], k.lr * (k.weight_decay * r[at::parameter]));
  }
};

/// x <- x - lr (m + weight_decay x)
struct momentum_step {
  using reads = tags<at::parameter_t, at::momentum_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::descended(r, r[at::momentum], k);
  }
};

/// x <- x - lr (g + weight_decay x)
struct sgd_update : gradient_update {
  using reads = tags<at::parameter_t>;
  using writes = tags<at::parameter_t>;
  using otherwise = decay_step;
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    r[at::parameter] = formula::descended(r, g, k);
  }
};

/// Stochastic gradient descent on the mean gradient of every step, with decoupled weight decay. It remembers nothing:
/// a step for which no worker has a gradient only decays.
struct sgd_state : gradient_program<sgd_update> {
  using fields = zoadam::fields<>;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("sgd");
  }
};
static_assert(state<sgd_state>);

/// m <- beta1 m + g
struct momentum_update : gradient_update {
  using reads = tags<at::momentum_t>;
  using writes = tags<at::momentum_t>;
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    r[at::momentum] = formula::heavy_ball(r, g, k);
  }
};

/// SGD with momentum: m <- beta1 m + g, x <- x - lr (m + weight_decay x).
///
/// Source: torch.optim.SGD with momentum = beta1 and no dampening; its weight decay is coupled, this one is not.
struct momentum_state : gradient_program<momentum_update, momentum_step> {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>>;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("momentum");
  }
};
static_assert(state<momentum_state>);

/// m <- beta1 m + g, x <- x - lr (g + beta1 m + weight_decay x); without a gradient the step is lr beta1 m.
struct nesterov_update : gradient_update {
  using reads = tags<at::parameter_t, at::momentum_t>;
  using writes = tags<at::parameter_t, at::momentum_t>;
  struct otherwise {
    using reads = nesterov_update::reads;
    using writes = tags<at::parameter_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
      r[at::parameter] = formula::descended(r, k.beta1 * r[at::momentum], k);
    }
  };
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Lane g, Coefficients const& k) noexcept {
    r[at::momentum] = formula::heavy_ball(r, g, k);
    r[at::parameter] = formula::descended(r, g + k.beta1 * r[at::momentum], k);
  }
};

/// SGD with Nesterov's momentum.
///
/// Source: torch.optim.SGD(nesterov=True), as above.
struct nesterov_state : gradient_program<nesterov_update> {
  using fields = zoadam::fields<field<at::momentum_t, home::replica>>;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("nesterov");
  }
};
static_assert(state<nesterov_state>);

// ---- local steps ----

/// x <- x - lr (g + weight_decay x) with this worker's own gradient; it counts as 0 where the worker has none.
struct local_descent {
  using reads = tags<at::gradient_t, at::parameter_t>;
  using writes = tags<at::parameter_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::parameter] = formula::descended(r, formula::gradient(r, k), k);
  }
};

/// m <- beta1 m + g with this worker's own gradient; m stays where it has none.
struct local_heavy_ball {
  using reads = tags<at::gradient_t, at::momentum_t>;
  using writes = tags<at::momentum_t>;
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
    r[at::momentum] = flush(k.own_beta1 * r[at::momentum] + formula::gradient(r, k), smallest_state);
  }
};

/// The program of Passes on each worker by itself, with an average of the parameters when the sync policy says so.
template <class... Passes>
struct local_program {
  using agreed = at::anchor_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(keeps_zero<Quantizer>,
                  "zoadam: in this state nothing says which elements a sign would move for no reason; use "
                  "identity_quantizer, a cast, or frozen_variance_state");
    return std::tuple(pass<Passes>{}..., exchange<parameter_average, Sync, Quantizer>{when});
  }
};

/// SGD on each worker by itself, with averaged parameters.
///
/// Source: Stich, Local SGD Converges Fast and Communicates Little, Algorithm 1.
struct local_sgd_state : local_program<local_descent> {
  using fields = zoadam::fields<field<at::anchor_t, home::replica>>;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("local_sgd");
  }
};
static_assert(state<local_sgd_state>);

/// The same with a momentum that each worker keeps to itself.
struct local_momentum_state : local_program<local_heavy_ball, momentum_step> {
  using fields = zoadam::fields<field<at::momentum_t, home::worker>, field<at::anchor_t, home::replica>>;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("local_momentum");
  }
};
static_assert(state<local_momentum_state>);

// ---- compressed gradients ----

/// m <- beta1 m + g on active elements; inactive ones, whose mean is 0, keep their 0.
struct active_gradient_exchange : gradient_exchange<momentum_update> {
  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : gradient_exchange<momentum_update>::the_form {
    static constexpr bool masked = true;
    using bound_reads = tags<at::variance_t>;
    using send_reads = tags<at::gradient_t, at::variance_t>;
    using receive_reads = tags<at::momentum_t, at::variance_t>;
    template <class Registers>
    ZOADAM_INLINE static auto active(Registers const& r) noexcept {
      return formula::active(r);
    }
    template <class Registers, class Lane>
    ZOADAM_INLINE static auto waiting(Registers const&, Lane g) noexcept {
      return nonzero(g);
    }
  };
};

/// Momentum SGD on a compressed mean gradient of every step, with any quantizer. A sign cannot say zero, so that
/// parameters without gradients would move: the variance rounds of 0/1 Adam tell which elements have had a gradient,
/// and nothing else is made of the variance.
///
/// Source: Zheng et al., Communication-Efficient Distributed Blockwise Momentum SGD with Error-Feedback, Algorithm 2,
/// with the errors in units of the gradient, without the learning rate in them, and the momentum at every rank.
template <quantizer VarianceQuantizer = identity_quantizer>
struct ef_momentum_state {
  static_assert(keeps_zero<VarianceQuantizer>,
                "zoadam: a variance round of ef_momentum_state by a quantizer that cannot say zero would give a "
                "variance to elements without gradients; use identity_quantizer or a cast");
  using fields = zoadam::fields<field<at::momentum_t, home::replica>, field<at::variance_t, home::replica>>;
  using agreed = at::parameter_t;
  static constexpr bool reopens_variance = true;

  doubling_interval variance_schedule{};

  constexpr void start(clock&) const noexcept {}
  constexpr char const* defect() const noexcept { return frozen_variance_state<>{variance_schedule}.defect(); }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(std::same_as<Sync, every_step>,
                  "zoadam: ef_momentum_state exchanges gradients at every step; use frozen_variance_state for local "
                  "steps");
    return std::tuple(exchange<variance_update, doubling_interval, VarianceQuantizer>{variance_schedule},
                      exchange<active_gradient_exchange, Sync, Quantizer>{when}, pass<momentum_step>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("ef_momentum");
    VarianceQuantizer{}.describe(sink);
    variance_schedule.describe(sink);
  }
};
static_assert(state<ef_momentum_state<>>);

}  // namespace zoadam
