// SPDX-License-Identifier: Apache-2.0
// Optimizers whose steps are scaled on each tensor, against the plain references, and on the tape of
// tests/reference/layerwise.py against what the peer computed.
#pragma once

#include "conformance/safetensors.hpp"
#include "reference/layerwise.hpp"
#include "suite/oracle.hpp"

namespace suite {

template <class Optimizer>
reference::lamb_options lamb_options_of(job<Optimizer> const& run) {
  reference::lamb_options o;
  copy_options(run, o);
  if constexpr (requires { run.settings.state.freeze; }) {
    auto const& ratios = run.settings.state.ratios;
    o.freeze = run.settings.state.freeze.step;
    o.least = ratios.least;
    o.most = ratios.most;
    o.beta = ratios.beta;
    o.least_factor = ratios.least_factor;
    o.most_factor = ratios.most_factor;
    o.factor_step = ratios.factor_step;
  } else {
    o.least = run.settings.state.min_ratio;
    if (run.settings.state.max_ratio > 0) o.most = run.settings.state.max_ratio;
  }
  return o;
}

/// LAMB and 1-bit LAMB.
inline auto expect_lamb() {
  return []<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    reference::lamb<double> r(shape_of(run), lamb_options_of(run), start_of(run));
    for (int t = 1; t <= run.steps; ++t) {
      r.step(gradients_of(run, t), run.rate(t));
      expected.push_back(std::vector<expectation>(nth(run.ranks), {r.x, r.m, r.second.v}));
    }
    return std::min(1.0, r.mean.margin);
  };
}

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
