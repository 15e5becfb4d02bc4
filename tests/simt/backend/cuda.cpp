// SPDX-License-Identifier: Apache-2.0
// The CUDA backend against the CPU backend: the same bits in every parameter, field, hash and report.
#include "simt/device.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;

TEST_CASE_TEMPLATE("every alias computes the bits of the CPU", Optimizer, zero_one_adam<>, zero_one_adam_paper<>,
                   onebit_adam<>, adam<>, local_adam<>) {
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    pair_job<Optimizer> job;
    job.ranks = ranks;
    compare_with_cpu(job);
  }
}

TEST_CASE_TEMPLATE("views that no vector access fits, gradients and working copies in 16 bits", Optimizer,
                   zero_one_adam<>, adam<>) {
  using pair = std::pair<dtype, dtype>;
  for (auto const& [type, working] : {pair{dtype::float32, dtype::float32}, pair{dtype::bfloat16, dtype::float16},
                                      pair{dtype::float16, dtype::bfloat16}}) {
    pair_job<Optimizer> job;
    job.sizes = {701, 3, 4099, 2049, 64};
    job.shifts = {0, 1, 2, 3, 1};
    job.type = type;
    job.working = working;
    job.steps = 12;
    compare_with_cpu(job);
  }
}

TEST_CASE_TEMPLATE("memory from the pool of the stream", Optimizer, zero_one_adam<>, adam<>) {
  pair_job<Optimizer> job;
  job.steps = 8;
  compare_with_cpu<Optimizer, cuda_thread_group, pool_allocator>(job);
}

// ---- in any order ----

#if defined(ZOADAM_SIMT)

template <class Optimizer>
void compare_here() {
  pair_job<Optimizer> job;
  job.ranks = 3;
  job.sizes = {300, 0, 2100, 5};
  job.steps = 8;
  job.set = [](auto& o) {
    quick_schedules(o);
    if constexpr (requires { o.sync.period; }) o.sync = {2, 2, 16};
    if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 3;
  };
  compare_with_cpu(job);
}

TEST_CASE_TEMPLATE("orders of threads", Optimizer, zero_one_adam<>, zero_one_adam_paper<>, onebit_adam<>) {
  simt::set_thread_order(simt::order::reversed);
  compare_here<Optimizer>();
  for (unsigned const seed : {1u, 2u}) {
    simt::set_thread_order(simt::order::shuffled, seed);
    compare_here<Optimizer>();
  }
  simt::set_thread_order(simt::order::in_order);
}

TEST_CASE_TEMPLATE("streams that wait to be waited for", Optimizer, zero_one_adam<>, zero_one_adam_paper<>,
                   onebit_adam<>, adam<>) {
  simt::set_stream_order(simt::stream_order::lazy);
  compare_here<Optimizer>();
  simt::set_stream_order(simt::stream_order::eager);
}

#endif

}  // namespace
