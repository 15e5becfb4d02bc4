// SPDX-License-Identifier: Apache-2.0
// Runs a composition on the tape of tests/reference/layerwise.py and compares it with what the peer computed.
#pragma once

#include "conformance/safetensors.hpp"
#include "suite/job.hpp"

namespace suite {

/// Parameters and momentum within 1e-5 of the largest value of the peer's.
template <class Optimizer>
void compare_with_peer(std::string const& name, int decay,
                       std::function<void(typename Optimizer::options_type&)> const& set = {}) {
  auto const file =
      safetensors::file::read(std::string(ZOADAM_CONFORMANCE_DIR) + "/../../reference/layerwise.safetensors");
  auto const shapes = file.value<std::vector<std::vector<index>>>("shapes");
  auto const steps = file.value<index>("steps"), workers = file.value<index>("workers"),
             every = file.value<index>("every");
  job<Optimizer> run;
  run.sizes.clear();
  index d = 0;
  for (auto const& shape : shapes) {
    index size = 1;
    for (index const n : shape) size *= n;
    run.sizes.push_back(size);
    d += size;
  }
  auto const grads = file.numbers("grads", {steps, workers, d}), start = file.numbers("params0", {d}),
             lr = file.numbers("lr", {steps});
  auto const prefix = name + std::to_string(decay);
  auto const params = file.numbers(prefix + ".params", {steps / every, d}),
             momentum = file.numbers(prefix + ".m", {steps / every, d});
  run.ranks = static_cast<int>(workers);
  run.steps = static_cast<int>(steps);
  run.settings.beta1 = file.value<double>("beta1");
  run.settings.beta2 = file.value<double>("beta2");
  run.settings.epsilon = file.value<double>("eps");
  run.settings.weight_decay = file.value<std::vector<double>>("weight_decay")[nth(decay)];
  if constexpr (requires { run.settings.state.trust; }) run.settings.state.trust = file.value<double>("trust");
  if (set) set(run.settings);
  run.rate = [&](int t) { return lr[nth(t - 1)]; };
  run.start = [&](std::size_t k) { return static_cast<float>(start[k]); };
  run.gradient = [&](int rank, int step, std::size_t n) {
    auto const from = grads.begin() + ((step - 1) * workers + rank) * d;
    return flat(from, from + static_cast<std::ptrdiff_t>(n));
  };
  std::vector<double> worst(nth(workers));
  std::vector<int> compared(nth(workers));
  run.after = [&](int t, Optimizer& o, step_report const&, buffers& mine) {
    if (t % every != 0) return;
    auto const compare = [&](auto const& got, std::vector<double> const& wanted) {
      double largest = 0, error = 0;
      for (std::size_t k = 0; k < nth(d); ++k) {
        double const want = wanted[nth(t / every - 1) * nth(d) + k];
        largest = std::max(largest, std::abs(want));
        error = std::max(error, std::abs(static_cast<double>(got[k]) - want));
      }
      worst[nth(o.rank())] = std::max(worst[nth(o.rank())], error / largest);
      ++compared[nth(o.rank())];
    };
    compare(mine.parameters(), params);
    compare(o.values(zoadam::at::momentum), momentum);
  };
  (void)run.run();
  for (index i = 0; i < workers; ++i) {
    CHECK(worst[nth(i)] <= 1e-5);
    CHECK(compared[nth(i)] == 2 * steps / every);
  }
}

}  // namespace suite
