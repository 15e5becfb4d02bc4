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

// Blocks longer and shorter than a tile, limits and masks. Each block takes many barriers, of 128 fibers on the shim.
template <class Quantizer>
using outer_of = threaded<Quantizer, fixed_interval, outer_state<outer_average>>;
TEST_CASE_TEMPLATE("sparse blocks", Optimizer, outer_of<error_feedback<top_k_quantizer<>, std::ratio<19, 20>>>,
                   mean_of<error_feedback<top_k_quantizer<block<96>, 7>>>,
                   zero_one<error_feedback<top_k_quantizer<block<96>, 7>>, every_step>) {
  for (int const ranks : {1, 3}) {
    pair_job<Optimizer> job;
    job.ranks = ranks;
    job.sizes = {300, 0, 33, 1};
    using groups = typename Optimizer::quantizer_type::groups;
    if (std::is_same_v<groups, block<4096>>) job.sizes[1] = 4200;
    job.steps = 4;
    job.set = [](auto& o) {
      if constexpr (requires { o.sync.interval; }) o.sync.interval = 2;
    };
    compare_with_cpu(job);
  }
}

}  // namespace
