// SPDX-License-Identifier: Apache-2.0
// Runs a composition and its plain reference on the same random input and compares them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <vector>

#include "reference/reference.hpp"
#include "suite/job.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace suite {

/// Signs are only comparable where no |c| / scale comes near rounding errors.
inline constexpr double least_margin = 1e-5;

template <class Groups>
reference::layout shape_of(std::vector<index> const& sizes, int ranks, bool root_mean_square) {
  reference::layout l{ranks, sizes, reference::grouping::whole, 2048, reference::norm::l1};
  if constexpr (std::is_same_v<Groups, zoadam::per_tensor>) l.groups = reference::grouping::tensor;
  if constexpr (zoadam::detail::block_size < Groups >> 0) {
    l.groups = reference::grouping::block;
    l.block = zoadam::detail::block_size<Groups>;
  }
  if (root_mean_square) l.scale = reference::norm::l2;
  return l;
}

template <class Quantizer>
constexpr bool is_l2 = [] {
  if constexpr (requires { typename Quantizer::norm; }) {
    return std::is_same_v<typename Quantizer::norm, zoadam::l2>;
  } else {
    return false;
  }
}();

template <class Optimizer>
reference::layout shape_of(job<Optimizer> const& run) {
  using quantizer = typename Optimizer::quantizer_type;
  return shape_of<typename quantizer::groups>(run.sizes, run.ranks, is_l2<quantizer>);
}

template <class Optimizer>
void copy_options(job<Optimizer> const& run, reference::adam_options& o) {
  o.beta1 = run.settings.beta1;
  o.beta2 = run.settings.beta2;
  o.epsilon = run.settings.epsilon;
  o.weight_decay = run.settings.weight_decay;
  o.epsilon_inside = run.settings.epsilon_inside;
  o.variance_bias_correction = run.settings.bias_correction;
}

template <class Optimizer>
std::size_t elements_of(job<Optimizer> const& run) {
  std::size_t n = 0;
  for (index const size : run.sizes) n += nth(size);
  return n;
}

template <class Optimizer>
reference::array<double> start_of(job<Optimizer> const& run) {
  reference::array<double> x;
  for (std::size_t k = 0; k < elements_of(run); ++k) x.push_back(double(run.start(k)));
  return x;
}

template <class Optimizer>
reference::per_worker<double> gradients_of(job<Optimizer> const& run, int step) {
  reference::per_worker<double> g;
  for (int i = 0; i < run.ranks; ++i) {
    flat const values = run.gradient_at(i, step, elements_of(run));
    g.emplace_back(values.begin(), values.end());
  }
  return g;
}

/// What rank `i` must hold after each step.
struct expectation {
  std::vector<double> x, m, v;
};

/// expected[t - 1][i]: steps of rank i. Checks parameters and the moments that there are after every step, within
/// `tolerance` relative to the largest value of each (1 for parameters).
template <class Optimizer>
void check_run(job<Optimizer> run, std::vector<std::vector<expectation>> const& expected, double tolerance) {
  constexpr bool has_variance = zoadam::detail::contains<typename Optimizer::fields::tags, zoadam::at::variance_t>;
  std::atomic<int> wrong{0}, compared{0};
  auto const differs = [&](std::span<float const> got, std::vector<double> const& want, double floor) {
    ++compared;
    if (got.size() != want.size()) return true;
    double scale = floor, error = 0;
    for (std::size_t k = 0; k < want.size(); ++k) {
      scale = std::max(scale, std::abs(want[k]));
      error = larger(error, std::abs(double(got[k]) - want[k]));
    }
    return !(error <= tolerance * scale);
  };
  auto const inspect = run.after;
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    if (inspect) inspect(step, o, r, mine);
    expectation const& e = expected[nth(step - 1)][nth(o.rank())];
    wrong += differs(mine.parameters(), e.x, 1);
    wrong += differs(o.values(zoadam::at::momentum), e.m, 1e-30);
    if constexpr (has_variance) wrong += differs(o.values(zoadam::at::variance), e.v, 1e-30);
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(compared == (has_variance ? 3 : 2) * run.steps * run.ranks);
}

/// Tries seeds until the reference meets no sign near zero, then compares.
template <class Optimizer, class Expect>
void compare_with_reference(job<Optimizer> run, Expect const& expect, double tolerance = 2e-5) {
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    run.seed = seed * 1000 + 17;
    std::vector<std::vector<expectation>> expected;
    if (expect(run, expected) < least_margin) continue;
    check_run(run, expected, tolerance);
    return;
  }
  FAIL("no seed with a sufficient margin");
}

// ------------------------------------------------------------------------------------------------- what to expect

/// How the variance rounds of a state travel.
template <class Space, class Quantizer>
Quantizer variance_quantizer(zoadam::frozen_variance_state<Space, Quantizer> const&);

template <class Half>
float through(zoadam::cast_quantizer<Half>, float x) {
  Half h{};
  zoadam::narrow(&x, &h, 1);
  zoadam::widen(&h, &x, 1);
  return x;
}
inline float through(zoadam::identity_quantizer, float x) { return x; }

/// The mean of gradients as a variance round gives it, in float32 since 16 bits hide no rounding.
template <class Quantizer>
reference::array<double> variance_mean(Quantizer q, reference::per_worker<double> const& g,
                                       reference::flags const& missing = {}) {
  reference::per_worker<float> sent;
  for (auto const& worker : g) {
    sent.emplace_back();
    for (double const x : worker) sent.back().push_back(through(q, static_cast<float>(x)));
  }
  reference::array<double> result;
  for (float const x : reference::exact_mean(sent, missing)) result.push_back(double(through(q, x)));
  return result;
}

/// 0/1 Adam. `due(t, last, lr)`: the exchange schedule.
template <class Due>
auto expect_zero_one(reference::zero_one_options base, Due due) {
  return [base, due]<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    auto o = base;
    copy_options(run, o);
    o.limit = run.settings.limit;
    reference::doubling_interval const variance{run.settings.state.variance_schedule.kappa,
                                                run.settings.state.variance_schedule.stop};
    reference::zero_one_adam<double> r(shape_of(run), o, start_of(run));
    index last = 0;
    for (int t = 1; t <= run.steps; ++t) {
      bool const now = due(t, last, run.rate(t));
      if (now) last = t;
      auto const g = gradients_of(run, t);
      using quantizer = decltype(variance_quantizer(run.settings.state));
      if (variance.due(t)) r.second.update(variance_mean(quantizer{}, g));
      r.step(g, run.rate(t), false, now);
      auto& row = expected.emplace_back();
      for (std::size_t i = 0; i < r.x.size(); ++i) row.push_back({r.x[i], r.m[i], r.second.v});
    }
    return r.mean.margin;
  };
}

inline auto expect_onebit() {
  return []<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    reference::adam_options o;
    copy_options(run, o);
    reference::onebit_adam<double> r(shape_of(run), o, run.settings.state.freeze.step, start_of(run));
    for (int t = 1; t <= run.steps; ++t) {
      r.step(gradients_of(run, t), run.rate(t));
      expected.push_back(std::vector<expectation>(nth(run.ranks), {r.x, r.m, r.second.v}));
    }
    return r.mean.margin;
  };
}

inline auto expect_adam() {
  return []<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    reference::adam_options o;
    copy_options(run, o);
    reference::adam<double> r(o, start_of(run));
    for (int t = 1; t <= run.steps; ++t) {
      r.step(gradients_of(run, t), run.rate(t));
      expected.push_back(std::vector<expectation>(nth(run.ranks), {r.x, r.m, r.second.v}));
    }
    return 1.0;
  };
}

/// Adam on each worker; parameters averaged every `interval` steps.
inline auto expect_local_adam() {
  return []<class Optimizer>(job<Optimizer> const& run, std::vector<std::vector<expectation>>& expected) {
    reference::adam_options o;
    copy_options(run, o);
    std::vector<reference::adam<double>> workers(nth(run.ranks), {o, start_of(run)});
    for (int t = 1; t <= run.steps; ++t) {
      auto const g = gradients_of(run, t);
      for (std::size_t i = 0; i < workers.size(); ++i) workers[i].step({g[i]}, run.rate(t));
      if (t % run.settings.sync.interval == 0) {
        reference::per_worker<double> x;
        for (auto const& w : workers) x.push_back(w.x);
        auto const mean = reference::exact_mean(x);
        for (auto& w : workers) w.x = mean;
      }
      auto& row = expected.emplace_back();
      for (auto const& w : workers) row.push_back({w.x, w.m, w.second.v});
    }
    return 1.0;
  };
}

}  // namespace suite
