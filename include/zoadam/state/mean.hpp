// SPDX-License-Identifier: Apache-2.0
// The mean of the ranks' gradients by itself: a compressed all-reduce without an optimizer behind it.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/state/formulas.hpp"

namespace zoadam {

/// Every rank sends its gradient; the parameters become the mean.
struct gradient_mean : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<at::gradient_t>;
    using receive_reads = tags<>;
    using receive_writes = tags<at::parameter_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane mean, Coefficients const&) noexcept {
      r[at::parameter] = mean;
    }
  };
};

/// parameter <- compressed mean of the gradients, in two phases; errors are the only state.
struct mean_state {
  using fields = zoadam::fields<>;
  using agreed = at::parameter_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    return std::tuple(exchange<gradient_mean, Sync, Quantizer>{when});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("mean");
  }
};
static_assert(state<mean_state>);

}  // namespace zoadam
