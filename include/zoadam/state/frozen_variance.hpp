// SPDX-License-Identifier: Apache-2.0
// 0/1 Adam: local steps under a variance that is updated rarely.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/state/displacement.hpp"
#include "zoadam/sync/doubling_interval.hpp"

namespace zoadam {

/// Exchange of the mean gradient for the variance: v <- beta2 v + (1 - beta2) mean(g)^2.
struct variance_update : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool advances_variance = true;
  static constexpr bool variance_only = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::gradient_t>;
    using receive_reads = tags<at::variance_t>;
    using receive_writes = tags<at::variance_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::variance] = formula::next_variance(r, mean, k);
    }
  };
};

/// Moments whose variance follows its own schedule, and an exchange of Space (displacement, momentum_sum) when the
/// sync policy says so. VarianceQuantizer: how the variance rounds travel (identity, or a 16-bit cast).
///
/// Source: 0/1 Adam, Algorithm 1, with the variance updated before its use and the momentum taking in the present
/// gradient.
template <class Space = displacement<>, quantizer VarianceQuantizer = identity_quantizer>
struct frozen_variance_state {
  static_assert(
      keeps_zero<VarianceQuantizer>,
      "zoadam: a variance round of frozen_variance_state by a quantizer that cannot say zero would give a variance "
      "to elements without gradients; use identity_quantizer or a cast");
  using fields =
      detail::join<zoadam::fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::replica>>,
                   typename Space::fields>;
  using agreed = at::anchor_t;
  static constexpr bool reopens_variance = true;

  doubling_interval variance_schedule{};

  constexpr void start(clock&) const noexcept {}
  constexpr char const* defect() const noexcept {
    if (variance_schedule.kappa < 1) return "variance_schedule.kappa must be >= 1";
    return variance_schedule.stop < 0 ? "variance_schedule.stop must be >= 0" : nullptr;
  }

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    auto const variance = exchange<variance_update, doubling_interval, VarianceQuantizer>{variance_schedule};
    auto const space = exchange<Space, Sync, Quantizer>{when};
    if constexpr (std::is_void_v<typename Space::open_pass>) {
      return std::tuple(variance, pass<local_momentum>{}, pass<local_step>{}, space);
    } else {
      return std::tuple(variance, pass<local_momentum>{}, pass<local_step>{}, pass<typename Space::open_pass>{},
                        space);
    }
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("frozen_variance");
    Space{}.describe(sink);
    VarianceQuantizer{}.describe(sink);
    variance_schedule.describe(sink);
  }
};
static_assert(state<frozen_variance_state<>>);

}  // namespace zoadam
