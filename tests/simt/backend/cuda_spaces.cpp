// SPDX-License-Identifier: Apache-2.0
// Exchange spaces on a device, with every kind of group: the bits of the CPU.
#include "simt/device.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/state/published.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;

template <class Groups, class Norm, class Sync, class Space>
using over = threaded<sign_with_feedback<Groups, Norm>, Sync, frozen_variance_state<Space>>;
constexpr auto replace = momentum_rule::replace, correct = momentum_rule::correct;

using zero_replace = over<block<64>, l1, local_steps, displacement<power::zero, replace>>;
using zero_correct = over<per_tensor, l1, fixed_interval, displacement<power::zero, correct>>;
using half_replace = over<whole, l2, learning_rate_interval, displacement<power::half, replace>>;
using half_correct = over<block<128>, l2, local_steps, displacement<power::half, correct>>;
using one_replace = over<per_tensor, l2, local_steps, displacement<power::one, replace>>;
using one_correct = over<whole, l1, learning_rate_interval, displacement<power::one, correct>>;
using sum_replace = over<per_tensor, l1, fixed_interval, momentum_sum<replace>>;
using sum_correct = over<whole, l1, local_steps, momentum_sum<correct>>;

TEST_CASE_TEMPLATE("spaces", Optimizer, zero_replace, zero_correct, half_replace, half_correct, one_replace,
                   one_correct, sum_replace, sum_correct) {
  compare_many<Optimizer>();
}

TEST_CASE_TEMPLATE("groups of several blocks of sums, whose borders are no tensor's", Optimizer, one_replace,
                   one_correct, sum_replace) {
  pair_job<Optimizer> job;
  job.ranks = 2;
  job.sizes = {700, 0, 4099, 33, 2048, 1, 5000};
  job.shifts = {0, 0, 1, 0, 0, 3, 0};
  job.steps = 8;
  compare_with_cpu(job);
}

}  // namespace
