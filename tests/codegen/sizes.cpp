// SPDX-License-Identifier: Apache-2.0
// Policies without numbers cost no bytes: alone, in the options, in a program, in the optimizer.
#include <cstddef>
#include <type_traits>

#include <doctest/doctest.h>

#include "zoadam/aliases.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/transport/thread.hpp"

namespace {

using namespace zoadam;

template <class... Policies>
inline constexpr bool empty = (std::is_empty_v<Policies> && ...);

static_assert(empty<identity_quantizer, cast_quantizer<bfloat16>, cast_quantizer<float16>>);
static_assert(
    empty<sign_quantizer<>, sign_quantizer<block<64>>, sign_quantizer<per_tensor, l2>, sign_quantizer<whole>>);
static_assert(empty<error_feedback<sign_quantizer<>>, error_feedback<identity_quantizer>>);
static_assert(empty<top_k_quantizer<>, error_feedback<top_k_quantizer<>, std::ratio<19, 20>>>);
static_assert(empty<block<>, per_tensor, whole, l1, l2>);
static_assert(empty<every_step, always, before_freeze, after_freeze>);
static_assert(empty<adam_state, local_adam_state, mean_state>);
static_assert(empty<displacement<>, displacement<power::zero, momentum_rule::replace>, momentum_sum<>>);
static_assert(empty<local_momentum, local_step, corrected_step, local_variance, variance_norm>);
static_assert(empty<layerwise_step<>, momentum_scales, mean_gradient_update>);
static_assert(empty<sm3_state<>, sm3_step, slice_reduction<sm3_maxima>, adafactor_step>);

// Stages hold their schedule alone.
static_assert(empty<pass<local_step>, tensor_reduction<momentum_scales>,
                    exchange<displacement<>, every_step, sign_quantizer<>>>);
static_assert(empty<program_of<adam_state, identity_quantizer, every_step>>);
static_assert(sizeof(exchange<displacement<>, local_steps, sign_quantizer<>>) == sizeof(local_steps));
static_assert(sizeof(pass<local_step, doubling_interval>) == sizeof(doubling_interval));
// A state with numbers is as large as they are.
static_assert(sizeof(frozen_variance_state<>) == sizeof(doubling_interval));
static_assert(sizeof(onebit_adam_state<>) == sizeof(zoadam::index));

// Options: what comes after the last option that all compositions share.
template <class Options>
inline constexpr std::size_t shared_options = offsetof(Options, groups) + sizeof(std::vector<parameter_group>);

using adam_options = adam<>::options_type;
static_assert(sizeof(adam_options) == shared_options<adam_options>);
using mean_options = options<error_feedback<sign_quantizer<>>, every_step, mean_state>;
static_assert(sizeof(mean_options) == shared_options<mean_options>);
using zero_one_options = zero_one_adam<>::options_type;
static_assert(sizeof(zero_one_options) ==
              shared_options<zero_one_options> + sizeof(local_steps) + sizeof(doubling_interval));

// The whole object: a schedule's numbers lie in its options and in its stage, and every_step has none.
static_assert(sizeof(local_adam<single_transport, cpu_backend, fixed_interval>) ==
              sizeof(local_adam<single_transport, cpu_backend, every_step>) + 2 * sizeof(fixed_interval));
// Formulas and quantizers leave no trace in it.
static_assert(
    sizeof(optimizer<error_feedback<sign_quantizer<>>, every_step, mean_state, cpu_backend, single_transport>) ==
    sizeof(optimizer<error_feedback<sign_quantizer<per_tensor, l2>>, every_step, mean_state, cpu_backend,
                     single_transport>));

template <class T>
concept polymorphic = std::is_polymorphic_v<T>;
static_assert(!polymorphic<zero_one_adam<>> && !polymorphic<adam<>> && !polymorphic<cpu_backend>);
static_assert(!polymorphic<single_transport> && !polymorphic<thread_transport> &&
              !polymorphic<frozen_variance_state<>>);

TEST_CASE("options hold their policies at full use: their numbers do not overlap") {
  zero_one_options o;
  o.sync = {1, 2, 3};
  o.state.variance_schedule = {4, 5};
  o.groups = {{0.5, 2.0}};
  CHECK(o.sync.start == 1);
  CHECK(o.sync.longest == 3);
  CHECK(o.state.variance_schedule.kappa == 4);
  CHECK(o.state.variance_schedule.stop == 5);
  CHECK(o.groups.size() == 1);
  CHECK(sizeof(o) > sizeof(adam_options));
}

}  // namespace
