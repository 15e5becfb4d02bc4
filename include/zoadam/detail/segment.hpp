// SPDX-License-Identifier: Apache-2.0
// A segment: what one fused loop does between two collectives. Its loads and stores are derived from its formulas.
#pragma once

#include <type_traits>

#include "zoadam/state/field.hpp"

namespace zoadam::detail {

/// No exchange at that end of a segment.
struct nothing {
  static constexpr bool repeatable = false;
  static constexpr bool masked = false;
  static constexpr bool limited = false;
  static constexpr bool marks_active = false;
  using send_reads = tags<>;
  using receive_reads = tags<>;
  using receive_writes = tags<>;
  using rewrites = tags<>;
  using rewrites_active = tags<>;
  using otherwise = void;
};

/// A segment that ends in the terms of a tensor_reduction.
template <class Formula>
struct reducing : nothing {
  using formula = Formula;
  using send_reads = typename Formula::reads;
  using results = unite<typename Formula::sums, typename Formula::maxima>;
};
/// A segment that ends in the terms of a slice_reduction.
template <class Formula>
struct slice_reducing : nothing {
  struct term {};
  struct formula {
    template <class Registers, class Results, class Coefficients>
    ZOADAM_INLINE static void terms(Registers const& r, Results& out, Coefficients const& k) noexcept {
      out[term{}] = Formula::term(r, k);
    }
  };
  using send_reads = typename Formula::reads;
  using results = tags<term>;
  using slices = typename Formula::slices;
};
template <class>
inline constexpr bool is_slice_reducing = false;
template <class Formula>
inline constexpr bool is_slice_reducing<slice_reducing<Formula>> = true;
template <class>
inline constexpr bool is_reducing = false;
template <class Formula>
inline constexpr bool is_reducing<reducing<Formula>> = true;

template <class Tags, class Scalars = tags<>>
struct collect_scalars {
  using type = Scalars;
};
template <class Tag, class... Rest, class Scalars>
struct collect_scalars<tags<Tag, Rest...>, Scalars>
    : collect_scalars<tags<Rest...>, std::conditional_t<is_tensor_scalar<Tag>, unite<Scalars, tags<Tag>>, Scalars>> {
};
/// The tags of tensor scalars among `Tags`.
template <class Tags>
using scalars_of = typename collect_scalars<Tags>::type;

template <class Loads, class Writes, class... Formulas>
struct pass_traffic {
  using loads = Loads;
  using writes = Writes;
};
template <class Loads, class Writes, class Formula, class... Rest>
struct pass_traffic<Loads, Writes, Formula, Rest...>
    : pass_traffic<unite<Loads, subtract<typename Formula::reads, Writes>>, unite<Writes, typename Formula::writes>,
                   Rest...> {};

/// Receive: form of the exchange whose result comes in, or nothing. Send: form of the exchange that the segment
/// feeds, reducing<Formula>, or nothing. Formulas: the passes between them.
template <class Receive, class Send, class... Formulas>
struct segment {
  using receive = Receive;
  using send = Send;

 private:
  // Values that receive() sets on active elements only do not count as set for whoever reads them later.
  using received = subtract<typename Receive::receive_writes, typename Receive::rewrites_active>;
  using passes = pass_traffic<typename Receive::receive_reads, received, Formulas...>;

 public:
  using reads = unite<typename passes::loads, subtract<typename Send::send_reads, typename passes::writes>>;
  using scalars = scalars_of<reads>;
  using loads = subtract<reads, scalars>;
  using written = unite<typename Receive::receive_writes, typename passes::writes>;
  using stores = subtract<subtract<written, transients_of<written>>, typename Send::rewrites>;
  using all = unite<reads, written>;
  using slices = slices_of<loads>;
  static constexpr bool reduces = is_reducing<Send> || is_slice_reducing<Send>;
  /// Whether every transient that it reads has been set in it.
  static constexpr bool complete = std::is_same_v<transients_of<reads>, tags<>>;
  static constexpr bool empty = std::is_same_v<stores, tags<>> && std::is_same_v<Send, nothing>;

  /// The segment with one more pass, and the segment that ends in a send.
  template <class Formula>
  using then = segment<Receive, Send, Formulas..., Formula>;
  template <class Form>
  using into = segment<Receive, Form, Formulas...>;
  using without_receive =
      std::conditional_t<std::is_void_v<typename Receive::otherwise>, segment<nothing, Send, Formulas...>,
                         segment<nothing, Send, typename Receive::otherwise, Formulas...>>;
  using without_send = segment<Receive, nothing, Formulas...>;
  /// What follows a reduction.
  using next = std::conditional_t<Receive::repeatable, segment<Receive, nothing>, segment<nothing, nothing>>;

  template <class Registers, class Coefficients>
  ZOADAM_INLINE static void run_passes(Registers& r, Coefficients const& k) noexcept {
    (Formulas::run(r, k), ...);
    (void)r, (void)k;
  }
};

}  // namespace zoadam::detail
