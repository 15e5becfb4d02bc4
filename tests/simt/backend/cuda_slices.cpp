// SPDX-License-Identifier: Apache-2.0
// Values per slice of a tensor on a device: the bits of the CPU.
#include "simt/device.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using half_adafactor = threaded<cast_quantizer<bfloat16>, every_step, adafactor_state<true>>;
using half_sm3 = threaded<cast_quantizer<bfloat16>, every_step, sm3_state<true>>;

template <class Optimizer>
pair_job<Optimizer> shaped(std::vector<std::vector<index>> const& shapes) {
  pair_job<Optimizer> job;
  job.shapes = shapes;
  job.sizes.clear();
  for (auto const& shape : shapes) {
    std::size_t n = 1;
    for (index const each : shape) n *= nth(each);
    job.sizes.push_back(n);
  }
  job.steps = 12;  // at the tenth nobody has a gradient
  return job;
}

TEST_CASE_TEMPLATE("values per slice", Optimizer, adafactor<>, sm3<>, half_adafactor, half_sm3) {
  compare_with_cpu(shaped<Optimizer>({{7, 41}, {0, 4}, {1}, {5, 1}, {3, 5, 7}, {2, 3, 5, 3}, {77}}));
  pair_job<Optimizer> one = shaped<Optimizer>({{3, 5}});
  one.ranks = 1;
  compare_with_cpu(one);
  pair_job<Optimizer> none = shaped<Optimizer>({{0, 5}, {0}});
  compare_with_cpu(none);
}

TEST_CASE_TEMPLATE("slices of several blocks, views that no vector access fits, 16 bits", Optimizer, adafactor<>,
                   sm3<>) {
  auto job = shaped<Optimizer>({{2053, 3}, {3, 65}, {64}});
  job.shifts = {1, 2, 3};
  job.type = dtype::bfloat16;
  job.working = dtype::float16;
  job.steps = 2;
  compare_with_cpu(job);
}

}  // namespace
