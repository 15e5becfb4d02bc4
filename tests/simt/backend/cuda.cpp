// SPDX-License-Identifier: Apache-2.0
// The CUDA backend against the CPU backend: the same bits in every parameter, field, hash and report.
#include "simt/device.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;

template <class Optimizer>
void quick_schedules(typename twin<Optimizer>::cpu::options_type& o) {
  o.max_norm = 1;
  if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 8;
  if constexpr (requires { o.sync.period; }) {
    o.sync.start = 6;
    o.sync.period = 6;
  }
  if constexpr (requires { o.state.variance_schedule.kappa; }) o.state.variance_schedule.kappa = 2;
}

TEST_CASE_TEMPLATE("every alias computes the bits of the CPU", Optimizer, zero_one_adam<>, zero_one_adam_paper<>,
                   onebit_adam<>, adam<>, local_adam<>) {
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    pair_job<Optimizer> job;
    job.ranks = ranks;
    job.set = quick_schedules<Optimizer>;
    compare_with_cpu(job);
  }
}

TEST_CASE_TEMPLATE("views that no vector access fits, and 16-bit gradients", Optimizer, zero_one_adam<>, adam<>) {
  for (dtype const type : {dtype::float32, dtype::bfloat16, dtype::float16}) {
    pair_job<Optimizer> job;
    job.sizes = {701, 3, 4099, 2049, 64};
    job.shifts = {0, 1, 2, 3, 1};
    job.type = type;
    job.steps = 12;
    job.set = quick_schedules<Optimizer>;
    compare_with_cpu(job);
  }
}

}  // namespace
