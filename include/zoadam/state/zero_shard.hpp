// SPDX-License-Identifier: Apache-2.0
// ZeRO: the state of an element lives at the owner of its chunk alone.
#pragma once

#include "zoadam/concepts/state.hpp"
#include "zoadam/detail/segment.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/regrouped.hpp"
#include "zoadam/state/adam.hpp"
#include "zoadam/state/onebit_adam.hpp"

namespace zoadam {
namespace detail {

template <class Fields>
struct at_owners_;
template <class... Fields>
struct at_owners_<fields<Fields...>> {
  static_assert(((Fields::where != home::worker) && ...),
                "zoadam: zero_shard: a value that each worker has for itself has no owner; shard a state whose "
                "fields are the same on all workers");
  static_assert((!is_tensor_scalar<typename Fields::tag> && ...),
                "zoadam: zero_shard: a tensor may have several owners, none of which could compute its norm");
  static_assert((!is_slice_value<typename Fields::tag> && ...),
                "zoadam: zero_shard: a slice may have several owners, none of which could compute its value");
  using type = fields<field<typename Fields::tag, home::owner>...>;
};
/// The same fields, at owners.
template <class Fields>
using at_owners = typename at_owners_<Fields>::type;

/// The form of an exchange of gradients with everything that a step does after it moved to the owner, who sends the
/// parameters down.
template <bool Master, class Form, class... Steps>
struct shard_form : exchange_form {
  static_assert(!Form::masked && !Form::limited,
                "zoadam: zero_shard: the form of the exchange must take part with all elements, without a limit");
  static constexpr bool unconditional = true;
  using send_reads = typename Form::send_reads;
  using work = segment<Form, nothing, Steps...>;
  using own_reads = typename work::loads;
  using own_writes = subtract<typename work::stores, std::conditional_t<Master, tags<>, tags<at::parameter_t>>>;
  using receive_reads = tags<>;
  using receive_writes = tags<at::parameter_t>;

  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
    return Form::send(r, k);
  }
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static Lane own(Registers& r, Lane mean, Coefficients const& k) noexcept {
    Form::receive(r, mean, k);
    return stepped(r, k);
  }
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto missing(Registers& r, Coefficients const& k) noexcept {
    if constexpr (!std::is_void_v<typename Form::otherwise>) Form::otherwise::run(r, k);
    return stepped(r, k);
  }
  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static void receive(Registers& r, Lane value, Coefficients const&) noexcept {
    r[at::parameter] = value;
  }

 private:
  template <class Registers, class Coefficients>
  ZOADAM_INLINE static auto stepped(Registers& r, Coefficients const& k) noexcept {
    (Steps::run(r, k), ...);
    return r[at::parameter];
  }
};

/// What, formed as above.
template <bool Master, class What, class... Steps>
struct in_shard : What {
  template <class F>
  static decltype(auto) form(bool single_step, bool replay, F f) {
    return What::form(single_step, replay, [&]<class Form>(Form) { return f(shard_form<Master, Form, Steps...>{}); });
  }
};

template <class Wire, class Program>
struct shard_program {
  static_assert(sizeof(Program) == 0,
                "zoadam: zero_shard needs a state that is one exchange and the passes after it: an owner has the "
                "fields of its own chunk alone");
};
template <class Wire, class What, class When, class Up, class Down, class... Steps>
struct shard_program<Wire, std::tuple<exchange<What, When, Up, Down>, pass<Steps>...>> {
  static constexpr bool master = !std::same_as<Wire, identity_quantizer>;
  using down = regrouped<Wire, typename Up::groups>;
  using type = std::tuple<exchange<in_shard<master, What, Steps...>, When, Up, down>>;
};

}  // namespace detail

/// ZeRO, stage 1: moments at the owner of each chunk. Gradients are reduced straight into the chunk, whose owner
/// steps and sends the parameters down; no rank ever holds the whole mean gradient, but every rank holds its own (see
/// zoadam::sharded for stages 2 and 3). With the
/// identity quantizer the parameters are those of Inner, bit for bit; casts round gradients on the way up alone.
///
/// Inner     a state that exchanges the mean gradient at every step and keeps the same values on all workers
/// Wire      how parameters travel: in float32, or as a cast, and then owners keep them in float32 besides (for
///           tensors given in 16 bits alone)
/// Memory    4 / n bytes per parameter for each field of Inner, and 4 / n for the float32 parameters of a cast
///
/// Source: ZeRO, section 5.1.
template <class Inner = adam_state, quantizer Wire = identity_quantizer>
struct zero_shard : Inner {
  using fields = detail::join<detail::at_owners<typename Inner::fields>,
                              std::conditional_t<std::same_as<Wire, identity_quantizer>, zoadam::fields<>,
                                                 zoadam::fields<field<at::master_t, home::owner>>>>;

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer q, Sync when) const {
    auto const replicated = Inner::program(q, when);
    using sharded = detail::shard_program<Wire, std::remove_const_t<decltype(replicated)>>;
    return typename sharded::type{{std::get<0>(replicated).when}};
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("zero_shard");
    Wire{}.describe(sink);
    Inner::describe(sink);
  }
};

/// The worker's gradient in, m / D out: the owner's step of 1-bit Adam in a shard.
struct shard_direction : exchange_facts {
  static constexpr bool carries_gradient = true;
  static constexpr bool closes_window = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(compressed{});
  }

  struct common : exchange_form {
    static constexpr bool unconditional = true;

    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }

   protected:
    /// m / D on active elements, 0 elsewhere.
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto direction(Registers const& r, Coefficients const& k) noexcept {
      using lane = formula::value_of<Registers>;
      return select(formula::active(r), r[at::momentum] / formula::denominator(r, k), lane(0.0f));
    }
    /// x <- x - lr (p + weight_decay x)
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void move(Registers& r, Lane p, Coefficients const& k) noexcept {
      r[at::parameter] = formula::moved(r[at::parameter], k.lr * (p + k.weight_decay * r[at::parameter]));
    }
  };

  /// With a compensated quantizer, whether an element is active is a mark in the worker's error: the variance is at
  /// the owner alone.
  using error = at::worker_error_t<shard_direction>;

  struct compressed : common {
    static constexpr bool masked = true;
    static constexpr bool marks_active = true;
    using bound_reads = tags<error>;
    using send_reads = tags<at::gradient_t, error>;
    using own_reads = tags<at::momentum_t, at::variance_t>;
    using own_writes = tags<at::momentum_t>;
    using receive_reads = tags<at::parameter_t, error>;
    using receive_writes = tags<at::parameter_t>;

    template <class Registers>
    ZOADAM_INLINE static auto active(Registers const& r) noexcept {
      return any_bit(r[error{}]);
    }
    template <class Registers, class Lane>
    ZOADAM_INLINE static auto waiting(Registers const&, Lane gradient) noexcept {
      return nonzero(gradient);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static Lane own(Registers& r, Lane mean, Coefficients const& k) noexcept {
      r[at::momentum] = select(formula::active(r), formula::next_momentum(r, mean, k), r[at::momentum]);
      return common::direction(r, k);
    }
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto missing(Registers& r, Coefficients const& k) noexcept {
      return common::direction(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane p, Coefficients const& k) noexcept {
      common::move(r, p, k);
    }
  };
};

/// The same with both moments from the exact mean, before the freeze. -0 comes down for an active element that does
/// not move, +0 for an inactive one.
struct exact_shard_direction : shard_direction {
  static constexpr bool advances_variance = true;

  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(exact{});
  }
  struct exact : shard_direction::common {
    using send_reads = tags<at::gradient_t>;
    using own_reads = tags<at::momentum_t, at::variance_t>;
    using own_writes = tags<at::momentum_t, at::variance_t>;
    using receive_reads = tags<at::parameter_t, error>;
    using receive_writes = tags<at::parameter_t, error>;

    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static Lane own(Registers& r, Lane mean, Coefficients const& k) noexcept {
      moments_update::the_form::receive(r, mean, k);
      return missing(r, k);
    }
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto missing(Registers& r, Coefficients const& k) noexcept {
      return formula::marked(common::direction(r, k), formula::active(r));
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane p, Coefficients const& k) noexcept {
      r[error{}] = formula::marked(r[error{}], any_bit(p));
      common::move(r, p, k);
    }
  };
};

/// 1-bit Adam in a shard: exact both ways until the variance freezes; after that compressed gradients travel up and
/// compressed m / D down, errors compensated on both sides.
///
/// Memory  8 / n bytes per parameter for the moments, 4 for the worker's errors, 4 / n for the owner's
template <>
struct zero_shard<onebit_adam_state<freeze_at>, identity_quantizer> : onebit_adam_state<freeze_at> {
  using fields = detail::at_owners<onebit_adam_state<freeze_at>::fields>;

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync) const {
    static_assert(std::same_as<Sync, every_step>,
                  "zoadam: a flat shard cannot take local steps: a worker has the moments of its own chunk alone");
    static_assert(Quantizer::compensated,
                  "zoadam: zero_shard<onebit_adam_state> needs error_feedback, where it marks active elements");
    using exact = regrouped<identity_quantizer, typename Quantizer::groups>;
    return std::tuple(exchange<exact_shard_direction, before_freeze, exact>{},
                      exchange<shard_direction, after_freeze, Quantizer>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("zero_shard");
    onebit_adam_state<freeze_at>::describe(sink);
  }
};
static_assert(state<zero_shard<>> && state<zero_shard<onebit_adam_state<>>>);

}  // namespace zoadam
