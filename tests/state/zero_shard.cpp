// SPDX-License-Identifier: Apache-2.0
// Shards: the same parameters as the replicated run, the state of each element on one rank.
#include "zoadam/state/zero_shard.hpp"

#include <limits>

#include "suite/job.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

template <class Optimizer>
job<Optimizer> job_of(int ranks, std::vector<index> const& sizes) {
  job<Optimizer> run;
  run.ranks = ranks;
  run.sizes = sizes;
  run.steps = 12;
  run.settings.weight_decay = 0.1;
  run.settings.max_norm = 5;
  // Rank 0 has a bad gradient at step 4, all ranks at step 6.
  run.gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    if ((step == 4 && rank == 0) || step == 6) g[n / 2] = nan;
    return g;
  };
  return run;
}

std::vector<std::vector<index>> const layouts{{1}, {64, 0, 3}, {2500, 31, 77}};

template <class State>
void compare_shards_with_replicas() {
  for (int const ranks : {1, 2, 3, 5}) {
    for (std::vector<index> const& sizes : layouts) {
      CAPTURE(ranks);
      CAPTURE(sizes.size());
      auto const whole = job_of<threaded<identity_quantizer, every_step, State>>(ranks, sizes).run();
      auto shards = job_of<threaded<identity_quantizer, every_step, zero_shard<State>>>(ranks, sizes);
      std::vector<index> own(nth(ranks));
      shards.threads = 2;
      shards.after = [&](int, auto const& o, step_report const& r, buffers&) {
        CHECK(r.exchanged);
        if constexpr (State::fields::size > 0) {
          own[nth(o.rank())] = static_cast<index>(o.values(at::momentum).size());
          CHECK(o.values(at::variance).size() == o.values(at::momentum).size());
        }
      };
      auto const x = shards.run();
      for (flat const& each : x) CHECK(same_bits(each, whole[0]));
      index elements = 0, sum = 0;
      for (index const n : sizes) elements += n;
      for (index const n : own) sum += n;
      CHECK(sum == (State::fields::size > 0 ? elements : 0));
    }
  }
}

TEST_CASE("zero_shard of Adam: the bits of the replicated run") { compare_shards_with_replicas<adam_state>(); }
TEST_CASE("zero_shard of others, which have a formula for steps without any gradient") {
  compare_shards_with_replicas<sgd_state>();
  compare_shards_with_replicas<nadam_state>();
}
TEST_CASE("zero_shard of Adam with gradients in 16 bits: near, since the mean is not rounded on a way down") {
  auto const shards = job_of<threaded<cast_quantizer<bfloat16>, every_step, zero_shard<>>>(3, layouts[2]).run();
  auto const whole = job_of<threaded<identity_quantizer, every_step, adam_state>>(3, layouts[2]).run();
  double error = 0;
  for (std::size_t k = 0; k < whole[0].size(); ++k)
    error = larger(error, std::abs(double(shards[0][k]) - double(whole[0][k])));
  CHECK(error > 0);
  CHECK(error < 2e-2);  // a sixth of the way, after 12 steps of 1e-2
  for (flat const& each : shards) CHECK(same_bits(each, shards[0]));
}

// Parameters of odd sizes in 16 bits alone; x: what the run leaves in them.
template <class Optimizer, class Half>
std::vector<std::vector<Half>> run_working(index& master_bytes) {
  constexpr int ranks = 3;
  std::vector<std::vector<Half>> all(ranks);
  std::vector<index> bytes(ranks);
  on_all_ranks(ranks, [&](thread_transport link) {
    auto const me = nth(link.rank());
    std::vector<Half> x(2600);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = to_half<Half>(noise(5, k));
    flat g(x.size());
    std::span<Half> const all_of_x(x);
    std::span<float const> const all_of_g(g);
    typename Optimizer::options_type settings;
    settings.weight_decay = 0.1;
    Optimizer o({{"a", {}, {}, all_of_g.first(2500), 0, all_of_x.first(2500)},
                 {"b", {}, {}, all_of_g.subspan(2500), 0, all_of_x.subspan(2500)}},
                settings, std::move(link));
    for (int t = 1; t <= 10; ++t) {
      flat const now = noisy_gradient(4, static_cast<int>(me), t, g.size());
      std::copy(now.begin(), now.end(), g.begin());
      if (t == 7) {  // the user changes parameters
        for (Half& each : x) each = to_half<Half>(0.5f * to_float(each));
        o.rebase();
      }
      CHECK(o.step(1e-2).exchanged);
    }
    bytes[me] = o.memory().masters;
    if constexpr (detail::contains<typename Optimizer::fields::tags, at::master_t>)
      bytes[me] += 4 * static_cast<index>(o.values(at::master).size());
    all[me] = x;
  });
  for (index const each : bytes) master_bytes = std::max(master_bytes, each);
  for (auto const& each : all) CHECK(std::memcmp(each.data(), all[0].data(), sizeof(Half) * each.size()) == 0);
  return all;
}
template <class Half>
void compare_masters() {
  using sharded = threaded<identity_quantizer, every_step, zero_shard<adam_state, cast_quantizer<Half>>>;
  index shard = 0, whole = 0;
  auto const x = run_working<sharded, Half>(shard);
  auto const y = run_working<threaded<identity_quantizer, every_step, adam_state>, Half>(whole);
  CHECK(std::memcmp(x[0].data(), y[0].data(), sizeof(Half) * x[0].size()) == 0);
  CHECK(whole >= 4 * 2600);
  CHECK(shard <= 4 * (2600 / 3 + 32));
}
TEST_CASE("zero_shard of Adam with parameters in 16 bits: the bits of the replicated run, masters at owners") {
  compare_masters<bfloat16>();
  compare_masters<float16>();
}

template <class Groups>
using compressed = threaded<sign_with_feedback<Groups>, every_step, zero_shard<onebit_adam_state<>>>;

template <class Groups>
void check_compressed() {
  for (int const ranks : {1, 2, 3, 5}) {
    for (std::vector<index> const& sizes : layouts) {
      CAPTURE(ranks);
      auto run = job_of<compressed<Groups>>(ranks, sizes);
      run.settings.state.freeze.step = 3;
      run.settings.weight_decay = 0;
      // A third of the elements never has a gradient; another third has one after the freeze alone.
      run.adjust = [](int step, flat& g) {
        for (std::size_t k = 0; k < g.size(); ++k)
          if (k % 3 == 1 || (k % 3 == 2 && step <= 3)) g[k] = g[k] != g[k] ? nan : 0.0f;
      };
      flat before;
      int wrong = 0;
      run.after = [&](int step, compressed<Groups> const& o, step_report const& r, buffers& mine) {
        wrong += r.variance_updated != (step <= 3);
        if (step > 3 && !r.skipped_here) {
          index late = 0;
          for (index k = 2; k < o.elements(); k += 3) ++late;
          wrong += r.waiting != late;
        }
        // Errors of elements without variance stay +0, those of others are marked.
        auto const error = o.values(at::worker_error_t<shard_direction>{});
        for (std::size_t k = 0; k < error.size(); ++k) {
          std::uint32_t const bits = std::bit_cast<std::uint32_t>(error[k]);
          wrong += (bits != 0) != (k % 3 == 0);
        }
        (void)mine;
      };
      auto const x = run.run();
      CHECK(wrong == 0);
      for (flat const& each : x) CHECK(same_bits(each, x[0]));
      for (std::size_t k = 0; k < x[0].size(); ++k) CHECK((x[0][k] == run.start(k)) == (k % 3 != 0));
    }
  }
}
TEST_CASE("zero_shard of 1-bit Adam: replicas agree, elements without variance stay, blocks") {
  check_compressed<block<>>();
}
TEST_CASE("zero_shard of 1-bit Adam: the same with groups of their own size") {
  check_compressed<whole>();
  check_compressed<per_tensor>();
}

template <class Groups>
void check_exact_zeros() {
  // All magnitudes are equal, so that nothing is left of any element; at step 5 half of them are zero.
  job<compressed<Groups>> run;
  run.ranks = 2;
  run.settings.state.freeze.step = 2;
  run.gradient = [](int, int step, std::size_t n) {
    flat g(n, 0.5f);
    for (std::size_t k = 1; k < n && step == 5; k += 2) g[k] = 0.0f;
    return g;
  };
  flat last(100);
  int still = 0;
  run.after = [&](int step, auto const& o, step_report const& r, buffers& mine) {
    CHECK(r.waiting == 0);
    if (o.rank() != 0) return;
    flat const x = mine.parameters();
    for (std::size_t k = 0; k < x.size(); ++k) still += x[k] == last[k];
    last = x;
    if (step > 4) return;
    for (float const e : o.values(at::worker_error_t<shard_direction>{})) CHECK(e == 0);
  };
  (void)run.run();
  CHECK(still == 0);
}
TEST_CASE("zero_shard of 1-bit Adam: an element whose value or error is exactly zero stays active") {
  check_exact_zeros<block<>>();
  check_exact_zeros<whole>();
}

TEST_CASE("zero_shard of 1-bit Adam: no worker has a gradient, all step by the old momentum") {
  job<compressed<block<>>> run;
  run.ranks = 3;
  run.steps = 8;
  run.settings.state.freeze.step = 2;
  run.adjust = [](int step, flat& g) {
    if (step > 5) g[7] = nan;
  };
  flat momentum, last;
  run.after = [&](int step, auto const& o, step_report const& r, buffers& mine) {
    if (o.rank() != 0) return;
    if (step > 5) {
      CHECK(r.skipped_workers == 3);
      CHECK(same_bits(copy_of(o.values(at::momentum)), momentum));
      CHECK(!same_bits(mine.parameters(), last));
    }
    momentum = copy_of(o.values(at::momentum));
    last = mine.parameters();
  };
  auto const x = run.run();
  for (flat const& each : x) CHECK((same_bits(each, x[0]) && all_finite(each)));
}

}  // namespace
