// SPDX-License-Identifier: Apache-2.0
// Faults in time: replicas that drift apart, a variance that thaws, schedules with a memory of their own.
#include <atomic>

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::clock;
using zoadam::index;

using zero_one = placed<zero_one_adam<thread_transport>>;
using paper = placed<zero_one_adam_paper<thread_transport>>;
using onebit = placed<onebit_adam<thread_transport>>;
using local = placed<local_adam<thread_transport>>;
using by_rate = threaded<sign_with_feedback<block<64>>, learning_rate_interval,
                         frozen_variance_state<displacement<power::half, momentum_rule::replace>>>;

TEST_CASE_TEMPLATE("case 20: replicas never drift apart: W = 3, 1000 steps", Optimizer, zero_one, paper, by_rate,
                   local, onebit) {
  job<Optimizer> run;
  run.sizes = {65, 0, 70};
  run.ranks = 3;
  run.steps = steps_of(1000, 100);
  run.settings.weight_decay = 0.1;
  int const tenth = run.steps / 10;
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = tenth;
  if constexpr (requires { run.settings.sync.period; }) run.settings.sync.period = tenth * 3 / 2;
  run.rate = [=](int t) { return 1e-2 / (1 + t / tenth); };
  std::vector<std::vector<std::uint64_t>> hashes(3), parameters(3);
  run.after = [&](int, Optimizer& o, step_report const& r, buffers& mine) {
    if (!r.exchanged) return;
    hashes[nth(o.rank())].push_back(o.replica_hash());
    std::uint64_t own = 0;
    for (index t = 0; t < 3; ++t) {
      own = own * 31 + cpu_backend::hash(mine.parameter[nth(t)].data(), static_cast<index>(o.agreed(t).size()), 0);
      own = own * 31 + cpu_backend::hash(o.agreed(t).data(), static_cast<index>(o.agreed(t).size()), 0);
    }
    parameters[nth(o.rank())].push_back(own);
  };
  (void)run.run();
  CHECK(hashes[0].size() > nth(tenth));
  CHECK(hashes[1] == hashes[0]);
  CHECK(hashes[2] == hashes[0]);
  CHECK(parameters[1] == parameters[0]);
  CHECK(parameters[2] == parameters[0]);
  CHECK(hashes[0].front() != hashes[0].back());
}

TEST_CASE_TEMPLATE("case 23: local gradients never reach a frozen variance, at any schedule boundary", Optimizer,
                   zero_one, paper, by_rate, onebit) {
  job<Optimizer> run;
  run.ranks = 2;
  run.steps = steps_of(120, 50);
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = 20;
  if constexpr (requires { run.settings.state.variance_schedule; }) run.settings.state.variance_schedule = {4, 20};
  if constexpr (requires { run.settings.sync.period; }) run.settings.sync.period = 16;
  run.rate = [](int t) { return 1e-2 * (1 - t / 125.0); };
  std::vector<flat> frozen(2);
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers&) {
    flat& v = frozen[nth(o.rank())];
    if (step == 20) v = copy_of(o.values(at::variance));
    if (step > 20) wrong += r.variance_updated || !same_bits(v, copy_of(o.values(at::variance)));
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(largest(frozen[0]) > 0);
  CHECK(same_bits(frozen[0], frozen[1]));
}

/// Steps 1 ... n at which a policy is due, from a clock that may have been put down and taken up again.
template <class Sync>
std::vector<index> due_steps(Sync const& when, clock c, index until) {
  std::vector<index> steps;
  while (c.step < until) {
    c.step += 1;
    c.lr = 1.0 / static_cast<double>(c.step);
    c.peak = std::max(c.peak, c.lr);
    if (!when.due(c)) continue;
    c.last = c.step;
    c.count += 1;
    steps.push_back(c.step);
  }
  return steps;
}

TEST_CASE_TEMPLATE("case 23: a schedule is its clock: taken up at any step it goes on as if never put down", Sync,
                   every_step, fixed_interval, local_steps, learning_rate_interval, doubling_interval) {
  Sync when;
  if constexpr (requires { when.period; }) when = {10, 20, 16};
  if constexpr (requires { when.kappa; }) when = {3, 150};
  auto const all = due_steps(when, {}, 200);
  CHECK(all.size() > 10);
  for (index stop = 0; stop < 200; ++stop) {
    clock saved;
    for (index t = 1; t <= stop; ++t) {
      saved.step = t;
      saved.lr = 1.0 / static_cast<double>(t);
      saved.peak = std::max(saved.peak, saved.lr);
      if (when.due(saved)) saved.last = t, saved.count += 1;
    }
    auto const rest = due_steps(Sync(when), saved, 200);
    std::vector<index> expected;
    for (index const t : all)
      if (t > stop) expected.push_back(t);
    CHECK(rest == expected);
  }
}

}  // namespace
