// SPDX-License-Identifier: Apache-2.0
// The optimizer around its compositions: the invariant of the compressed mean, observers, forced exchanges, clipping,
// gradient types, threads of a rank.
#include "zoadam/optimizer.hpp"

#include <atomic>

#include "suite/job.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/state/published.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using zero_one = zero_one_adam<thread_transport>;
using paper = zero_one_adam_paper<thread_transport>;
using onebit = onebit_adam<thread_transport>;
using plain = adam<thread_transport>;
using local = local_adam<thread_transport>;
using by_rate = threaded<sign_with_feedback<block<64>>, learning_rate_interval,
                         frozen_variance_state<momentum_sum<momentum_rule::correct>>>;
using published = threaded<sign_with_feedback<per_tensor, l2>, aligned_local_steps, published_zero_one_adam_state>;

template <class Optimizer>
job<Optimizer> job_of(int ranks, int steps = 40) {
  job<Optimizer> run;
  run.ranks = ranks;
  run.steps = steps;
  run.sizes = {70, 0, 33, 1};
  if constexpr (requires { run.settings.sync.period; }) run.settings.sync.period = 8;
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = 5;
  if constexpr (requires { run.settings.state.variance_freeze_step; }) run.settings.state.variance_freeze_step = 9;
  return run;
}

// ------------------------------------------------------------------------------------------------- the invariant

template <class Groups, class Norm = l1>
using mean_of = threaded<sign_with_feedback<Groups, Norm>, every_step, mean_state>;

TEST_CASE_TEMPLATE("invariant: sum of outputs + mean worker error + owner error = sum of mean inputs", Optimizer,
                   mean_of<block<32>>, mean_of<block<>>, mean_of<per_tensor>, mean_of<whole>, mean_of<block<64>, l2>,
                   mean_of<per_tensor, l2>, mean_of<whole, l2>) {
  using worker_error = at::worker_error_t<gradient_mean>;
  using owner_error = at::owner_error_t<gradient_mean>;
  for (std::uint64_t trial = 0; trial < 12; ++trial) {
    auto const random = [&](std::uint64_t what, int below) {
      return static_cast<int>((double(noise(trial, what)) + 1) / 2 * below);
    };
    job<Optimizer> run;
    run.ranks = 1 + static_cast<int>(trial % 5);
    run.steps = 1 + random(1, 30);
    run.seed = trial;
    run.sizes.clear();
    std::size_t n = 0;
    for (int t = 0; t <= random(2, 6); ++t) {
      run.sizes.push_back(t % 3 == 1 ? 0 : random(10 + nth(t), t == 0 ? 3000 : 200));
      n += nth(run.sizes.back());
    }
    std::vector<double> input(n), output(n), errors(n);
    std::vector<std::vector<float>> worker(nth(run.ranks)), owner(nth(run.ranks));
    for (int t = 1; t <= run.steps; ++t) {
      for (int i = 0; i < run.ranks; ++i) {
        flat const g = run.gradient_at(i, t, n);
        for (std::size_t k = 0; k < n; ++k) input[k] += double(g[k]) / run.ranks;
      }
    }
    run.after = [&](int, Optimizer& o, step_report const&, buffers& mine) {
      auto const i = nth(o.rank());
      worker[i] = copy_of(o.values(worker_error{}));
      owner[i] = copy_of(o.values(owner_error{}));
      if (i != 0) return;
      flat const x = mine.parameters();
      for (std::size_t k = 0; k < n; ++k) output[k] += double(x[k]);
    };
    auto const x = run.run();
    for (flat const& each : x) CHECK(same_bits(each, x[0]));

    // The owners' pieces in flat order, from the cut itself.
    buffers mine(run.sizes, {}, run.start);
    layout const shape(mine.tensors(), 1);
    partition<typename Optimizer::quantizer_type> const cut(shape, run.ranks);
    std::size_t covered = 0;
    for (index p = 0; p < cut.pieces(); ++p) {
      piece const each = cut[p];
      for (index k = each.first; k < each.last; ++k, ++covered) {
        errors[nth(k)] = double(owner[nth(each.owner)][nth(each.own + k - each.first)]);
      }
    }
    CHECK(covered == n);
    double worst = 0, size = 0;
    for (std::size_t k = 0; k < n; ++k) {
      for (flat const& e : worker) errors[k] += double(e[k]) / run.ranks;
      worst = larger(worst, std::abs(output[k] + errors[k] - input[k]));
      size = std::max({size, std::abs(input[k]), std::abs(output[k]), std::abs(errors[k])});
    }
    CAPTURE(trial);
    CHECK(worst <= 2e-6 * run.steps * (size + 1));
    if (n > 100 && run.steps > 3) CHECK(largest(worker[0]) > 0);
  }
}

// ----------------------------------------------------------------------------------------------------- observers

TEST_CASE_TEMPLATE("will_exchange() predicts every step", Optimizer, zero_one, paper, by_rate, onebit, plain, local,
                   published) {
  for (bool const pauses : {false, true}) {
    auto run = job_of<Optimizer>(2, 60);
    // Down, then up again; with pauses also whole windows of learning rate 0.
    run.rate = [=](int t) { return pauses && t % 11 < 6 ? 0.0 : 1e-2 / (1 + t % 40); };
    std::atomic<int> wrong{0}, exchanged{0}, skipped{0};
    on_all_ranks(2, [&](thread_transport link) {
      int const me = link.rank();
      buffers mine(run.sizes, {}, run.start);
      auto o = make<Optimizer>(mine, run.settings, std::move(link));
      for (int t = 1; t <= run.steps; ++t) {
        mine.set_gradient(run.gradient_at(me, t, mine.elements()));
        bool const predicted = o.will_exchange(run.rate(t));
        CHECK(predicted == o.will_exchange(run.rate(t)));  // asking changes nothing
        step_report const r = o.step(run.rate(t));
        wrong += r.exchanged != predicted;
        exchanged += r.exchanged;
        skipped += !r.exchanged;
        if (t == 33) (void)o.synchronize();  // moves the schedule
      }
    });
    CHECK(wrong == 0);
    CHECK(exchanged > 0);
    if constexpr (!std::is_same_v<typename Optimizer::sync_type, every_step>) CHECK(skipped > 0);
  }
}

TEST_CASE_TEMPLATE("will_exchange() without a rate takes the last one", Optimizer, zero_one, by_rate) {
  auto run = job_of<Optimizer>(1, 50);
  std::atomic<int> wrong{0};
  bool predicted = true;
  run.rate = [](int t) { return 1e-2 / (1 + t / 20); };
  run.after = [&](int t, Optimizer& o, step_report const& r, buffers&) {
    if (t > 1 && t % 20 != 0) wrong += r.exchanged != predicted;
    predicted = o.will_exchange();
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("reports and counters", Optimizer, zero_one, paper, onebit, plain) {
  auto run = job_of<Optimizer>(2, 30);
  std::atomic<int> wrong{0};
  std::vector<index> updates(2), sent(2);
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    auto const i = nth(o.rank());
    wrong += r.step != step || o.steps() != step || o.workers() != 2 || o.elements() != 104;
    updates[i] += r.variance_updated;
    wrong += o.variance_updates() != updates[i];
    wrong += r.bytes_sent != (sent[i] == 0 ? r.bytes_sent : o.bytes_sent() - sent[i]);
    sent[i] = o.bytes_sent();
    wrong += (r.bytes_sent > 0) != (r.exchanged || r.variance_updated);
    wrong += (r.payload_bytes > 0) != (r.bytes_sent > 0);
    double square = 0;
    for (flat const& g : mine.gradient)
      for (float const x : g) square += double(x) * double(x);
    wrong += std::abs(r.gradient_norm - std::sqrt(square)) > 1e-5 * std::sqrt(square);
    wrong += r.skipped_here || r.skipped_workers != 0;
    wrong += step > 1 && r.waiting != 0;  // gradients may cancel in the first mean
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(updates[0] > 3);
}

TEST_CASE_TEMPLATE("agreed() is what all ranks have, also while local steps are open", Optimizer, zero_one, paper,
                   local) {
  auto run = job_of<Optimizer>(3, 40);
  std::vector<std::vector<flat>> seen(3);
  std::atomic<int> wrong{0}, apart{0};
  run.after = [&](int, Optimizer& o, step_report const& r, buffers& mine) {
    flat all;
    for (index t = 0; t < 4; ++t) {
      flat const part = copy_of(o.agreed(t));
      wrong += part.size() != mine.parameter[nth(t)].size();
      all.insert(all.end(), part.begin(), part.end());
    }
    // An exchange leaves the parameters there; nothing else moves it.
    auto& mine_seen = seen[nth(o.rank())];
    if (r.exchanged) wrong += !same_bits(all, mine.parameters());
    if (!r.exchanged && !mine_seen.empty()) wrong += !same_bits(all, mine_seen.back());
    apart += !same_bits(all, mine.parameters());
    mine_seen.push_back(all);
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(apart > 0);
  CHECK(seen[1] == seen[0]);
  CHECK(seen[2] == seen[0]);
}

TEST_CASE_TEMPLATE("agreed() of a composition without local steps is the parameters", Optimizer, onebit, plain) {
  auto run = job_of<Optimizer>(2, 5);
  std::atomic<int> wrong{0};
  run.after = [&](int, Optimizer& o, step_report const&, buffers& mine) {
    wrong +=
        !same_bits(copy_of(o.agreed(0)), mine.parameter[0]) || !same_bits(copy_of(o.agreed(2)), mine.parameter[2]);
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE("replica_hash() tells every bit of what must be equal, and its place") {
  buffers one({5, 5}, {}, [](std::size_t k) { return static_cast<float>(k); });
  buffers two({5, 5}, {}, [](std::size_t k) { return static_cast<float>(k); });
  auto const hash = [](buffers& b) { return make<adam<>>(b, {}, single_transport{}).replica_hash(); };
  CHECK(hash(one) == hash(two));
  two.parameter[1][4] = std::nextafter(two.parameter[1][4], 100.0f);
  CHECK(hash(one) != hash(two));
  two.parameter[1] = one.parameter[1];
  std::swap(two.parameter[0][1], two.parameter[0][2]);
  CHECK(hash(one) != hash(two));
}

// ------------------------------------------------------------------------------------- synchronize, rebase, reopen

TEST_CASE_TEMPLATE("synchronize(): parameters agree, the schedule starts anew, a second call does nothing", Optimizer,
                   zero_one, paper, local, by_rate, published) {
  auto run = job_of<Optimizer>(3, 45);
  if constexpr (requires { run.settings.sync.interval; }) run.settings.sync.interval = 4;
  std::vector<std::uint64_t> hashes(3);
  std::vector<flat> last(3);
  std::atomic<int> wrong{0}, forced{0};
  run.rate = [](int t) { return 1e-2 / (1 + t / 10); };
  std::vector<index> updates(3);
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    if (step < 20 || step % 5 != 0) return;
    flat const variance = copy_of(o.values(at::variance));
    index const count = o.variance_updates();
    step_report const s = o.synchronize();
    wrong += s.exchanged == r.exchanged;  // needed exactly where the step did not exchange
    wrong += s.step != r.step || o.steps() != r.step;
    wrong +=
        !same_bits(copy_of(o.agreed(0)), mine.parameter[0]) || !same_bits(copy_of(o.agreed(2)), mine.parameter[2]);
    // It exchanges parameters, not gradients.
    wrong += s.variance_updated || o.variance_updates() != count;
    wrong += !same_bits(variance, copy_of(o.values(at::variance)));
    forced += s.exchanged;
    flat const before = mine.parameters();
    step_report const again = o.synchronize();
    wrong += again.exchanged || again.bytes_sent != 0 || !same_bits(before, mine.parameters());
    hashes[nth(o.rank())] = o.replica_hash();
  };
  auto const x = run.run();
  CHECK(wrong == 0);
  CHECK(forced > 0);
  CHECK(hashes[1] == hashes[0]);
  CHECK(hashes[2] == hashes[0]);
  CHECK(same_bits(x[1], x[0]));
  CHECK(same_bits(x[2], x[0]));
}

TEST_CASE("synchronize() gives what an exchange at that step would have given") {
  // Two windows of three steps: one closed by the policy, one by hand.
  using fixed = threaded<sign_with_feedback<>, fixed_interval, frozen_variance_state<>>;
  auto by_policy = job_of<fixed>(2, 6), by_hand = job_of<fixed>(2, 6);
  by_policy.settings.sync.interval = 3;
  by_hand.settings.sync.interval = 1000;
  by_hand.after = [](int step, fixed& o, step_report const&, buffers&) {
    if (step % 3 == 0) (void)o.synchronize();
  };
  by_hand.settings.weight_decay = by_policy.settings.weight_decay = 0.1;
  auto const a = by_policy.run(), b = by_hand.run();
  CHECK(same_bits(a[0], b[0]));
  CHECK(same_bits(a[1], b[1]));
}

TEST_CASE("synchronize() after steps of learning rate 0 sends nothing") {
  auto run = job_of<zero_one>(2, 3);
  run.settings.sync = {0, 1, 16};
  run.settings.sync.longest = 4;
  std::atomic<int> wrong{0};
  run.rate = [](int) { return 0.0; };
  run.at_end = [&](zero_one& o, buffers& mine) {
    step_report const r = o.synchronize();
    wrong += r.exchanged || r.bytes_sent != 0;
    for (std::size_t k = 0; k < 70; ++k) wrong += mine.parameter[0][k] != 0.1f * noise(5, k);
  };
  (void)run.run();
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("rebase() takes changed parameters", Optimizer, zero_one, paper, local, plain) {
  auto run = job_of<Optimizer>(2, 24);
  flat rebased;
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const&, buffers& mine) {
    if (step != 12) return;
    (void)o.synchronize();
    flat const m = copy_of(o.values(at::momentum)), v = copy_of(o.values(at::variance));
    for (flat& p : mine.parameter)
      for (float& x : p) x += 10;
    o.rebase();
    if (o.rank() == 0) rebased = mine.parameters();
    wrong +=
        !same_bits(copy_of(o.agreed(0)), mine.parameter[0]) || !same_bits(copy_of(o.agreed(2)), mine.parameter[2]);
    wrong += !same_bits(m, copy_of(o.values(at::momentum))) || !same_bits(v, copy_of(o.values(at::variance)));
  };
  run.rate = [](int) { return 1e-4; };
  auto const x = run.run();
  CHECK(wrong == 0);
  CHECK(same_bits(x[0], x[1]));
  // Nothing fell back to the old anchor.
  int far = 0;
  for (std::size_t k = 0; k < x[0].size(); ++k) far += std::abs(x[0][k] - rebased[k]) > 1;
  CHECK(far == 0);
}

TEST_CASE_TEMPLATE("rebase() refuses an open window, and then leaves all as it was", Optimizer, zero_one, local) {
  auto run = job_of<Optimizer>(2, 40), reference = run;
  std::atomic<int> refused{0};
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers&) {
    if (step < 20 || r.exchanged) return;
    ending const e = ending_of([&] { o.rebase(); });
    refused += e.what == outcome::argument && mentions(e, "optimizer::rebase") && mentions(e, "synchronize()");
  };
  auto const x = run.run();
  CHECK(refused > 0);
  CHECK(same_bits(x[0], reference.run()[0]));
}

TEST_CASE_TEMPLATE("rebase() refuses parameters that differ between ranks, on every rank", Optimizer, zero_one,
                   plain) {
  auto const endings = on_ranks(3, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({50}, {}, [](std::size_t k) { return noise(1, k); });
    auto o = make<Optimizer>(mine, {}, std::move(link));
    mine.parameter[0][7] = me == 1 ? 1.0f : 2.0f;
    flat const mine_before = mine.parameters();
    ending const e = ending_of([&] { o.rebase(); });
    CHECK(same_bits(mine_before, mine.parameters()));
    CHECK(ending_of([&] { o.rebase(); }).what == outcome::poisoned);
    if (e.what == outcome::mismatch) throw mismatch_error(e.text);
  });
  for (ending const& e : endings) {
    CHECK(e.what == outcome::mismatch);
    CHECK(mentions(e, "optimizer::rebase: rank 1 has other parameters than rank 0"));
  }
}

TEST_CASE_TEMPLATE("reopen_variance(): starved elements are counted as waiting, then start to move", Optimizer,
                   zero_one, paper) {
  auto run = job_of<Optimizer>(2, 30);
  run.sizes = {20};
  run.settings.sync.period = 1000;
  run.settings.state.variance_schedule.stop = 4;
  run.adjust = [](int step, flat& g) {
    if (step <= 10)
      for (std::size_t k = 15; k < 20; ++k) g[k] = 0;
  };
  std::atomic<int> wrong{0};
  run.after = [&](int step, Optimizer& o, step_report const& r, buffers& mine) {
    wrong += r.waiting != (step > 10 && step <= 20 ? 5 : 0);
    wrong += r.variance_updated != (step <= 4 || (step > 20 && step <= 24));
    for (std::size_t k = 15; k < 20; ++k) {
      bool const moved = mine.parameter[0][k] != 0.1f * noise(5, k);
      wrong += moved != (step > 20);
    }
    if (step == 20) o.reopen_variance();
  };
  auto const x = run.run();
  CHECK(wrong == 0);
  CHECK(same_bits(x[0], x[1]));
}

TEST_CASE("reopen_variance() on one rank only is a mismatch on all") {
  auto const endings = on_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({50}, {}, [](std::size_t k) { return noise(1, k); });
    typename zero_one::options_type settings;
    settings.state.variance_schedule.stop = 1;
    auto o = make<zero_one>(mine, settings, std::move(link));
    mine.set_gradient(noisy_gradient(1, me, 1, 50));
    (void)o.step(0.1);
    if (me == 1) o.reopen_variance();
    flat const before = mine.parameters();
    ending const e = ending_of([&] { (void)o.step(0.1); });
    CHECK(same_bits(before, mine.parameters()));
    if (e.what == outcome::mismatch) throw mismatch_error(e.text);
  });
  for (ending const& e : endings) CHECK(e.what == outcome::mismatch);
}

// ------------------------------------------------------------------------------------------ gradients on their way

TEST_CASE_TEMPLATE("grad_scale: accumulated gradients are the sum scaled", Optimizer, zero_one, paper, onebit, plain,
                   local) {
  // A power of two changes no bit on the way.
  auto run = job_of<Optimizer>(2, 12);
  auto const x = run.run();
  std::vector<flat> scaled(2);
  on_all_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine(run.sizes, {}, run.start);
    auto o = make<Optimizer>(mine, run.settings, std::move(link));
    for (int t = 1; t <= run.steps; ++t) {
      flat g = run.gradient_at(me, t, mine.elements());
      for (float& each : g) each *= 1024;
      mine.set_gradient(g);
      (void)o.step(run.rate(t), 1.0 / 1024);
    }
    scaled[nth(me)] = mine.parameters();
  });
  CHECK(same_bits(x[0], scaled[0]));
  CHECK(same_bits(x[1], scaled[1]));
}

TEST_CASE("clipping is by the local norm of the scaled gradient, before anything else") {
  auto run = job_of<plain>(2, 12);
  run.settings.max_norm = 0.7;
  std::atomic<int> wrong{0}, clipped{0};
  double const scale = 0.5;
  // The same by hand.
  auto by_hand = job_of<plain>(2, 12);
  by_hand.gradient = [&](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(1, rank, step, n);
    double square = 0;
    for (float& x : g) {
      x = static_cast<float>(scale) * x * (step % 3 == 0 ? 0.01f : 1.0f);
      square += double(x) * double(x);
    }
    double const norm = std::sqrt(square);
    if (norm > 0.7) {
      ++clipped;
      for (float& x : g) x = static_cast<float>(double(x) * 0.7 / norm);
    }
    return g;
  };
  auto const want = by_hand.run();
  std::vector<flat> got(2);
  on_all_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine(run.sizes, {}, run.start);
    auto o = make<plain>(mine, run.settings, std::move(link));
    for (int t = 1; t <= run.steps; ++t) {
      flat g = noisy_gradient(1, me, t, mine.elements());
      double square = 0;
      for (float& x : g) {
        x *= t % 3 == 0 ? 0.01f : 1.0f;
        square += double(x) * double(x);
      }
      mine.set_gradient(g);
      step_report const r = o.step(run.rate(t), scale);
      wrong += std::abs(r.gradient_norm - scale * std::sqrt(square)) > 1e-5 * scale * std::sqrt(square);
    }
    got[nth(me)] = mine.parameters();
  });
  CHECK(wrong == 0);
  CHECK(clipped == 2 * 8);
  for (std::size_t i = 0; i < 2; ++i) {
    double error = 0;
    for (std::size_t k = 0; k < got[i].size(); ++k) {
      error = larger(error, std::abs(double(got[i][k]) - double(want[i][k])));
    }
    CHECK(error < 1e-6);
  }
}

template <class Half, class Optimizer>
void compare_half() {
  auto const narrowed = [](flat const& values) {
    std::vector<Half> result(values.size());
    narrow(values.data(), result.data(), static_cast<index>(values.size()));
    return result;
  };
  auto run = job_of<Optimizer>(2, 10);
  run.adjust = [&](int, flat& g) {
    std::vector<Half> const h = narrowed(g);
    widen(h.data(), g.data(), static_cast<index>(g.size()));
  };
  auto const wide = run.run();
  std::vector<flat> got(2);
  on_all_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine(run.sizes, {}, run.start);
    std::vector<std::vector<Half>> g;
    auto list = mine.tensors();
    for (std::size_t t = 0; t < list.size(); ++t) {
      g.emplace_back(mine.gradient[t].size());
      // One tensor stays in float32.
      if (t != 2) list[t].gradient = std::span<Half const>(g.back());
    }
    Optimizer o(list, run.settings, std::move(link));
    for (int t = 1; t <= run.steps; ++t) {
      mine.set_gradient(run.gradient_at(me, t, mine.elements()));
      for (std::size_t k = 0; k < g.size(); ++k) {
        std::vector<Half> const h = narrowed(mine.gradient[k]);
        std::copy(h.begin(), h.end(), g[k].begin());
      }
      (void)o.step(run.rate(t));
    }
    got[nth(me)] = mine.parameters();
  });
  CHECK(same_bits(wide[0], got[0]));
  CHECK(same_bits(wide[1], got[1]));
}

TEST_CASE_TEMPLATE("16-bit gradients equal the widened float32 ones bit for bit", Optimizer, zero_one, paper, onebit,
                   plain, local) {
  compare_half<bfloat16, Optimizer>();
  compare_half<float16, Optimizer>();
}

TEST_CASE("16-bit gradients: Inf and NaN are bad, too") {
  std::vector<float16> g(10);
  buffers mine({10}, {}, [](std::size_t) { return 1.0f; });
  auto list = mine.tensors();
  list[0].gradient = std::span<float16 const>(g);
  adam<> o(list, {}, single_transport{});
  flat values(10, 1.0f);
  narrow(values.data(), g.data(), 10);
  CHECK(!o.step(0.1).skipped_here);
  g[3] = std::bit_cast<float16>(std::uint16_t{0x7c00});
  CHECK(o.step(0.1).skipped_here);
  g[3] = std::bit_cast<float16>(std::uint16_t{0x7e01});
  CHECK(o.step(0.1).skipped_here);
  CHECK(all_finite(mine.parameter[0]));
}

// ------------------------------------------------------------------------------------------------------ threads

TEST_CASE_TEMPLATE("threads per rank change no bit", Optimizer, zero_one, paper, by_rate, onebit, local) {
  auto run = job_of<Optimizer>(2, 20);
  run.sizes = {5000, 0, 300, 9001};
  run.settings.max_norm = 3;
  std::vector<std::uint64_t> hash(2);
  run.at_end = [&](Optimizer& o, buffers&) { hash[nth(o.rank())] = o.replica_hash(); };
  auto const one = run.run();
  auto const expected = hash;
  for (int const threads : {2, 3}) {
    run.threads = threads;
    auto const more = run.run();
    CHECK(same_bits(one[0], more[0]));
    CHECK(same_bits(one[1], more[1]));
    CHECK(hash == expected);
  }
}

TEST_CASE("an optimizer can be moved, also between steps") {
  buffers mine({100}, {}, [](std::size_t k) { return noise(1, k); });
  buffers other({100}, {}, [](std::size_t k) { return noise(1, k); });
  auto still = make<zero_one_adam<>>(other, {}, single_transport{}, 2);
  auto first = make<zero_one_adam<>>(mine, {}, single_transport{}, 2);
  for (int t = 1; t < 5; ++t) {
    mine.set_gradient(noisy_gradient(1, 0, t, 100));
    other.set_gradient(noisy_gradient(1, 0, t, 100));
    (void)first.step(0.1);
    (void)still.step(0.1);
  }
  auto second = std::move(first);
  (void)second.step(0.1);
  (void)still.step(0.1);
  CHECK(same_bits(mine.parameters(), other.parameters()));
  CHECK(second.replica_hash() == still.replica_hash());
}

}  // namespace
