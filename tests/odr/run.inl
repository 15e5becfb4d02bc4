// SPDX-License-Identifier: Apache-2.0
// The body of both runs: it names no instruction set.
#include <vector>

#include "odr/run.hpp"
#include "zoadam/zoadam.hpp"

template <class Optimizer>
odr::result odr_run() {
  std::vector<float> x(5000, 1.0f), g(5000);
  Optimizer optimizer({{"x", {}, x, g}}, {}, zoadam::single_transport{});
  for (int step = 0; step < 50; ++step) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = x[i] * static_cast<float>(static_cast<int>(i % 7) - 2);
    (void)optimizer.step(0.01);
  }
  return {zoadam::isa::native::name, optimizer.replica_hash(), x[6]};
}
