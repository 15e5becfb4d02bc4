// SPDX-License-Identifier: Apache-2.0
// What every optimizer on the mean gradient of a step has to do: what PyTorch does, and nothing for gradients that
// are missing or zero.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>

#include "conformance/safetensors.hpp"
#include "suite/job.hpp"

namespace suite {

/// tests/reference/pytorch.safetensors
inline safetensors::file const& pytorch() {
  static auto const file =
      safetensors::file::read(std::string(ZOADAM_CONFORMANCE_DIR) + "/../../reference/pytorch.safetensors");
  return file;
}

/// Optimizer, over one rank that is given the mean gradient or over two, stays within 1e-5 of PyTorch's `name` at
/// every step.
template <class Optimizer>
void compare_with_pytorch(std::string const& name, typename Optimizer::options_type const& settings) {
  using shapes = std::vector<std::vector<index>>;
  job<Optimizer> run;
  run.settings = settings;
  run.steps = 50;
  constexpr int workers = 2;
  run.ranks = std::is_same_v<typename Optimizer::transport_type, zoadam::single_transport> ? 1 : workers;
  run.sizes.clear();
  index n = 0;
  for (auto const& shape : pytorch().value<shapes>("shapes")) {
    run.sizes.push_back(1);
    for (index const extent : shape) run.sizes.back() *= extent;
    n += run.sizes.back();
  }
  auto const gradients = pytorch().numbers("gradients", {workers, run.steps, n});
  auto const start = pytorch().numbers("start", {n}), rates = pytorch().numbers("rates", {run.steps}),
             expected = pytorch().numbers("optimizer." + name, {run.steps, n});
  run.start = [&](std::size_t k) { return static_cast<float>(start[k]); };
  run.rate = [&](int step) { return rates[nth(step - 1)]; };
  run.gradient = [&](int rank, int step, std::size_t size) {
    flat g(size);
    for (std::size_t k = 0; k < size; ++k) {
      auto const of = [&](int worker) { return gradients[nth(worker * run.steps + step - 1) * size + k]; };
      g[k] = static_cast<float>(run.ranks == 1 ? (of(0) + of(1)) / workers : of(rank));
    }
    return g;
  };
  std::vector<std::vector<std::uint64_t>> hashes(nth(run.ranks));
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const&, buffers& mine) {
    hashes[nth(o.rank())].push_back(o.replica_hash());
    flat const x = mine.parameters();
    for (std::size_t k = 0; k < x.size(); ++k) {
      wrong += !(std::abs(double(x[k]) - expected[nth(step - 1) * x.size() + k]) <= 1e-5);
    }
  };
  CAPTURE(name);
  auto const last = run.run();
  CHECK(wrong == 0);
  CHECK(same_bits(last.front(), last.back()));
  CHECK(hashes.front() == hashes.back());
}

/// Two workers; every fourth element has no gradient.
template <class Optimizer>
job<Optimizer> sparse_job() {
  job<Optimizer> run;
  run.ranks = 2;
  run.steps = 12;
  run.sizes = {70, 0, 33};
  if constexpr (requires { run.settings.state.variance_schedule; }) run.settings.state.variance_schedule.kappa = 2;
  run.gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    for (std::size_t k = 0; k < n; k += 4) g[k] = 0;
    return g;
  };
  return run;
}

/// Elements without gradients never move, or only decay.
template <class Optimizer>
void check_zero_gradients() {
  auto run = sparse_job<Optimizer>();
  int moved = 0, wrong = 0, still = 0;
  for (double const weight_decay : {0.0, 0.1}) {
    run.settings.weight_decay = weight_decay;
    auto const x = run.run();
    double decay = 1;
    for (int t = 1; t <= run.steps; ++t) decay *= 1 - run.rate(t) * weight_decay;
    for (std::size_t k = 0; k < x[0].size(); ++k) {
      float const start = run.start(k);
      if (k % 4 != 0) {
        still += x[0][k] == start;
      } else if (weight_decay == 0) {
        moved += x[0][k] != start;
      } else {
        wrong += !(std::abs(double(x[0][k]) - decay * double(start)) < 1e-7);
      }
    }
    CHECK(same_bits(x[0], x[1]));
  }
  CHECK(moved == 0);
  CHECK(wrong == 0);
  CHECK(still == 0);
}

/// A bad gradient of one worker leaves the mean to the others. Without any gradient the state stays as it is, and x
/// moves by lr (remembered(o, k) + weight_decay x).
template <class Optimizer, class Remembered>
void check_missing_gradients(Remembered const& remembered) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  constexpr int step_without = 5;
  auto one_bad = sparse_job<Optimizer>(), copied = one_bad, all_bad = one_bad;
  auto const good = one_bad.gradient;
  one_bad.gradient = [&](int rank, int step, std::size_t n) {
    flat g = good(rank, step, n);
    if (rank == 1 && step == step_without) g[1] = nan;
    return g;
  };
  copied.gradient = [&](int rank, int step, std::size_t n) { return good(step == step_without ? 0 : rank, step, n); };
  auto const with_one = one_bad.run();
  CHECK(same_bits(with_one[0], copied.run()[0]));
  CHECK(same_bits(with_one[0], with_one[1]));

  all_bad.settings.weight_decay = 0.1;
  all_bad.gradient = [&](int rank, int step, std::size_t n) {
    flat g = good(rank, step, n);
    if (step == step_without) g[1] = nan;
    return g;
  };
  std::vector<flat> before(2);
  std::vector<std::uint64_t> fields(2);
  std::vector<index> updates(2);
  std::atomic<int> wrong{0};
  auto const field_hash = [](Optimizer& o) {
    std::uint64_t h = 0;
    zoadam::detail::for_each_tag(typename Optimizer::fields::tags{}, [&](auto tag) {
      for (float const x : o.values(tag)) h = h * 0x100000001b3u + std::bit_cast<std::uint32_t>(x);
    });
    return h;
  };
  all_bad.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    std::size_t const me = nth(o.rank());
    if (step == step_without) {
      wrong += r.skipped_workers != 2 || r.variance_updated || o.variance_updates() != updates[me];
      wrong += field_hash(o) != fields[me];
      flat const x = mine.parameters();
      for (std::size_t k = 0; k < x.size(); ++k) {
        double const old = double(before[me][k]);
        wrong += !(std::abs(old - 1e-2 * (remembered(o, k) + 0.1 * old) - double(x[k])) < 1e-7);
      }
    }
    before[me] = mine.parameters();
    fields[me] = field_hash(o);
    updates[me] = o.variance_updates();
  };
  CHECK(all_finite(all_bad.run()[0]));
  CHECK(wrong == 0);
}

/// Gradients that travel in 16 bits: near, not equal, and the same on all workers.
template <class Exact, class Half>
void check_16_bits() {
  auto const x = sparse_job<Exact>().run(), y = sparse_job<Half>().run();
  double error = 0;
  for (std::size_t k = 0; k < x[0].size(); ++k) error = larger(error, std::abs(double(x[0][k]) - double(y[0][k])));
  CHECK(error > 0);
  CHECK(error < 1e-2);
  CHECK(same_bits(y[0], y[1]));
}

}  // namespace suite
