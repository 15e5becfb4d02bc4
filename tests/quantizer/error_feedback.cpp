// SPDX-License-Identifier: Apache-2.0
// Error compensation: nothing is lost, whatever the sizes, groups, ranks and rounds.
#include "zoadam/quantizer/error_feedback.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "zoadam/backend/cpu.hpp"
#include "zoadam/optimizer.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/sign.hpp"
#include "zoadam/quantizer/top_k.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/sync/every_step.hpp"
#include "zoadam/transport/thread.hpp"

namespace {

using zoadam::index;

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }

struct job {
  std::vector<index> sizes;
  int ranks, rounds;
  std::uint32_t seed;
};

// Per element, over all rounds: the sum of outputs, the sum of mean inputs, mean of worker errors, owner error.
struct balance {
  std::vector<double> out, in, worker_error, owner_error, magnitude;
  std::vector<double> found;  // in the errors of both sides at the beginning of each round
};

template <class Quantizer>
balance run(job const& j) {
  using namespace zoadam;
  using mean = optimizer<Quantizer, every_step, mean_state, cpu_backend, thread_transport>;
  index total = 0;
  for (index n : j.sizes) total += n;
  balance result;
  for (auto* list :
       {&result.out, &result.in, &result.worker_error, &result.owner_error, &result.magnitude, &result.found}) {
    list->assign(nth(total), 0.0);
  }
  std::mutex mutex;
  thread_group group(j.ranks);
  auto const rank = [&](int me) {
    std::vector<std::vector<float>> x, g;
    std::vector<tensor> tensors;
    for (index n : j.sizes) {
      x.emplace_back(nth(n));
      g.emplace_back(nth(n));
    }
    for (std::size_t t = 0; t < x.size(); ++t) tensors.push_back({std::to_string(t), {}, x[t], g[t]});
    mean all_reduce(tensors, {}, group.rank(me));
    layout const l(tensors, 1);
    partition<Quantizer> const cut(l, j.ranks);
    auto const add_errors = [&](mean const& o, std::vector<double>& of_workers, std::vector<double>& of_owners) {
      if constexpr (Quantizer::compensated) {
        auto const worker = o.values(at::worker_error_t<gradient_mean>{});
        for (std::size_t k = 0; k < worker.size(); ++k) of_workers[k] += double(worker[k]) / j.ranks;
        // Owner errors lie in the order of the owner's elements.
        auto const owner = o.values(at::owner_error_t<gradient_mean>{});
        CHECK(static_cast<index>(owner.size()) == cut.elements(me));
        for (index i = 0; i < cut.owned(me); ++i) {
          piece const p = cut.owned(me, i);
          for (index k = p.first; k < p.last; ++k) of_owners[nth(k)] += double(owner[nth(p.own + k - p.first)]);
        }
      }
    };
    std::mt19937 random(j.seed * 31 + static_cast<std::uint32_t>(me));
    for (int round = 0; round < j.rounds; ++round) {
      {
        std::lock_guard const lock(mutex);
        add_errors(all_reduce, result.found, result.found);
      }
      for (auto& list : g) {
        for (float& e : list) e = static_cast<float>(static_cast<std::int32_t>(random()) >> 12) * 0x1p-16f;
      }
      (void)all_reduce.step(1.0);
      std::lock_guard const lock(mutex);
      std::size_t k = 0;
      for (std::size_t t = 0; t < x.size(); ++t) {
        for (std::size_t i = 0; i < x[t].size(); ++i, ++k) {
          if (me == 0) result.out[k] += double(x[t][i]);
          result.in[k] += double(g[t][i]) / j.ranks;
          result.magnitude[k] += std::abs(double(g[t][i])) / j.ranks;
        }
      }
    }
    std::lock_guard const lock(mutex);
    add_errors(all_reduce, result.worker_error, result.owner_error);
  };
  std::vector<std::thread> threads;
  for (int me = 0; me < j.ranks; ++me) threads.emplace_back(rank, me);
  for (std::thread& t : threads) t.join();
  return result;
}

// The largest violation of the invariant, relative to the sum of the magnitudes of the element's tensor run. Errors
// that decay lose their share of what each round has found in them.
template <class Quantizer>
double violation(job const& j, double decay = 1) {
  balance const b = run<Quantizer>(j);
  double largest = 0, magnitude = 1e-30;
  for (double m : b.magnitude) magnitude = std::max(magnitude, m);
  for (std::size_t k = 0; k < b.out.size(); ++k) {
    double const lost = (1 - decay) * b.found[k];
    largest = std::max(largest, std::abs(b.out[k] + b.worker_error[k] + b.owner_error[k] - (b.in[k] - lost)));
  }
  return largest / magnitude;
}

template <class... Quantizers>
struct list {};

template <class F, class... Quantizers>
void each(list<Quantizers...>, F const& f) {
  (f.template operator()<zoadam::error_feedback<Quantizers>>(), ...);
}
using all = list<zoadam::sign_quantizer<zoadam::block<32>>, zoadam::sign_quantizer<zoadam::block<>>,
                 zoadam::sign_quantizer<zoadam::per_tensor>, zoadam::sign_quantizer<zoadam::whole>,
                 zoadam::sign_quantizer<zoadam::whole, zoadam::l2>, zoadam::cast_quantizer<zoadam::bfloat16>,
                 zoadam::top_k_quantizer<zoadam::block<96>, 7>>;

TEST_CASE("invariant: sum of outputs + mean of worker errors + owner error = sum of mean inputs") {
  std::mt19937 random(17);
  auto const below = [&](std::uint32_t n) { return static_cast<int>(random() % n); };
  for (int trial = 0; trial < 12; ++trial) {
    job j{{}, 1 + below(5), 1 + below(30), static_cast<std::uint32_t>(random())};
    for (int t = 1 + below(5); t > 0; --t) {
      index const some[] = {0, 1, 7, 31, 32, 33, 64, 65, 700, 2048, 2049, 5000};
      j.sizes.push_back(some[below(12)]);
    }
    CAPTURE(trial);
    CAPTURE(j.ranks);
    CAPTURE(j.rounds);
    each(all{}, [&]<class Quantizer>() { CHECK(violation<Quantizer>(j) < 2e-6); });
  }
}

TEST_CASE("without compensation the invariant is broken: the check above can fail") {
  job const j{{700, 33}, 2, 20, 3};
  CHECK(violation<zoadam::sign_quantizer<zoadam::whole>>(j) > 1e-3);
}

TEST_CASE("errors that decay: sum of outputs + errors = sum of mean inputs - lost shares of the errors found") {
  for (int const ranks : {1, 3}) {
    job const j{{700, 33, 2049}, ranks, 20, 3};
    using by_block = zoadam::error_feedback<zoadam::sign_quantizer<zoadam::block<64>>, std::ratio<3, 4>>;
    using by_tensor = zoadam::error_feedback<zoadam::sign_quantizer<zoadam::per_tensor>, std::ratio<19, 20>>;
    CHECK(violation<by_block>(j, 0.75) < 2e-6);
    CHECK(violation<by_tensor>(j, 0.95) < 2e-6);
    using by_few = zoadam::error_feedback<zoadam::top_k_quantizer<zoadam::block<512>, 9>, std::ratio<1, 2>>;
    CHECK(violation<by_few>(j, 0.5) < 2e-6);
    CHECK(violation<by_tensor>(j) > 1e-3);  // the invariant itself is that of decay 1
  }
}

TEST_CASE("decay 1 is plain error feedback; any other is part of the name") {
  using plain = zoadam::error_feedback<zoadam::sign_quantizer<>>;
  static_assert(std::is_same_v<plain, zoadam::error_feedback<zoadam::sign_quantizer<>, std::ratio<1>>>);
  static_assert(plain::error_decay == 1);
  zoadam::detail::namer name;
  zoadam::error_feedback<zoadam::sign_quantizer<>, std::ratio<19, 20>>{}.describe(name);
  CHECK(name.text() == "error_feedback(19, 20) sign l1 block(2048)");
}

TEST_CASE("compensation is said, and everything else is the quantizer's") {
  using zoadam::error_feedback;
  using zoadam::sign_quantizer;
  static_assert(error_feedback<sign_quantizer<>>::compensated && !sign_quantizer<>::compensated);
  static_assert(zoadam::quantizer<error_feedback<sign_quantizer<>>>);
  static_assert(!zoadam::keeps_zero<error_feedback<sign_quantizer<>>>);
  static_assert(zoadam::keeps_zero<error_feedback<zoadam::cast_quantizer<zoadam::bfloat16>>>);
  CHECK(error_feedback<sign_quantizer<>>::payload_bytes(100) == sign_quantizer<>::payload_bytes(100));
  zoadam::detail::namer name;
  error_feedback<sign_quantizer<zoadam::block<64>>>{}.describe(name);
  CHECK(name.text() == "error_feedback sign l1 block(64)");
}

}  // namespace
