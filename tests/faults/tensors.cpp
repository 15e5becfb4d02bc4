// SPDX-License-Identifier: Apache-2.0
// Faults around tensors: empty ones, odd sizes, layouts that differ, buffers handed in another cut.
#include <atomic>
#include <chrono>

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class State, class Groups>
using zero_one_of = threaded<sign_with_feedback<Groups>, local_steps, State>;
using by_block = placed<zero_one_adam<thread_transport>>;
using by_tensor = zero_one_of<frozen_variance_state<>, per_tensor>;
using by_buffer = placed<zero_one_adam_paper<thread_transport>>;
using onebit = placed<onebit_adam<thread_transport>>;
using plain = placed<adam<thread_transport>>;
using local = placed<local_adam<thread_transport>>;

template <class Optimizer>
job<Optimizer> job_of(std::vector<index> sizes, int ranks) {
  job<Optimizer> run;
  run.sizes = std::move(sizes);
  run.ranks = ranks;
  run.steps = steps_of(20, 5);
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = 1;
  return run;
}

TEST_CASE_TEMPLATE("case 4: an empty tensor changes nothing", Optimizer, by_block, by_tensor, by_buffer, onebit,
                   plain, local) {
  auto with = job_of<Optimizer>({0, 10}, 2), without = job_of<Optimizer>({10}, 2);
  with.steps = without.steps = 4;  // the first has the variance round
  auto const a = with.run(), b = without.run();
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(all_finite(a[i]));
    CHECK(same_bits(a[i], b[i]));
  }
}

TEST_CASE_TEMPLATE("case 5: tensors of zero elements only", Optimizer, by_block, by_tensor, by_buffer, onebit, plain,
                   local) {
  for (int const ranks : {1, 2, 3}) {
    auto run = job_of<Optimizer>({0, 0, 0}, ranks);
    run.steps = 6;
    std::atomic<int> calls{0};
    run.after = [&](int step, Optimizer& o, step_report const& r, buffers&) {
      calls += r.step == step && o.elements() == 0 && r.payload_bytes == 0;
    };
    for (flat const& x : run.run()) CHECK(x.empty());
    CHECK(calls == 6 * ranks);
  }
}

TEST_CASE("case 5: the same on the transport of one rank; no tensor at all is an error") {
  job<zero_one_adam<>> run;
  run.sizes = {0, 0};
  CHECK(run.run()[0].empty());
  ending const none = ending_of([] { zero_one_adam<> o({}, {}, single_transport{}); });
  CHECK(none.what == outcome::argument);
  CHECK(mentions(none, "tensors: the list is empty"));
  for (ending const& e : on_ranks(2, [](thread_transport link) { by_block o({}, {}, std::move(link)); })) {
    CHECK(e.what == outcome::argument);
  }
}

TEST_CASE_TEMPLATE("case 11: odd sizes over odd numbers of ranks", Optimizer, by_block, by_tensor, by_buffer, onebit,
                   plain, local) {
  for (index const n : {0, 1, 7, 17, 31, 32, 33, 1023, 1024, 1025}) {
    for (int const ranks : {1, 2, 3, 5, 6}) {
      if (on_device && (n % 16 == 0 || n % 10 == 7 || ranks == 2 || ranks == 5)) continue;
      CAPTURE(n);
      CAPTURE(ranks);
      auto run = job_of<Optimizer>({n}, ranks);
      run.steps = 3;
      std::vector<std::uint64_t> hashes(nth(ranks));
      run.at_end = [&](Optimizer& o, buffers&) {
        (void)o.synchronize();
        hashes[nth(o.rank())] = o.replica_hash();
      };
      auto const x = run.run();
      for (std::size_t i = 0; i < x.size(); ++i) {
        CHECK(same_bits(x[i], x[0]));
        CHECK(hashes[i] == hashes[0]);
        int still = 0;
        for (std::size_t k = 0; k < x[i].size(); ++k) still += x[i][k] == run.start(k);
        CHECK(still * 10 <= n);
      }
    }
  }
}

TEST_CASE("case 11: one rank gives the same on both transports") {
  for (index const n : {1, 31, 33, 1025}) {
    job<zero_one_adam<>> alone;
    alone.sizes = {n};
    auto threads = job_of<by_block>({n}, 1);
    alone.steps = threads.steps;
    CHECK(same_bits(alone.run()[0], threads.run()[0]));
  }
}

TEST_CASE_TEMPLATE("case 12: layouts that differ raise on both ranks", Optimizer, by_block, by_buffer, plain) {
  auto const start = std::chrono::steady_clock::now();
  std::vector<flat> after(2);
  auto const endings = on_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({me == 0 ? 409600 : 409598}, {}, [](std::size_t k) { return noise(1, k); });
    ending const e = ending_of([&] { (void)make<Optimizer>(mine, {}, std::move(link)); });
    after[nth(me)] = mine.parameters();
    if (e.what == outcome::mismatch) throw mismatch_error(e.text);
  });
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(endings[i].what == outcome::mismatch);
    CHECK(mentions(endings[i], "rank 1 has other tensors than rank 0"));
    int wrong = 0;
    for (std::size_t k = 0; k < after[i].size(); ++k) wrong += after[i][k] != noise(1, k);
    CHECK(wrong == 0);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("case 13: with one scale for the whole buffer, [8, 8] and [16] give the same") {
  auto split = job_of<by_buffer>({8, 8}, 2), joined = job_of<by_buffer>({16}, 2);
  split.steps = joined.steps = 30;
  auto const a = split.run(), b = joined.run();
  CHECK(same_bits(a[0], b[0]));
  // And the cut does not keep errors by place: other borders over a longer buffer.
  auto odd = job_of<by_buffer>({1, 99, 0, 37, 163}, 3), even = job_of<by_buffer>({150, 150}, 3);
  CHECK(same_bits(odd.run()[1], even.run()[1]));
}

TEST_CASE_TEMPLATE("case 17: empty tensors among 60", Optimizer, by_block, by_tensor, by_buffer, onebit, plain) {
  std::vector<index> sizes, full;
  for (index t = 0; t < 60; ++t) {
    sizes.push_back(t == 35 || t == 59 ? 0 : 1 + t * 7 % 50);
    if (sizes.back() > 0) full.push_back(sizes.back());
  }
  for (int const ranks : {1, 3}) {
    auto const a = job_of<Optimizer>(sizes, ranks).run(), b = job_of<Optimizer>(full, ranks).run();
    CHECK(all_finite(a[0]));
    CHECK(same_bits(a[0], b[0]));
    CHECK(same_bits(a.back(), b.back()));
  }
}

TEST_CASE_TEMPLATE("case 27: compression from the first step and from the second", Optimizer, by_block, by_buffer,
                   onebit) {
  // Message sizes are planned before the first step: nothing is learned on the way.
  auto run = job_of<Optimizer>({100, 0, 3000}, 2);
  run.steps = 3;
  index memory = 0;
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers&) {
    bool const exact_only = step == 1 && std::is_same_v<Optimizer, onebit>;
    index const exact = 4 * 3100, bits = 4 * ((3100 + 31) / 32 + 2);
    wrong += !r.exchanged;
    if (exact_only) wrong += r.payload_bytes != exact;
    if (!exact_only && !r.variance_updated) wrong += r.payload_bytes < bits - 8 || r.payload_bytes > bits + 32;
    if (o.rank() == 0) wrong += step > 1 && o.memory().total() != memory, memory = o.memory().total();
  };
  auto const x = run.run();
  CHECK(wrong == 0);
  CHECK(same_bits(x[0], x[1]));
  CHECK(all_finite(x[0]));
}

TEST_CASE("case 27: the compressed mean alone, from the first step") {
  job<threaded<sign_with_feedback<>, every_step, mean_state>> run;
  run.ranks = 2;
  run.steps = 1;
  run.gradient = [](int, int, std::size_t n) { return flat(n, -0.5f); };
  auto const x = run.run();
  CHECK(same_bits(x[0], flat(100, -0.5f)));
  CHECK(same_bits(x[1], flat(100, -0.5f)));
}

}  // namespace
