// SPDX-License-Identifier: Apache-2.0
// States on a device, and parameter groups: the bits of the CPU.
#include "simt/device.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/state/published.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;

using settling = threaded<sign_with_feedback<>, every_step, onebit_adam_state<freeze_when_settled>>;
using published_onebit = threaded<sign_with_feedback<per_tensor, l2>, every_step, published_onebit_adam_state>;
using published_zero_one =
    threaded<sign_with_feedback<per_tensor, l2>, aligned_local_steps, published_zero_one_adam_state>;
using lamb_by_tensor = threaded<sign_with_feedback<per_tensor, l2>, every_step, onebit_lamb_state>;
using published_lamb = threaded<sign_with_feedback<whole, l2>, every_step, published_onebit_lamb_state>;
using half_moments = threaded<cast_quantizer<bfloat16>, learning_rate_interval, local_adam_state>;
using outer_momentum = threaded<cast_quantizer<bfloat16>, fixed_interval, outer_state<>>;
using half_variance = threaded<sign_with_feedback<block<64>>, local_steps,
                               frozen_variance_state<displacement<>, cast_quantizer<bfloat16>>>;

TEST_CASE_TEMPLATE("states", Optimizer, settling, published_onebit, published_zero_one, half_moments, half_variance,
                   outer_momentum) {
  compare_many<Optimizer>({300, 0, 1, 33, 129}, 18);
}

TEST_CASE_TEMPLATE("the plain family", Optimizer, sgd<>, momentum_sgd<>, nesterov_sgd<>, adagrad<>, rmsprop<>,
                   nadam<>, amsgrad<>, threaded<cast_quantizer<bfloat16>, fixed_interval, local_momentum_state>,
                   threaded<sign_with_feedback<block<64>>, every_step, ef_momentum_state<>>) {
  pair_job<Optimizer> job;
  job.sizes = {300, 0, 33, 129};
  job.steps = 12;  // at the tenth nobody has a gradient
  compare_with_cpu(job);
}

TEST_CASE_TEMPLATE("reductions per tensor", Optimizer, lamb<>, lars<>, onebit_lamb<>, lamb_by_tensor,
                   published_lamb) {
  compare_many<Optimizer>({300, 0, 1, 33, 129}, 12);
  pair_job<Optimizer> job;  // tensors of several blocks
  job.steps = 10;
  compare_with_cpu(job);
}

TEST_CASE_TEMPLATE("reductions per tensor: views that no vector access fits, 16 bits", Optimizer, lamb<>,
                   onebit_lamb<>) {
  pair_job<Optimizer> job;
  job.sizes = {701, 3, 4099, 2049, 64};
  job.shifts = {0, 1, 2, 3, 1};
  job.type = dtype::bfloat16;
  job.working = dtype::float16;
  job.steps = 10;
  compare_with_cpu(job);
}

TEST_CASE_TEMPLATE("more parameter groups than one launch carries", Optimizer, half_variance,
                   threaded<sign_with_feedback<whole>, local_steps, frozen_variance_state<>>) {
  pair_job<Optimizer> job;
  job.groups = 70;
  job.sizes = {};
  for (std::size_t t = 0; t < 71; ++t) job.sizes.push_back(t % 9);
  job.steps = 8;
  compare_with_cpu(job);
}

TEST_CASE("trusted gradients") {
  pair_job<half_variance> job;
  job.sizes = {300};
  job.gradient = [](int rank, int step, std::size_t n) { return noisy_gradient(2, rank, step, n); };
  job.set = [](auto& o) { o.trusted_gradients = true; };
  job.steps = 8;
  compare_with_cpu(job);
}

}  // namespace
