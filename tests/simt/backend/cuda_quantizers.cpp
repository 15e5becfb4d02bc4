// SPDX-License-Identifier: Apache-2.0
// Quantizers on a device: the bits of the CPU.
#include "simt/device.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/state/published.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;

template <class Quantizer, class Sync = local_steps>
using zero_one = threaded<Quantizer, Sync, frozen_variance_state<>>;
template <class Quantizer>
using mean_of = threaded<Quantizer, every_step, mean_state>;

TEST_CASE_TEMPLATE("blocks longer than those of sums", Optimizer, zero_one<sign_with_feedback<block<4096>>>,
                   zero_one<sign_with_feedback<block<8192>, l2>>, mean_of<sign_with_feedback<block<8192>>>) {
  for (int const ranks : {1, 2}) {
    pair_job<Optimizer> job;
    job.ranks = ranks;
    job.sizes = {9001, 1, 4097, 2048};
    job.steps = 5;
    compare_with_cpu(job);
  }
}

TEST_CASE_TEMPLATE("signs without feedback, casts with it, and neither", Optimizer, zero_one<sign_quantizer<>>,
                   zero_one<error_feedback<cast_quantizer<float16>>>,
                   zero_one<error_feedback<cast_quantizer<bfloat16>>>, zero_one<identity_quantizer>,
                   zero_one<cast_quantizer<bfloat16>>) {
  compare_many<Optimizer>();
}

TEST_CASE_TEMPLATE("means", Optimizer, mean_of<sign_with_feedback<>>, mean_of<sign_with_feedback<whole>>,
                   mean_of<sign_quantizer<per_tensor, l2>>, mean_of<error_feedback<cast_quantizer<float16>>>,
                   mean_of<identity_quantizer>) {
  compare_many<Optimizer>();
}

}  // namespace
