// SPDX-License-Identifier: Apache-2.0
// The compositions that conformance cases have: kernels of all others would compile for minutes. A new case that
// needs one fails, and says so.
#pragma once

#include <concepts>

#include <zoadam/state/mean.hpp>
#include <zoadam/state/published.hpp>
#include <zoadam/aliases.hpp>

namespace suite {

template <class Type, class... Choices>
concept one_of = (std::same_as<Type, Choices> || ...);

template <class Quantizer, class State>
consteval bool has_case() {
  using namespace zoadam;
  using groups = typename Quantizer::groups;
  constexpr bool l1 = std::same_as<typename Quantizer::norm, zoadam::l1>;
  constexpr bool whole = std::same_as<groups, zoadam::whole>, blocks = one_of<groups, block<32>, block<64>>;
  using sum_replaced = frozen_variance_state<momentum_sum<momentum_rule::replace>>;
  using sum_corrected = frozen_variance_state<momentum_sum<momentum_rule::correct>>;
  if (std::same_as<State, mean_state>) return l1 ? !std::same_as<groups, block<256>> : !blocks;
  if (!l1)
    return one_of<State, published_onebit_adam_state, published_zero_one_adam_state> ||
           (whole && one_of<State, sum_replaced, published_onebit_lamb_state>);
  if (blocks) return one_of<State, frozen_variance_state<>, sum_corrected>;
  return whole && one_of<State, onebit_adam_state<>, zero_shard<onebit_adam_state<>>, sum_replaced, sum_corrected,
                         frozen_variance_state<displacement<power::zero, momentum_rule::replace>>,
                         frozen_variance_state<displacement<power::half, momentum_rule::correct>>,
                         frozen_variance_state<displacement<power::one, momentum_rule::replace>>>;
}

}  // namespace suite
