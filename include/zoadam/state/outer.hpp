// SPDX-License-Identifier: Apache-2.0
// Outer steps: what all workers do with the mean displacement of their local steps.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/state/adam.hpp"
#include "zoadam/state/local_adam.hpp"

namespace zoadam {

/// a <- a - mean w: the average of the workers' parameters, as far as the quantizer lets it through.
struct outer_average {
  using fields = zoadam::fields<>;
  using reads = tags<>;

  constexpr char const* defect() const noexcept { return nullptr; }
  constexpr void set(detail::hyper_numbers&) const noexcept {}
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void step(Registers& r, Lane mean, Coefficients const&) noexcept {
    r[at::anchor] = r[at::anchor] - mean;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("outer_average");
  }
};

/// u <- momentum u + mean w;  a <- a - learning_rate (mean w + momentum u). u is the same on all workers.
///
/// Source: DiLoCo, Algorithm 1, OuterOpt; PyTorch's SGD with nesterov = True, the mean displacement as its gradient.
struct outer_nesterov {
  using fields = zoadam::fields<field<at::outer_momentum_t, home::replica>>;
  using reads = tags<at::outer_momentum_t>;

  double momentum = 0.9;       ///< in [0, 1)
  double learning_rate = 0.7;  ///< outer, > 0

  constexpr char const* defect() const noexcept {
    if (!(detail::finite(momentum) && momentum >= 0 && momentum < 1)) return "outer.momentum must be in [0, 1)";
    return detail::finite(learning_rate) && learning_rate >= 0x1p-64 && learning_rate <= 0x1p64
               ? nullptr
               : "outer.learning_rate must be in [2^-64, 2^64]";
  }
  constexpr void set(detail::hyper_numbers& h) const noexcept {
    h.outer_momentum = static_cast<float>(momentum);
    h.outer_lr = static_cast<float>(learning_rate);
  }
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void step(Registers& r, Lane mean, Coefficients const& k) noexcept {
    r[at::outer_momentum] = flush(k.outer_momentum * r[at::outer_momentum] + mean, smallest_state);
    r[at::anchor] = r[at::anchor] - k.outer_lr * (mean + k.outer_momentum * r[at::outer_momentum]);
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("nesterov", momentum, learning_rate);
  }
};

/// Worker i sends w = a - x; Outer steps from a, and x <- a. Moments stay with their worker.
///
/// P, the product of 1 - lr * weight_decay, takes no part: weight decay is in x as every local step has left it, so
/// it is in w, travels with the rest and is subject to the outer step. In a window whose learning rates are all 0
/// nobody has moved: nothing is sent and there is no outer step.
template <class Outer>
struct outer_exchange : exchange_facts {
  static constexpr bool closes_window = true;
  static constexpr bool divides_by_gamma = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::parameter_t, at::anchor_t>;
    using rewrites = tags<at::parameter_t>;
    using receive_reads = detail::unite<tags<at::anchor_t>, typename Outer::reads>;
    using receive_writes = detail::unite<receive_reads, tags<at::parameter_t>>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const&) noexcept {
      return r[at::anchor] - r[at::parameter];
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      Outer::step(r, mean, k);
      r[at::parameter] = r[at::anchor];
    }
  };
};

/// AdamW on each worker by itself, with its own moments and both bias corrections, and an outer step on the mean
/// displacement when the sync policy says so.
///
/// Outer   outer_average (local SGD's; SparseLoCo's) or outer_nesterov (DiLoCo's)
/// Memory  4 bytes per parameter for each moment and the anchor, and 4 for the outer momentum of outer_nesterov
///
/// Source: DiLoCo, Algorithm 1; SparseLoCo, Algorithm 1.
template <class Outer = outer_nesterov>
struct outer_state {
  using fields = detail::join<local_adam_state::fields, typename Outer::fields>;
  using agreed = at::anchor_t;

  [[no_unique_address]] Outer outer{};

  constexpr void start(clock&) const noexcept {}
  constexpr char const* defect() const noexcept { return outer.defect(); }
  constexpr void set(detail::hyper_numbers& h) const noexcept { outer.set(h); }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    static_assert(keeps_zero<Quantizer>,
                  "zoadam: outer_state has no variance that all workers share, so nothing says which elements a sign "
                  "would move for no reason; use identity_quantizer, a cast, or top_k_quantizer");
    return std::tuple(pass<local_variance>{}, pass<local_momentum>{}, pass<corrected_step>{},
                      exchange<outer_exchange<Outer>, Sync, Quantizer>{when});
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("outer");
    outer.describe(sink);
  }
};
static_assert(state<outer_state<>> && state<outer_state<outer_average>>);

}  // namespace zoadam
