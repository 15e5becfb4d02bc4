// SPDX-License-Identifier: Apache-2.0
// A state is a program of stages: passes, reductions, tensor and slice reductions, and exchanges, run in order at
// every step.
#pragma once

#include <concepts>
#include <tuple>

#include "zoadam/concepts/quantizer.hpp"
#include "zoadam/concepts/sync.hpp"
#include "zoadam/state/coefficients.hpp"
#include "zoadam/state/field.hpp"

namespace zoadam {

/// Always due.
struct always {
  constexpr bool due(clock const&) const noexcept { return true; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("always");
  }
};

/// An element formula, run on every element in a fused loop.
///   Formula::reads, writes   tags of the values that run() uses and sets
///   Formula::run(r, k)       on registers r of one lane and coefficients k
template <class Formula, sync When = always>
struct pass {
  using formula = Formula;
  [[no_unique_address]] When when{};
};

/// A sum over all elements, handed to the state's observe(clock, value).
///   Formula::reads, Formula::term(r, k) -> lane
template <class Formula, sync When = always>
struct reduction {
  using formula = Formula;
  [[no_unique_address]] When when{};
};

/// Sums and maxima over each tensor by itself, from which scalars of the tensor follow. What has been gathered since
/// the last collective and the terms are one loop over memory; nothing of it goes to the host.
///   Formula::reads             tags of the values that terms() uses
///   Formula::sums, maxima      tags of the results, at most 4 together
///   Formula::scalars           tags of the tensor scalars that finish() uses and sets
///   Formula::terms(r, out, k)  sets out[tag] for every result on one lane; those of maxima are >= +0
///   formula.finish(all, elements, s, k)
///       for every tensor, empty ones too: results all[tag] in float64, the number of its elements, its scalars
///       s[tag]
/// and where a scalar follows from all tensors:
///   Formula::united            tags of scalars that are then summed over all tensors
///   formula.unite(all, tensors, s, k)
///       for every tensor: those sums in float64, the number of tensors that are not empty, its scalars
/// Members of a formula are its settings. Every sum is in the order of every sum; see lane/sum.hpp.
template <class Formula, sync When = always>
struct tensor_reduction {
  using formula_type = Formula;
  [[no_unique_address]] When when{};
  [[no_unique_address]] Formula formula{};
};

/// The sum or the maximum of a term over every slice of some fields, from which the value of the slice follows. What
/// has been gathered since the last collective and the terms are one loop over memory for a maximum, and one per
/// field for sums, which must therefore follow an exchange whose form is `repeatable`, and passes that store nothing.
///   Formula::reads          tags of the values that term() uses; where it is summed, not those of `slices`
///   Formula::slices         tags of the slice values that it sets; one where it is a maximum
///   Formula::maximum        whether term() is maximized (then it is >= +0) or summed
///   Formula::term(r, k)     on one lane
///   formula.finish(result, n, value, k) -> f32
///       for every slice: the result in float64, the number of its elements, its value so far
template <class Formula, sync When = always>
struct slice_reduction {
  using formula_type = Formula;
  [[no_unique_address]] When when{};
  [[no_unique_address]] Formula formula{};
};

/// Sends a value per element, takes the mean at the owner of its chunk, and gives the result to every rank.
///   What::form(single_step, replay, f)  calls f(Form{}) with the form that this exchange takes; see exchange_form
///   Up, Down                            quantizers of the two phases
template <class What, sync When, quantizer Up, quantizer Down = Up>
struct exchange {
  static_assert(
      std::same_as<typename Up::groups, typename Down::groups>,
      "zoadam: the two quantizers of an exchange must group elements alike, since one cut serves both phases");
  using what = What;
  using up = Up;
  using down = Down;
  [[no_unique_address]] When when{};
};

/// Defaults for the facts about What is exchanged.
struct exchange_facts {
  static constexpr bool carries_gradient = false;   ///< a worker with a bad gradient contributes nothing
  static constexpr bool advances_variance = false;  ///< counts as an update of the variance
  static constexpr bool variance_only = false;      ///< serves the variance alone: reported beside the exchanges
  static constexpr bool closes_window = false;      ///< all workers agree on the parameters at the end of the step
  static constexpr bool idempotent = false;         ///< synchronize() runs it whether parameters agree or not
  static constexpr bool divides_by_gamma = false;   ///< nothing is sent while the sum of learning rates is 0
  static constexpr bool tells_contributed = false;  ///< later stages use the coefficient `contributed`
};

/// Defaults for the form of an exchange. A form says, as element formulas,
///   send_reads, send(r, k)                 what a worker sends
///   own_reads, own_writes, own(r, mean, k)
///                                          what the owner makes of the mean before it is sent down; of owner fields,
///                                          and of others at the same elements
///   receive_reads, receive_writes, receive(r, value, k)
/// send() and receive() may read scalars of a tensor. And, as facts about it:
struct exchange_form {
  static constexpr bool masked = false;   ///< active(r) says which elements take part
  static constexpr bool limited = false;  ///< limit(r, k) bounds decoded magnitudes
  /// active() is whether the worker's error is anything but +0: what is sent and what is kept of an active element is
  /// -0 where it would be +0, which no sum, sign or scale can tell from +0.
  static constexpr bool marks_active = false;
  /// Owners have something to send down where nobody contributed, too: missing(r, k) in place of own().
  static constexpr bool unconditional = false;
  /// receive() sets transients only: every loop up to the next exchange receives the message anew.
  static constexpr bool repeatable = false;
  using bound_reads = tags<>;  ///< what active() and limit() use
  using own_reads = tags<>;
  using own_writes = tags<>;
  /// Values that receive() sets anew, so that loops before the exchange need not store them: on all elements, or on
  /// active ones.
  using rewrites = tags<>;
  using rewrites_active = tags<>;
  /// The formula of a pass in place of receive() where nobody contributed, void: there is none. It uses none but
  /// values that receive() reads, and sets none but those that it sets.
  using otherwise = void;

  template <class Registers, class Lane, class Coefficients>
  ZOADAM_INLINE static Lane own(Registers&, Lane mean, Coefficients const&) noexcept {
    return mean;
  }
  /// Elements without variance that have a momentum: they wait for the next variance update.
  template <class Registers, class Lane>
  ZOADAM_INLINE static auto waiting(Registers const& r, Lane) noexcept {
    return nonzero(r[at::momentum]);
  }
};

namespace detail {
template <class>
inline constexpr bool is_pass = false;
template <class F, class W>
inline constexpr bool is_pass<pass<F, W>> = true;
template <class>
inline constexpr bool is_reduction = false;
template <class F, class W>
inline constexpr bool is_reduction<reduction<F, W>> = true;
template <class>
inline constexpr bool is_tensor_reduction = false;
template <class F, class W>
inline constexpr bool is_tensor_reduction<tensor_reduction<F, W>> = true;
template <class>
inline constexpr bool is_slice_reduction = false;
template <class F, class W>
inline constexpr bool is_slice_reduction<slice_reduction<F, W>> = true;
template <class>
inline constexpr bool is_exchange = false;
template <class E, class W, class U, class D>
inline constexpr bool is_exchange<exchange<E, W, U, D>> = true;
template <class>
inline constexpr bool is_program = false;
}  // namespace detail

template <class Stage>
concept stage = detail::is_pass<Stage> || detail::is_reduction<Stage> || detail::is_tensor_reduction<Stage> ||
    detail::is_slice_reduction<Stage> || detail::is_exchange<Stage>;

namespace detail {
template <stage... Stages>
inline constexpr bool is_program<std::tuple<Stages...>> = true;
}

/// A std::tuple of stages.
template <class Program>
concept program = detail::is_program<Program>;

}  // namespace zoadam
