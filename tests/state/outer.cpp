// SPDX-License-Identifier: Apache-2.0
// Outer steps, against AdamW on each worker and a plain outer optimizer in float64.
#include "zoadam/state/outer.hpp"

#include <limits>

#include "suite/oracle.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using momentum = diloco<thread_transport>;
using average = threaded<identity_quantizer, fixed_interval, outer_state<outer_average>>;

bool bad_at(int rank, int step) { return step % 5 == 3 && rank == step % 3; }

/// AdamW on each worker; every `interval` steps u <- mu u + w, a <- a - eta (w + mu u) with the mean of w = a - x. An
/// average is mu = 0, eta = 1.
auto expect_outer(double mu, double eta, bool with_bad_gradients = false) {
  return [=]<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    reference::adam_options o;
    copy_options(run, o);
    std::vector<reference::adam<double>> workers(nth(run.ranks), {o, start_of(run)});
    auto anchor = start_of(run);
    reference::array<double> u(anchor.size());
    bool moved = false;
    for (int t = 1; t <= run.steps; ++t) {
      auto const g = gradients_of(run, t);
      for (std::size_t i = 0; i < workers.size(); ++i) {
        workers[i].step({g[i]}, run.rate(t), {with_bad_gradients && bad_at(static_cast<int>(i), t)});
      }
      moved = moved || run.rate(t) > 0;
      if (t % run.settings.sync.interval == 0) {
        for (std::size_t k = 0; moved && k < anchor.size(); ++k) {
          double w = 0;
          for (auto const& each : workers) w += (anchor[k] - each.x[k]) / run.ranks;
          u[k] = mu * u[k] + w;
          anchor[k] -= eta * (w + mu * u[k]);
        }
        for (auto& each : workers) each.x = anchor;
        moved = false;
      }
      auto& row = expected.emplace_back();
      for (auto const& each : workers) row.push_back({each.x, each.m, each.second.v});
    }
    return 1.0;
  };
}

template <class Optimizer>
job<Optimizer> job_of(int ranks, index interval) {
  job<Optimizer> run;
  run.ranks = ranks;
  run.sizes = {50, 0, 41, 1};
  run.steps = 24;
  run.settings.sync.interval = interval;
  run.rate = [](int t) { return 1e-2 / (1 + 0.1 * t); };
  return run;
}

TEST_CASE("outer: Nesterov momentum, by ranks, intervals and hyper-parameters") {
  for (int const ranks : {1, 2, 3, 5}) {
    for (index const interval : {1, 7}) {
      CAPTURE(ranks);
      CAPTURE(interval);
      auto run = job_of<momentum>(ranks, interval);
      run.settings.weight_decay = 0.3;
      run.settings.epsilon_inside = interval == 7;
      compare_with_reference(run, expect_outer(0.9, 0.7));
      run.settings.state.outer = {0.5, 0.25};
      compare_with_reference(run, expect_outer(0.5, 0.25));
    }
  }
}

TEST_CASE("outer: the average, which momentum 0 and learning rate 1 are too") {
  for (int const ranks : {1, 3}) {
    auto run = job_of<average>(ranks, 4);
    compare_with_reference(run, expect_outer(0, 1));
    auto same = job_of<momentum>(ranks, 4);
    same.settings.state.outer = {0, 1};
    CHECK(same_bits(run.run()[0], same.run()[0]));
  }
}

TEST_CASE("outer: a worker without a gradient keeps its moments and takes part with what it has") {
  auto run = job_of<momentum>(3, 4);
  auto reference = run;
  run.gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(8, rank, step, n);
    if (bad_at(rank, step)) g[2] = std::numeric_limits<float>::infinity();
    return g;
  };
  reference.gradient = [](int rank, int step, std::size_t n) { return noisy_gradient(8, rank, step, n); };
  std::vector<std::vector<expectation>> expected;
  (void)expect_outer(0.9, 0.7, true)(reference, expected);
  check_run(run, expected, 2e-5);
}

TEST_CASE("outer: bad gradients leave no trace in sparse exchanges") {
  auto run = job_of<sparse_loco<thread_transport>>(3, 4);
  run.gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(8, rank, step, n);
    if (bad_at(rank, step)) g[2] = std::numeric_limits<float>::quiet_NaN();
    return g;
  };
  std::atomic<int> wrong{0}, skipped{0};
  run.after = [&](int, auto& o, step_report const& r, buffers& mine) {
    skipped += r.skipped_here;
    wrong += !all_finite(mine.parameters());
    detail::for_each_tag(typename std::remove_reference_t<decltype(o)>::fields::tags{},
                         [&](auto tag) { wrong += !all_finite(o.values(tag)); });
  };
  auto const x = run.run();
  CHECK(wrong == 0);
  CHECK(skipped > 3);
  CHECK(same_bits(x[0], x[2]));
}

TEST_CASE("outer: a window whose learning rates are all 0 sends nothing and moves nobody") {
  auto run = job_of<momentum>(2, 4);
  run.rate = [](int t) { return (t > 4 && t <= 8) || t == 10 || t == 12 ? 0.0 : 1e-2; };
  std::vector<flat> x;
  std::atomic<int> wrong{0};
  run.after = [&](int t, momentum& o, step_report const& r, buffers& mine) {
    wrong += r.exchanged != (t % 4 == 0 && t != 8);
    if (o.rank() == 0) x.push_back(mine.parameters());
  };
  compare_with_reference(run, expect_outer(0.9, 0.7));
  CHECK(wrong == 0);
  CHECK(same_bits(x[3], x[7]));
  CHECK(!same_bits(x[7], x[8]));
}

// The outer momentum is the same everywhere, the moments are not.
template <class Optimizer>
void check_replicas(job<Optimizer> run) {
  std::vector<std::vector<std::uint64_t>> hashes(nth(run.ranks));
  std::vector<flat> v(nth(run.ranks));
  run.after = [&](int, Optimizer& o, step_report const& r, buffers& mine) {
    if (!r.exchanged) return;
    hashes[nth(o.rank())].push_back(o.replica_hash());
    v[nth(o.rank())] = copy_of(o.values(at::variance));
    flat agreed;
    for (std::size_t t = 0; t < mine.parameter.size(); ++t) {
      for (float const a : o.agreed(static_cast<index>(t))) agreed.push_back(a);
    }
    CHECK(same_bits(agreed, mine.parameters()));
  };
  auto const x = run.run();
  CHECK(hashes[0].size() > 2);
  for (std::size_t i = 1; i < x.size(); ++i) {
    CHECK(hashes[i] == hashes[0]);
    CHECK(same_bits(x[i], x[0]));
    CHECK(!same_bits(v[i], v[0]));
  }
}

TEST_CASE("outer: replicas are the same after every exchange, moments stay their own") {
  for (int const ranks : {2, 3, 5}) check_replicas(job_of<momentum>(ranks, 4));
  using half = threaded<error_feedback<cast_quantizer<bfloat16>>, fixed_interval, outer_state<>>;
  check_replicas(job_of<half>(3, 4));
  auto sparse = job_of<sparse_loco<thread_transport>>(3, 4);
  sparse.sizes = {5000, 0, 41, 1};
  check_replicas(sparse);
}

TEST_CASE("outer: threads of a rank change nothing; momentum does") {
  auto run = job_of<momentum>(2, 4);
  auto const one = run.run();
  run.threads = 3;
  CHECK(same_bits(run.run()[1], one[1]));
  run.settings.state.outer.momentum = 0.8;
  CHECK(!same_bits(run.run()[1], one[1]));

  auto sparse = job_of<sparse_loco<thread_transport>>(2, 4);
  sparse.sizes = {9000, 700};
  auto const few = sparse.run();
  sparse.threads = 3;
  CHECK(same_bits(sparse.run()[1], few[1]));
}

TEST_CASE("outer: numbers out of range are refused by name, and must agree between ranks") {
  auto const refused = [](outer_nesterov const& outer, char const* what) {
    buffers mine({9}, {}, [](std::size_t) { return 1.0f; });
    diloco<>::options_type settings;
    settings.state.outer = outer;
    CHECK_THROWS_WITH_AS(make<diloco<>>(mine, settings, single_transport{}), doctest::Contains(what), argument_error);
  };
  refused({1.0, 0.7}, "options.state.outer.momentum must be in [0, 1)");
  refused({-0.1, 0.7}, "options.state.outer.momentum must be in [0, 1)");
  refused({0.9, 0.0}, "options.state.outer.learning_rate must be in [2^-64, 2^64]");
  refused({0.9, std::numeric_limits<double>::infinity()}, "options.state.outer.learning_rate must be");
  refused({std::numeric_limits<double>::quiet_NaN(), 0.7}, "options.state.outer.momentum");

  std::atomic<int> thrown{0};
  on_all_ranks(2, [&](thread_transport link) {
    buffers mine({9}, {}, [](std::size_t) { return 1.0f; });
    momentum::options_type settings;
    if (link.rank() == 1) settings.state.outer.momentum = 0.5;
    try {
      momentum const o = make<momentum>(mine, settings, std::move(link));
    } catch (mismatch_error const&) {
      ++thrown;
    }
  });
  CHECK(thrown == 2);
}

}  // namespace
