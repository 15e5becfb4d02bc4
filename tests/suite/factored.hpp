// SPDX-License-Identifier: Apache-2.0
// Optimizers with values per slice of a tensor: on the tape of tests/reference/factored.py against what the peer
// computed, and what must not change their bits.
#pragma once

#include "conformance/safetensors.hpp"
#include "suite/job.hpp"

namespace suite {

inline index product_of(std::vector<index> const& shape) {
  index n = 1;
  for (index const each : shape) n *= each;
  return n;
}
template <class Optimizer>
void set_shapes(job<Optimizer>& run, std::vector<std::vector<index>> const& shapes) {
  run.shapes = shapes;
  run.sizes.clear();
  for (auto const& shape : shapes) run.sizes.push_back(product_of(shape));
}

/// Parameters within 1e-5 of the largest value of the peer's, on every worker.
template <class Optimizer>
void compare_with_peer(std::string const& name, double weight_decay,
                       std::function<void(typename Optimizer::options_type&)> const& set = {}) {
  auto const file =
      safetensors::file::read(std::string(ZOADAM_CONFORMANCE_DIR) + "/../../reference/factored.safetensors");
  auto const steps = file.value<index>("steps"), workers = file.value<index>("workers"),
             every = file.value<index>("every");
  job<Optimizer> run;
  set_shapes(run, file.value<std::vector<std::vector<index>>>("shapes"));
  index d = 0;
  for (index const n : run.sizes) d += n;
  auto const grads = file.numbers("grads", {steps, workers, d}), start = file.numbers("params0", {d}),
             lr = file.numbers("lr", {steps}), wanted = file.numbers(name + ".params", {steps / every, d});
  run.ranks = static_cast<int>(workers);
  run.steps = static_cast<int>(steps);
  run.settings.beta1 = file.value<double>("beta1");
  run.settings.epsilon = file.value<double>("eps");
  run.settings.epsilon_inside = true;
  run.settings.weight_decay = weight_decay;
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
    flat const got = mine.parameters();
    auto const want = std::span<double const>(wanted).subspan(nth(t / every - 1) * nth(d), nth(d));
    worst[nth(o.rank())] = larger(worst[nth(o.rank())], relative_error(got, want, run.sizes));
    ++compared[nth(o.rank())];
  };
  (void)run.run();
  for (index i = 0; i < workers; ++i) {
    CHECK(worst[nth(i)] <= 1e-5);
    CHECK(compared[nth(i)] == steps / every);
  }
}

/// Shapes whose slices end inside blocks, span several, or hold one element; an empty tensor, a scalar and vectors.
inline std::vector<std::vector<index>> const odd_shapes{{7, 301}, {0, 4},    {1},           {2500, 3}, {5, 1},
                                                        {1, 33},  {3, 5, 7}, {2, 3, 5, 17}, {2200}};

/// Everything that an optimizer remembers, then the parameters.
template <class Optimizer>
flat everything(Optimizer& o, buffers& mine) {
  flat all = mine.parameters();
  zoadam::detail::for_each_tag(typename Optimizer::fields::tags{}, [&](auto tag) {
    for (float const x : o.values(tag)) all.push_back(x);
  });
  return all;
}

/// What each rank of a run has at its end.
template <class Optimizer>
std::vector<flat> outcome(int ranks, int threads, std::function<flat(int, int, std::size_t)> const& gradient = {}) {
  job<Optimizer> run;
  set_shapes(run, odd_shapes);
  run.ranks = ranks;
  run.threads = threads;
  run.steps = 4;
  run.gradient = gradient;
  std::vector<flat> all(nth(ranks));
  run.at_end = [&](Optimizer& o, buffers& mine) { all[nth(o.rank())] = everything(o, mine); };
  (void)run.run();
  return all;
}

/// Threads, ranks and instruction sets change no bit. Other: the same optimizer on another instruction set.
template <class Optimizer, class Other>
void check_bits() {
  auto const expected = outcome<Optimizer>(1, 1)[0];
  CHECK(all_finite(expected));
  CHECK(same_bits(outcome<Optimizer>(1, 3)[0], expected));
  CHECK(same_bits(outcome<Other>(1, 2)[0], expected));
  auto const same_on_all = [](int, int step, std::size_t n) { return noisy_gradient(1, 0, step, n); };
  for (flat const& each : outcome<Optimizer>(2, 1, same_on_all)) CHECK(same_bits(each, expected));
}

/// A worker with a bad gradient counts as missing; a step for which nobody has one leaves what is remembered.
template <class Optimizer>
void check_bad_gradients() {
  auto const lonely = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(1, 0, step, n);
    if (rank == 1) g[nth(step)] = std::numeric_limits<float>::quiet_NaN();
    return g;
  };
  auto const expected = outcome<Optimizer>(1, 1)[0];
  for (flat const& each : outcome<Optimizer>(2, 1, lonely)) CHECK(same_bits(each, expected));

  job<Optimizer> run;
  set_shapes(run, odd_shapes);
  run.ranks = 2;
  run.steps = 3;
  run.adjust = [](int step, flat& g) {
    if (step == 3) g[3] = 0x1p57f;
  };
  std::vector<flat> before(2);
  std::vector<int> same(2);
  run.after = [&](int t, Optimizer& o, step_report const&, buffers&) {
    flat now;
    zoadam::detail::for_each_tag(zoadam::detail::slices_of<typename Optimizer::fields::tags>{}, [&](auto tag) {
      for (float const x : o.values(tag)) now.push_back(x);
    });
    same[nth(o.rank())] = t == 3 ? same_bits(now, before[nth(o.rank())]) : 0;
    before[nth(o.rank())] = now;
  };
  (void)run.run();
  CHECK(same == std::vector<int>{1, 1});
}

/// The largest gradients that are no bad ones leave nothing infinite.
template <class Optimizer>
void check_largest_gradients() {
  auto const huge = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    if (step > 2) g[7] = -0x1p56f, g[nth(static_cast<index>(n) - 1)] = 0x1p56f;
    return g;
  };
  for (flat const& each : outcome<Optimizer>(2, 1, huge)) CHECK(all_finite(each));
}

/// The hash of replicas tells a bit of the last value of a field.
template <class Optimizer, class Tag>
void check_hash(Tag tag) {
  job<Optimizer> run;
  set_shapes(run, {{3, 5}, {4}});
  run.steps = 2;
  run.at_end = [&](Optimizer& o, buffers&) {
    auto const before = o.replica_hash();
    auto& last = const_cast<float&>(o.values(tag).back());
    last = std::nextafter(last, 100.0f);
    CHECK(o.replica_hash() != before);
  };
  (void)run.run();
}

/// memory().fields for fields of so many values each.
inline index bytes_of_fields(std::vector<index> const& values) {
  index bytes = 0;
  for (index const n : values) bytes += (4 * n + 63) / 64 * 64 + zoadam::memory_use::field_gap;
  return bytes;
}

}  // namespace suite
