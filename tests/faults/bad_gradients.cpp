// SPDX-License-Identifier: Apache-2.0
// Gradients that hold NaN, Inf or 2^57: no rank waits, no state keeps a trace. DESIGN section 5, by alias.
#include <atomic>
#include <limits>

#include "suite/oracle.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

using zero_one = placed<zero_one_adam<thread_transport>>;
using paper = placed<zero_one_adam_paper<thread_transport>>;
using onebit = placed<onebit_adam<thread_transport>>;
using plain = placed<adam<thread_transport>>;
using local = placed<local_adam<thread_transport>>;

template <class Optimizer>
typename Optimizer::options_type settings() {
  typename Optimizer::options_type o;
  if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 3;
  return o;
}

/// Every value that the optimizer keeps.
template <class Optimizer>
flat all_state(Optimizer const& o) {
  flat all;
  detail::for_each_tag(typename Optimizer::fields::tags{}, [&](auto tag) {
    for (float const x : o.values(tag)) all.push_back(x);
  });
  return all;
}

TEST_CASE_TEMPLATE("case 2: rank 0's gradient holds Inf at step 3: no hang, no trace", Optimizer, zero_one, paper,
                   onebit, plain, local) {
  for (float const poison : {inf, -inf, nan, 0x1p57f, -0x1p57f}) {
    CAPTURE(poison);
    job<Optimizer> run;
    run.settings = settings<Optimizer>();
    run.sizes = {70, 33};
    run.ranks = 2;
    run.steps = 8;
    run.gradient = [&](int rank, int step, std::size_t n) {
      flat g = noisy_gradient(3, rank, step, n);
      if (rank == 0 && step == 3) g[n - 1] = poison;
      return g;
    };
    std::atomic<int> wrong{0}, seen{0};
    run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
      bool const bad_here = o.rank() == 0 && step == 3;
      wrong += r.skipped_here != bad_here;
      wrong += !all_finite(all_state(o)) || !all_finite(mine.parameters());
      if (r.exchanged || r.variance_updated) {
        wrong += r.skipped_workers != (step == 3 && o.workers() == 2 && r.payload_bytes > 0 ? 1 : 0);
        ++seen;
      }
    };
    auto const x = run.run();
    CHECK(wrong == 0);
    CHECK(seen > 0);
    CHECK(all_finite(x[0]));
    CHECK(std::abs(x[0][0] - run.start(0)) > 0);
  }
}

TEST_CASE_TEMPLATE("case 2: a rank that is bad from step 3 on, for ever", Optimizer, zero_one, paper, onebit, plain,
                   local) {
  job<Optimizer> run;
  run.settings = settings<Optimizer>();
  run.ranks = 2;
  run.steps = 12;
  run.gradient = [&](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    if (rank == 1 && step >= 3) g[5] = step % 2 == 0 ? nan : inf;
    return g;
  };
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    wrong += r.skipped_here != (o.rank() == 1 && step >= 3);
    wrong += r.payload_bytes > 0 && r.skipped_workers != (step >= 3);
    wrong += !all_finite(all_state(o)) || !all_finite(mine.parameters());
    wrong += (r.gradient_norm > 0) == r.skipped_here;
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("case 2: what is at the bound itself, 2^56, is a gradient", Optimizer, zero_one, plain) {
  job<Optimizer> run;
  run.ranks = 2;
  run.steps = 5;
  run.gradient = [&](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    g[7] = 0x1p56f;
    return g;
  };
  std::atomic<int> wrong{0};
  run.after = [&](int, Optimizer& o, step_report const& r, buffers& mine) {
    wrong += r.skipped_here || r.skipped_workers != 0 || !all_finite(all_state(o)) || !all_finite(mine.parameters());
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("case 3: an Inf under a frozen variance, then five finite steps: every state value is finite",
                   Optimizer, zero_one, paper, onebit) {
  for (float const poison : {inf, nan, 0x1p57f}) {
    job<Optimizer> run;
    run.settings = settings<Optimizer>();
    if constexpr (requires { run.settings.state.variance_schedule.stop; }) {
      run.settings.state.variance_schedule.stop = 3;
    }
    run.ranks = 2;
    run.steps = 10;
    flat frozen;
    std::atomic<int> wrong{0};
    run.gradient = [&](int rank, int step, std::size_t n) {
      flat g = noisy_gradient(4, rank, step, n);
      if (rank == 1 && step == 5) g[0] = poison;
      return g;
    };
    run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
      wrong += !all_finite(all_state(o)) || !all_finite(mine.parameters());
      if (step > 3) wrong += r.variance_updated;
      if (o.rank() != 0) return;
      if (step == 3) frozen = copy_of(o.values(at::variance));
      if (step > 3) wrong += !same_bits(frozen, copy_of(o.values(at::variance)));
    };
    (void)run.run();
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("a bad gradient is missing, the step is not: x moves with the old momentum", Optimizer, zero_one,
                   paper, onebit, plain, local) {
  // All workers are bad at step 5: moments stay, the schedule goes on, x still steps.
  job<Optimizer> run;
  run.settings = settings<Optimizer>();
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = 6;
  if constexpr (requires { run.settings.sync.interval; }) run.settings.sync.start = 0, run.settings.sync.interval = 4;
  run.ranks = 2;
  run.steps = 6;
  run.gradient = [&](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(6, rank, step, n);
    if (step == 5) g[11] = nan;
    return g;
  };
  struct snapshot {
    flat momentum, variance, x;
    index count = 0;
  };
  std::vector<snapshot> before(2);
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    snapshot& old = before[nth(o.rank())];
    if (step == 5) {
      wrong += !r.skipped_here || r.variance_updated || o.variance_updates() != old.count;
      wrong += r.payload_bytes > 0 && r.skipped_workers != 2;
      wrong += !same_bits(old.variance, copy_of(o.values(at::variance)));
      wrong += same_bits(old.x, mine.parameters());
      // An exchange of the momentum or of what follows from it may still change m.
      if (!r.exchanged) wrong += !same_bits(old.momentum, copy_of(o.values(at::momentum)));
    }
    if (step == 6) wrong += o.variance_updates() != old.count + 1 || !r.variance_updated;
    old = {copy_of(o.values(at::momentum)), copy_of(o.values(at::variance)), mine.parameters(), o.variance_updates()};
  };
  if constexpr (requires { run.settings.state.variance_schedule; }) run.settings.state.variance_schedule.kappa = 100;
  (void)run.run();
  CHECK(wrong == 0);
}

// ------------------------------------------------------------------------------------------ against the reference

reference::per_worker<double> gradients_at(int ranks, int step, std::size_t n) {
  reference::per_worker<double> g;
  for (int i = 0; i < ranks; ++i) {
    flat const values = noisy_gradient(8, i, step, n);
    g.emplace_back(values.begin(), values.end());
  }
  return g;
}

/// Which workers are bad at which step: one, another three times in a row, all, and the first and last of three.
bool is_bad(int rank, int step) {
  return (step == 2 && rank == 0) || (step >= 4 && step <= 6 && rank == 1) || step == 6 || (step == 9 && rank != 1);
}

template <class Optimizer, class Expected, class Step>
void compare(job<Optimizer> run, Expected expected, Step step) {
  std::size_t const n = 100;
  run.ranks = 3;
  run.steps = 12;
  run.gradient = [&](int rank, int t, std::size_t size) {
    flat g = noisy_gradient(8, rank, t, size);
    if (is_bad(rank, t)) g[nth(t)] = t % 2 == 0 ? nan : -inf;
    return g;
  };
  for (int t = 1; t <= run.steps; ++t) {
    reference::flags missing;
    for (int i = 0; i < run.ranks; ++i) missing.push_back(is_bad(i, t));
    step(expected, gradients_at(run.ranks, t, n), t, missing);
  }
  std::vector<std::uint64_t> hashes(nth(run.ranks));
  run.at_end = [&](Optimizer& o, buffers&) { hashes[nth(o.rank())] = o.replica_hash(); };
  auto const x = run.run();
  for (std::size_t i = 0; i < x.size(); ++i) {
    double error = 0;
    for (std::size_t k = 0; k < n; ++k) {
      double want = 0;
      if constexpr (requires { expected.anchor; }) {
        want = expected.x[i][k];
      } else {
        want = expected.x[k];
      }
      error = larger(error, std::abs(static_cast<double>(x[i][k]) - want));
    }
    CHECK(error < 2e-5);
    CHECK(hashes[i] == hashes[0]);
  }
}

reference::layout shape(reference::grouping groups) { return {3, {100}, groups, 2048, reference::norm::l1}; }
reference::array<double> start_of(std::size_t n) {
  reference::array<double> x;
  for (std::size_t k = 0; k < n; ++k) x.push_back(0.1f * noise(5, k));
  return x;
}

TEST_CASE("bad gradients: zero_one_adam equals the reference that leaves those workers out") {
  reference::zero_one_adam<double> expected(shape(reference::grouping::block), {}, start_of(100));
  compare(job<zero_one>{}, expected, [](auto& e, auto const& g, int t, auto const& missing) {
    bool const anyone = std::find(missing.begin(), missing.end(), false) != missing.end();
    using quantizer = decltype(variance_quantizer(zero_one::state_type{}));
    if (reference::doubling_interval{}.due(t) && anyone) e.second.update(variance_mean(quantizer{}, g, missing));
    e.step(g, 1e-2, false, true, missing);
  });
}

TEST_CASE("bad gradients: onebit_adam equals the reference that leaves those workers out") {
  job<onebit> run;
  run.settings.state.freeze.step = 7;
  reference::onebit_adam<double> expected(shape(reference::grouping::block), {}, 7, start_of(100));
  compare(run, expected, [](auto& e, auto const& g, int, auto const& missing) { e.step(g, 1e-2, missing); });
}

TEST_CASE("bad gradients: adam equals the reference that leaves those workers out") {
  reference::adam<double> expected({}, start_of(100));
  compare(job<plain>{}, expected, [](auto& e, auto const& g, int, auto const& missing) { e.step(g, 1e-2, missing); });
}

TEST_CASE("bad gradients: a worker of local_adam keeps both moments and steps with them") {
  job<local> run;
  run.ranks = 2;
  run.steps = 6;
  run.settings.sync.interval = 100;
  run.gradient = [&](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(9, rank, step, n);
    if (rank == 1 && step == 4) g[3] = inf;
    return g;
  };
  std::vector<std::vector<double>> x(2, start_of(100)), m(2, std::vector<double>(100)), v = m;
  std::vector<int> count(2);
  for (int t = 1; t <= 6; ++t) {
    for (int i = 0; i < 2; ++i) {
      bool const missing = i == 1 && t == 4;
      auto const g = noisy_gradient(9, i, t, 100);
      count[nth(i)] += !missing;
      for (std::size_t k = 0; k < 100; ++k) {
        double &mk = m[nth(i)][k], &vk = v[nth(i)][k];
        if (!missing) vk = 0.999 * vk + (1 - 0.999) * double(g[k]) * double(g[k]);
        if (!missing) mk = 0.9 * mk + (1 - 0.9) * double(g[k]);
        double const d = std::sqrt(vk / (1 - std::pow(0.999, count[nth(i)]))) + 1e-8;
        x[nth(i)][k] -= 1e-2 * (mk / (1 - std::pow(0.9, count[nth(i)])) / d);
      }
    }
  }
  std::atomic<int> wrong{0};
  run.at_end = [&](local& o, buffers& mine) {
    auto const i = nth(o.rank());
    auto const last = mine.parameters();
    for (std::size_t k = 0; k < 100; ++k) {
      wrong += std::abs(double(last[k]) - x[i][k]) > 2e-5;
      wrong += std::abs(double(o.values(at::variance)[k]) - v[i][k]) > 1e-5 * v[i][k];
    }
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE("bad gradients where gradients travel compressed: no contribution, the error stays") {
  using mean = threaded<sign_with_feedback<>, every_step, mean_state>;
  using worker_error = at::worker_error_t<gradient_mean>;
  job<mean> run;
  run.ranks = 3;
  run.steps = 9;
  run.gradient = [&](int rank, int t, std::size_t size) {
    flat g = noisy_gradient(8, rank, t, size);
    if (is_bad(rank, t)) g[nth(t)] = nan;
    return g;
  };
  reference::compressed_mean<double> expected(shape(reference::grouping::block));
  std::vector<std::vector<double>> means;
  for (int t = 1; t <= run.steps; ++t) {
    reference::flags contributes;
    bool anyone = false;
    for (int i = 0; i < 3; ++i) contributes.push_back(!is_bad(i, t)), anyone |= !is_bad(i, t);
    means.push_back(anyone ? expected(gradients_at(3, t, 100), {}, {}, contributes) : means.back());
  }
  REQUIRE(expected.margin > 1e-5);
  std::vector<flat> errors(3);
  std::atomic<int> wrong{0};
  run.after = [&](int step, mean& o, step_report const& r, buffers& mine) {
    auto const i = nth(o.rank());
    auto const now = copy_of(o.values(worker_error{}));
    if (is_bad(o.rank(), step)) wrong += !same_bits(errors[i], now);
    int bad = 0;
    for (int k = 0; k < 3; ++k) bad += is_bad(k, step);
    wrong += r.skipped_workers != bad;
    auto const x = mine.parameters();
    for (std::size_t k = 0; k < x.size(); ++k) wrong += std::abs(double(x[k]) - means[nth(step - 1)][k]) > 1e-5;
    errors[i] = now;
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE("trusted_gradients leaves the pass out and changes nothing else") {
  job<zero_one> run;
  run.ranks = 2;
  auto const checked = run.run();
  run.settings.trusted_gradients = true;
  std::atomic<int> wrong{0};
  run.after = [&](int, zero_one&, step_report const& r, buffers&) { wrong += r.gradient_norm != 0; };
  auto const trusted = run.run();
  CHECK(wrong == 0);
  CHECK(same_bits(checked[0], trusted[0]));
  // The pass is really gone: nobody reports a NaN.
  run.gradient = [](int, int, std::size_t n) { return flat(n, nan); };
  run.after = [&](int, zero_one&, step_report const& r, buffers&) { wrong += r.skipped_here; };
  run.steps = 1;
  (void)run.run();
  CHECK(wrong == 0);
}

}  // namespace
