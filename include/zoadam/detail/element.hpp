// SPDX-License-Identifier: Apache-2.0
// What loops do to one lane between its loads and its stores: formulas of a segment or of an owner, masks, bounds and
// errors. Every backend runs these; they know no optimizer.
#pragma once

#include <type_traits>

#include "zoadam/concepts/stage.hpp"
#include "zoadam/detail/segment.hpp"
#include "zoadam/lane/f32.hpp"
#include "zoadam/state/formulas.hpp"

namespace zoadam::detail {

/// Magnitudes of errors below this are stored as zero.
inline constexpr float smallest_error = 0x1p-96f;
inline constexpr float largest_float = 0x1.fffffep127f;

template <class Form>
inline constexpr bool bounded = Form::limited || Form::masked;

template <class Lane>
ZOADAM_INLINE Lane clamp(Lane value, Lane limit) noexcept {
  return max(min(value, limit), -limit);
}

/// The bound on decoded magnitudes: limit(r, k) where the form has one, none otherwise, 0 on inactive elements.
template <class Form, class Lane, class Registers>
ZOADAM_INLINE Lane bound(Registers const& r, coefficients<Lane> const& k) noexcept {
  Lane limit(largest_float);
  if constexpr (Form::limited) limit = Form::limit(r, k);
  if constexpr (Form::masked) limit = select(Form::active(r), limit, Lane(0.0f));
  return limit;
}

/// How a limit takes part in what stays of c.
enum class bounds { none, limit, marked_limit };
template <class Form>
inline constexpr bounds bounds_of = Form::marks_active ? bounds::marked_limit
                                    : bounded<Form>    ? bounds::limit
                                                       : bounds::none;

/// What stays in the error of c when `decoded` arrives.
template <bounds Bounds, class Lane>
ZOADAM_INLINE Lane residual(Lane c, Lane decoded, Lane limit) noexcept {
  if constexpr (Bounds != bounds::none) decoded = clamp(decoded, limit);
  Lane const kept = flush(c - decoded, smallest_error);
  if constexpr (Bounds == bounds::marked_limit) return formula::marked(kept, nonzero(limit));
  return kept;
}

/// What an error adds to the next value: itself, or its decayed rest.
template <class Quantizer, class Lane>
ZOADAM_INLINE Lane compensation(Lane error) noexcept {
  if constexpr (requires { Quantizer::error_decay; }) {
    if constexpr (Quantizer::error_decay != 1) return Lane(Quantizer::error_decay) * error;
  }
  return error;
}

/// A lane of a segment.
template <class Lane, class Segment>
struct element {
  using receive = typename Segment::receive;
  using send = typename Segment::send;
  static constexpr bool receives = !std::is_same_v<receive, nothing>;
  static constexpr bool sends = !std::is_same_v<send, nothing> && !Segment::reduces;

  registers<Lane, typename Segment::all> r;  ///< in: Segment::loads; out: Segment::stores
  Lane value, limit;                         ///< out: what is to be encoded, and the bound on what will be decoded
  typename Lane::mask arrived, leaving, waiting;

  /// received: decoded and not yet bounded; error: the worker's, added where Compensated.
  template <bool Compensated>
  ZOADAM_INLINE void run([[maybe_unused]] Lane received, [[maybe_unused]] Lane error,
                         coefficients<Lane> const& k) noexcept {
    if constexpr (receives) {
      if constexpr (receive::masked) arrived = receive::active(r);
      if constexpr (bounded<receive>) received = clamp(received, bound<receive>(r, k));
      auto const before = r;
      receive::receive(r, received, k);
      for_each_tag(typename receive::rewrites_active{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
        if constexpr (contains<typename Segment::loads, decltype(tag)>) r[tag] = select(arrived, r[tag], before[tag]);
      });
    }
    Segment::run_passes(r, k);
    if constexpr (sends) {
      value = send::send(r, k);
      if constexpr (send::masked) {
        leaving = send::active(r);
        waiting = (!leaving) & send::waiting(r, value);
      }
      if constexpr (Compensated) value = value + error;
      if constexpr (send::masked) value = select(leaving, value, Lane(0.0f));
      if constexpr (send::marks_active) value = formula::marked(value, leaving);
    }
  }
  ZOADAM_INLINE void find_limit(coefficients<Lane> const& k) noexcept { limit = bound<send>(r, k); }

  /// Tags whose register is stored only where `stored` says so: the others have not been loaded or must not change.
  template <class Tag>
  static constexpr bool partly = (sends && contains<typename send::rewrites_active, Tag>) ||
                                 (receives && contains<typename receive::rewrites_active, Tag> &&
                                  !contains<typename Segment::loads, Tag>);
  template <class Tag>
  ZOADAM_INLINE typename Lane::mask stored(Tag) const noexcept {
    if constexpr (contains<typename send::rewrites_active, Tag>) {
      return !leaving;
    } else {
      return arrived;
    }
  }
};

/// f(s, k) with the scalars s of tensor t, which it may set.
ZOADAM_CALLS_ANYTHING
template <class Scalars, class Fields, class F>
ZOADAM_HOST_DEVICE inline void update_scalars(Fields const& field, index t, coefficients<float> const& k,
                                              F const& f) {
  registers<f32, Scalars> s;
  for_each_tag(Scalars{}, [&](auto tag) { s[tag] = f32(field[tag][t]); });
  f(s, k.as<f32>());
  for_each_tag(Scalars{}, [&](auto tag) { field[tag][t] = s[tag].v; });
}

/// A lane at the owner of its chunk, in three steps: the bound, the sum over ranks by the caller, what is sent down.
template <class Lane, class Form>
struct owner_element {
  Lane limit;
  typename Lane::mask active;

  template <class Registers>
  ZOADAM_INLINE void begin([[maybe_unused]] Registers const& r,
                           [[maybe_unused]] coefficients<Lane> const& k) noexcept {
    if constexpr (bounded<Form>) limit = bound<Form>(r, k);
    if constexpr (Form::masked) active = Form::active(r);
  }
  ZOADAM_INLINE Lane bounded_value(Lane decoded) const noexcept {
    if constexpr (bounded<Form>) return clamp(decoded, limit);
    return decoded;
  }
  /// nobody: the mean is over no rank at all.
  template <bool Compensated, class Registers>
  ZOADAM_INLINE Lane finish(Registers& r, Lane mean, [[maybe_unused]] bool nobody, [[maybe_unused]] Lane error,
                            coefficients<Lane> const& k) const noexcept {
    Lane value;
    if constexpr (Form::unconditional) {
      value = nobody ? Form::missing(r, k) : Form::own(r, mean, k);
    } else {
      value = Form::own(r, mean, k);
    }
    if constexpr (Compensated) value = value + error;
    if constexpr (Form::masked) value = select(active, value, Lane(0.0f));
    return value;
  }
};

}  // namespace zoadam::detail
