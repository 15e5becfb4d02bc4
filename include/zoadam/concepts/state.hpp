// SPDX-License-Identifier: Apache-2.0
// What a state policy is: declared fields and a program over them.
#pragma once

#include <concepts>
#include <utility>

#include "zoadam/concepts/stage.hpp"

namespace zoadam {

template <class State>
concept declares_fields = requires {
  typename State::fields;
  { State::fields::size } -> std::convertible_to<int>;
};

/// agreed: the tag of the parameters that all workers agree on, at::anchor_t or at::parameter_t.
template <class State>
concept names_agreed_parameters = requires {
  typename State::agreed;
};

/// start(clock): the schedule state before step 1.
template <class State>
concept starts_clock = requires(State const s, clock& c) {
  { s.start(c) }
  noexcept;
};

/// The state's program with a quantizer and a sync policy.
template <class State, class Quantizer, class Sync>
concept has_program = requires(State const s, Quantizer q, Sync w) {
  { s.program(q, w) } -> program;
};

template <class State>
concept state = policy<State> && declares_fields<State> && names_agreed_parameters<State> && starts_clock<State>;

template <class State, class Quantizer, class Sync>
using program_of = decltype(std::declval<State const&>().program(std::declval<Quantizer>(), std::declval<Sync>()));

}  // namespace zoadam
