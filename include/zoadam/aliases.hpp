// SPDX-License-Identifier: Apache-2.0
// All common optimizers, each only a composition; those of zero_one_adam.hpp are in the umbrella header, too.
#pragma once

#include "zoadam/quantizer/top_k.hpp"
#include "zoadam/state/adafactor.hpp"
#include "zoadam/state/adaptive.hpp"
#include "zoadam/state/lamb.hpp"
#include "zoadam/state/lars.hpp"
#include "zoadam/state/onebit_lamb.hpp"
#include "zoadam/state/outer.hpp"
#include "zoadam/state/sgd.hpp"
#include "zoadam/state/sm3.hpp"
#include "zoadam/state/zero_shard.hpp"
#include "zoadam/zero_one_adam.hpp"

namespace zoadam {

/// Adam with its moments in shards: the same parameters, bit for bit.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using zero_adam = optimizer<identity_quantizer, every_step, zero_shard<adam_state>, Backend, Transport>;

/// 1-bit Adam with its moments in shards; options.state.freeze.step is the last exact step and must be set.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using zero_onebit_adam =
    optimizer<error_feedback<sign_quantizer<>>, every_step, zero_shard<onebit_adam_state<>>, Backend, Transport>;

/// Adam for one worker without peers: what runs on a shard of zoadam::sharded where there is one node.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using lone_adam = optimizer<identity_quantizer, every_step, lone_adam_state, Backend, Transport>;

/// LAMB: Adam's step scaled on each tensor, full precision on the wire.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using lamb = optimizer<identity_quantizer, every_step, lamb_state, Backend, Transport>;

/// 1-bit LAMB; options.state.freeze.step is the last exact step and must be set.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using onebit_lamb = optimizer<error_feedback<sign_quantizer<>>, every_step, onebit_lamb_state, Backend, Transport>;

/// LARS: momentum scaled on each tensor, full precision on the wire; options.beta1 is the momentum.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using lars = optimizer<identity_quantizer, every_step, lars_state, Backend, Transport>;

// The plain family: full precision on the wire at every step, the same state on every worker; see state/sgd.hpp and
// state/adaptive.hpp. options.beta1 is the momentum of the second and third.

template <transport Transport = single_transport, backend Backend = cpu_backend>
using sgd = optimizer<identity_quantizer, every_step, sgd_state, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using momentum_sgd = optimizer<identity_quantizer, every_step, momentum_state, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using nesterov_sgd = optimizer<identity_quantizer, every_step, nesterov_state, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using adagrad = optimizer<identity_quantizer, every_step, adagrad_state, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using rmsprop = optimizer<identity_quantizer, every_step, rmsprop_state, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using nadam = optimizer<identity_quantizer, every_step, nadam_state, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using amsgrad = optimizer<identity_quantizer, every_step, amsgrad_state, Backend, Transport>;

/// DiLoCo: AdamW on each worker, Nesterov momentum on the mean displacement; options.sync.interval is H, 15 to 500 in
/// use.
template <transport Transport = single_transport, backend Backend = cpu_backend, sync Sync = fixed_interval>
using diloco = optimizer<identity_quantizer, Sync, outer_state<outer_nesterov>, Backend, Transport>;

/// SparseLoCo: AdamW on each worker, the mean displacement at 64 elements of each 4096 and 2 bits, both ways, with
/// errors that decay by 0.95 from exchange to exchange; options.sync.interval is H, 15 to 250 in use.
template <transport Transport = single_transport, backend Backend = cpu_backend, sync Sync = fixed_interval>
using sparse_loco = optimizer<error_feedback<top_k_quantizer<>, std::ratio<19, 20>>, Sync, outer_state<outer_average>,
                              Backend, Transport>;

/// Adafactor and SM3: second moments of rows and columns, or of the indices of every axis, in place of elements.
template <transport Transport = single_transport, backend Backend = cpu_backend>
using adafactor = optimizer<identity_quantizer, every_step, adafactor_state<>, Backend, Transport>;
template <transport Transport = single_transport, backend Backend = cpu_backend>
using sm3 = optimizer<identity_quantizer, every_step, sm3_state<>, Backend, Transport>;

}  // namespace zoadam
