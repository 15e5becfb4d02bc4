// SPDX-License-Identifier: Apache-2.0
// 0/1 Adam and what it stands beside: 1-bit Adam, Adam, local Adam. Arguments of aliases: Transport, Backend, and
// Sync where there is a choice.
#pragma once

#include "zoadam/backend/cpu.hpp"
#include "zoadam/optimizer.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/error_feedback.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"
#include "zoadam/state/adam.hpp"
#include "zoadam/state/frozen_variance.hpp"
#include "zoadam/state/local_adam.hpp"
#include "zoadam/state/momentum_sum.hpp"
#include "zoadam/state/onebit_adam.hpp"
#include "zoadam/sync/every_step.hpp"
#include "zoadam/sync/local_steps.hpp"
#include "zoadam/transport/single.hpp"

namespace zoadam {

/// 0/1 Adam: one bit per parameter and exchange, local steps between exchanges, variance rounds of 16 bits.
template <transport Transport = single_transport, backend Backend = cpu_backend, sync Sync = local_steps>
using zero_one_adam = optimizer<error_feedback<sign_quantizer<>>, Sync,
                                frozen_variance_state<displacement<>, cast_quantizer<bfloat16>>, Backend, Transport>;

/// 0/1 Adam as published: sum of momenta, one scale for the whole buffer, no bias correction unless asked for.
struct paper_zero_one_adam_state : frozen_variance_state<momentum_sum<>> {
  static constexpr bool bias_correction = false;
};
template <transport Transport = single_transport, backend Backend = cpu_backend, sync Sync = local_steps>
using zero_one_adam_paper =
    optimizer<error_feedback<sign_quantizer<whole>>, Sync, paper_zero_one_adam_state, Backend, Transport>;

/// 1-bit Adam; options.state.freeze.step is the last exact step and must be set.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using onebit_adam = optimizer<error_feedback<sign_quantizer<>>, every_step, onebit_adam_state<>, Backend, Transport>;

/// Adam with decoupled weight decay (AdamW), both bias corrections, full precision on the wire.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using adam = optimizer<identity_quantizer, every_step, adam_state, Backend, Transport>;

/// Adam on each worker with averaged parameters.
template <transport Transport = single_transport, backend Backend = cpu_backend, sync Sync = fixed_interval>
using local_adam = optimizer<identity_quantizer, Sync, local_adam_state, Backend, Transport>;

}  // namespace zoadam
