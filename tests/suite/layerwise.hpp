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
  o.published = !zoadam::detail::corrects_bias<typename Optimizer::state_type>;
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

using missing_workers = std::function<bool(int rank, int step)>;
inline reference::flags missing_at(missing_workers const& is_missing, int ranks, int step) {
  reference::flags all;
  for (int i = 0; is_missing && i < ranks; ++i) all.push_back(is_missing(i, step));
  return all;
}

/// LAMB and 1-bit LAMB, `is_missing` saying whose gradient is bad.
inline auto expect_lamb(missing_workers is_missing = {}) {
  return [is_missing]<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    reference::lamb<double> r(shape_of(run), lamb_options_of(run), start_of(run));
    for (int t = 1; t <= run.steps; ++t) {
      r.step(gradients_of(run, t), run.rate(t), missing_at(is_missing, run.ranks, t));
      expected.push_back(std::vector<expectation>(nth(run.ranks), {r.x, r.m, r.second.v}));
    }
    return std::min(1.0, r.mean.margin);
  };
}
inline auto expect_lars(missing_workers is_missing = {}) {
  return [is_missing]<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    auto const& o = run.settings;
    reference::lars<double> r(shape_of(run), o.beta1, o.weight_decay, o.state.trust, start_of(run));
    for (int t = 1; t <= run.steps; ++t) {
      r.step(gradients_of(run, t), run.rate(t), missing_at(is_missing, run.ranks, t));
      expected.push_back(std::vector<expectation>(nth(run.ranks), {r.x, r.m, {}}));
    }
    return 1.0;
  };
}

/// What every optimizer of this kind does, `expect(is_missing)` being its reference.
template <class Optimizer, class Expect>
void check_layerwise(Expect const& expect) {
  job<Optimizer> run;
  run.ranks = 3;
  run.steps = 16;
  run.sizes = {70, 0, 33, 1, 160};
  if constexpr (requires { run.settings.state.freeze; }) run.settings.state.freeze.step = 5;
  SUBCASE("defaults") {
    run.rate = [](int t) { return 1e-2 / (1 + 0.1 * t); };
  }
  SUBCASE("epsilon inside") {
    run.settings.epsilon_inside = true;
    run.settings.epsilon = 1e-3;
  }
  SUBCASE("weight decay") { run.settings.weight_decay = 0.5; }
  SUBCASE("betas") {
    run.settings.beta1 = 0.5;
    run.settings.beta2 = 0.9;
  }
  SUBCASE("beta1 = 0") { run.settings.beta1 = 0; }
  SUBCASE("bias correction the other way") { run.settings.bias_correction = !run.settings.bias_correction; }
  SUBCASE("learning rate 0 at first and in between") {
    run.rate = [](int t) { return t <= 2 || t == 7 ? 0.0 : 1e-2; };
  }
  SUBCASE("tensors that begin at zero") {
    run.start = [](std::size_t k) { return k < 103 ? 0.0f : 0.1f * noise(5, k); };
  }
  SUBCASE("elements whose first gradient comes late, and a tensor without any") {
    run.adjust = [](int step, flat& g) {
      for (std::size_t k = 1; k < 70; k += 3)
        if (step < 3 + static_cast<int>(k % 4)) g[k] = 0;
      for (std::size_t k = 70; k < 103; ++k) g[k] = 0;
    };
  }
  SUBCASE("tensors of several blocks") { run.sizes = {4500, 2049, 3}; }
  missing_workers is_bad;
  SUBCASE("bad gradients count as missing, now and then on all workers") {
    run.settings.weight_decay = 0.1;
    is_bad = [](int rank, int step) { return step % 5 == 3 || (step % 3 == 1 && rank != 1); };
    run.gradient = [is_bad](int rank, int step, std::size_t n) {
      flat g = noisy_gradient(8, rank, step, n);
      if (is_bad(rank, step)) {
        g[nth(step)] = step % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : 0x1p57f;
      }
      return g;
    };
  }
  std::vector<std::uint64_t> hashes(3);
  run.at_end = [&](Optimizer& o, buffers&) {
    hashes[nth(o.rank())] = o.replica_hash();
    CHECK(o.values(zoadam::at::trust_ratio).size() == run.sizes.size());
  };
  compare_with_reference(run, expect(is_bad));
  CHECK(hashes[1] == hashes[0]);
  CHECK(hashes[2] == hashes[0]);
}

/// Gradients of 2^56 are gradients; nothing of them is infinite.
template <class Optimizer>
void check_largest_gradients() {
  job<Optimizer> run;
  run.ranks = 2;
  run.sizes = {70, 33};
  run.settings.weight_decay = 0.1;
  if constexpr (requires { run.settings.state.freeze; }) run.settings.state.freeze.step = 3;
  run.gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    if (step > 4) g[7] = -0x1p56f, g[80] = 0x1p56f;
    return g;
  };
  std::atomic<int> wrong{0};
  run.after = [&](int, Optimizer& o, step_report const& r, buffers& mine) {
    wrong += r.skipped_here || !all_finite(mine.parameters());
    zoadam::detail::for_each_tag(typename Optimizer::fields::tags{},
                                 [&](auto tag) { wrong += !all_finite(o.values(tag)); });
  };
  (void)run.run();
  CHECK(wrong == 0);
}

/// A 16-bit gradient gives the bits of the widened one, and threads change none.
template <class Optimizer>
void check_half_gradients_and_threads() {
  std::vector<zoadam::bfloat16> half(5000);
  flat wide(half.size());
  auto const run = [&](zoadam::gradient_view gradient, int threads) {
    typename Optimizer::options_type o;
    if constexpr (requires { o.state.freeze; }) o.state.freeze.step = 2;
    flat x(half.size());
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = 0.1f * noise(5, k);
    zoadam::thread_group alone(1);
    Optimizer optimizer({{"x", {}, x, gradient}}, o, alone.rank(0), typename Optimizer::backend_type(threads));
    for (int t = 1; t <= 4; ++t) {
      flat const g = noisy_gradient(3, 0, t, half.size());
      zoadam::narrow(g.data(), half.data(), static_cast<index>(half.size()));
      zoadam::widen(half.data(), wide.data(), static_cast<index>(half.size()));
      (void)optimizer.step(1e-2);
    }
    auto const ratio = optimizer.values(zoadam::at::trust_ratio);
    x.insert(x.end(), ratio.begin(), ratio.end());
    return x;
  };
  flat const expected = run(std::span<float const>(wide), 1);
  CHECK(same_bits(run(std::span<zoadam::bfloat16 const>(half), 1), expected));
  CHECK(same_bits(run(std::span<float const>(wide), 2), expected));
  CHECK(same_bits(run(std::span<float const>(wide), 3), expected));
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
      auto const want = std::span<double const>(wanted).subspan(nth(t / every - 1) * nth(d), nth(d));
      worst[nth(o.rank())] = larger(worst[nth(o.rank())], relative_error(got, want, run.sizes));
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
