// SPDX-License-Identifier: Apache-2.0
// Parameters with a copy in 16 bits, and parameters in 16 bits alone: the same training, and copies that always are
// what the float32 values round to.
#include <cstring>
#include <limits>

#include "suite/job.hpp"
#include "zoadam/state/published.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using masked = threaded<sign_with_feedback<per_tensor>, learning_rate_interval,
                        frozen_variance_state<momentum_sum<momentum_rule::correct>>>;
using published = threaded<sign_with_feedback<per_tensor, l2>, aligned_local_steps, published_zero_one_adam_state>;

std::vector<index> const sizes{700, 0, 33, 2050, 1};

/// The tensors of one rank, each with a copy in 16 bits; every second one has no other parameter.
template <class Half>
struct copies {
  buffers plain{sizes, {}, [](std::size_t k) { return to_float(to_half<Half>(0.1f * noise(5, k))); }};
  std::vector<std::vector<Half>> half;

  copies() {
    for (flat const& x : plain.parameter) half.emplace_back(x.size());
    for (std::size_t t = 1; t < half.size(); t += 2) {
      narrow(plain.parameter[t].data(), half[t].data(), static_cast<index>(half[t].size()));
    }
  }
  std::vector<tensor> tensors() {
    std::vector<tensor> all = plain.tensors();
    for (std::size_t t = 0; t < half.size(); ++t) {
      all[t].working = half[t];
      if (t % 2 == 1) all[t].parameter = {};
    }
    return all;
  }
};

template <class Half>
bool rounded(std::span<float const> x, std::vector<Half> const& half) {
  bool same = x.size() == half.size();
  for (std::size_t i = 0; same && i < x.size(); ++i) same = to_half<Half>(x[i]).bits == half[i].bits;
  return same;
}

/// Runs with copies and without on every rank: the parameters stay equal, the copies what they round to.
template <class Half, class Optimizer>
void compare(int ranks, int threads) {
  typename Optimizer::options_type settings;
  if constexpr (requires { settings.sync.period; }) settings.sync.period = 8;
  if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 5;
  if constexpr (requires { settings.state.variance_freeze_step; }) settings.state.variance_freeze_step = 9;
  if constexpr (requires { Optimizer::state_type::reopens_variance; }) settings.state.variance_schedule.kappa = 2;
  thread_group links(ranks), links_of_twin(ranks);
  std::vector<ending> endings(nth(ranks));
  std::atomic<int> wrong{0};
  auto const work = [&](int rank) {
    copies<Half> mine;
    buffers twin(mine.plain);
    Optimizer o(mine.tensors(), settings, links.rank(rank), typename Optimizer::backend_type(threads));
    Optimizer other = make<Optimizer>(twin, settings, links_of_twin.rank(rank), threads);
    auto const check = [&] {
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        // agreed() is behind while local steps are open; the user's float32 parameters never are.
        if (t % 2 == 0) {
          wrong += !same_bits(mine.plain.parameter[t], twin.parameter[t]);
          wrong += !rounded(std::span<float const>(mine.plain.parameter[t]), mine.half[t]);
        }
        wrong += !same_bits(copy_of(o.agreed(index(t))), copy_of(other.agreed(index(t))));
        wrong += !rounded(std::span<float const>(twin.parameter[t]), mine.half[t]);
      }
      wrong += o.replica_hash() != other.replica_hash();
    };
    check();
    for (int step = 1; step <= 30; ++step) {
      flat g = noisy_gradient(3, rank, step, twin.elements());
      if (step % 9 == 4 && rank == 0) g[5] = std::numeric_limits<float>::quiet_NaN();
      mine.plain.set_gradient(g);
      twin.set_gradient(g);
      auto const a = o.step(1e-2), b = other.step(1e-2);
      wrong += a.exchanged != b.exchanged;
      check();
    }
    (void)o.synchronize();
    (void)other.synchronize();
    check();

    // The user changes a parameter in 16 bits: it is the new master, on its grid.
    for (Half& h : mine.half[3]) h = to_half<Half>(0.25f);
    for (std::size_t t = 1; t < sizes.size(); t += 2) {
      widen(mine.half[t].data(), twin.parameter[t].data(), static_cast<index>(mine.half[t].size()));
    }
    // and one in float32
    for (float& x : mine.plain.parameter[0]) x = 1.0f / 3;
    for (float& x : twin.parameter[0]) x = 1.0f / 3;
    o.rebase();
    other.rebase();
    check();
    (void)o.step(1e-2);
    (void)other.step(1e-2);
    check();
    memory_use const use = o.memory(), plain = other.memory();
    wrong += use.masters != (2050 * 4 + 63) / 64 * 64;
    wrong += plain.masters != 0 || use.total() - use.masters != plain.total();
  };
  std::vector<std::thread> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.emplace_back([&, rank] { endings[nth(rank)] = ending_of([&] { work(rank); }); });
  }
  for (std::thread& t : all) t.join();
  for (ending const& e : endings) {
    INFO(e.text);
    CHECK(e.what == outcome::ok);
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("the same training with copies in 16 bits", Optimizer, zero_one_adam<thread_transport>,
                   zero_one_adam_paper<thread_transport>, onebit_adam<thread_transport>, adam<thread_transport>,
                   local_adam<thread_transport>, masked, published) {
  compare<bfloat16, Optimizer>(1, 2);
  compare<float16, Optimizer>(3, 1);
}

TEST_CASE("working copies that cannot be are refused, and nothing is written") {
  using optimizer = zero_one_adam<>;
  std::vector<float> x(8, 1.0f), g(8);
  std::vector<bfloat16> half(9, bfloat16{0x1234});
  std::span<bfloat16> const all(half);
  auto const refused = [&](tensor t, char const* why) {
    CAPTURE(why);
    ending const e = ending_of([&] { optimizer({std::move(t)}, {}, single_transport{}); });
    CHECK(e.what == outcome::argument);
    CHECK_MESSAGE(e.text.find(why) != std::string::npos, e.text);
    CHECK(x == std::vector<float>(8, 1.0f));
    for (bfloat16 h : half) CHECK(h.bits == 0x1234);
  };
  auto const tensor_with = [&](std::span<float> parameter, gradient_view gradient, working_view working) {
    return tensor{"w", {}, parameter, gradient, 0, working};
  };
  refused(tensor_with(x, g, all), "working has 9 elements, parameter 8");
  refused(tensor_with({}, g, all), "gradient has 8 elements, parameter 9");
  refused(tensor_with({}, {}, std::span<bfloat16>(static_cast<bfloat16*>(nullptr), 8)), "working is null");
  refused(tensor_with({}, std::span<bfloat16 const>(all.first(8)), all.first(8)), "overlap");
  refused(tensor_with(x, {}, std::span<bfloat16>(reinterpret_cast<bfloat16*>(x.data()) + 3, 8)), "overlap");
  refused(tensor_with({}, {},
                      std::span<float16>(reinterpret_cast<float16*>(reinterpret_cast<char*>(half.data()) + 1), 8)),
          "misaligned");
  tensor shaped = tensor_with({}, {}, all);
  shaped.shape = {2, 4};
  refused(shaped, "shape");

  // Ranks that disagree: nobody's copy is written.
  thread_group links(2);
  std::vector<std::vector<bfloat16>> copies_of(2, std::vector<bfloat16>(8, bfloat16{0x1234}));
  std::vector<ending> endings(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::vector<float> mine(8, static_cast<float>(rank));
      endings[nth(rank)] = ending_of([&] {
        zero_one_adam<thread_transport>({tensor{"w", {}, mine, {}, 0, copies_of[nth(rank)]}}, {}, links.rank(rank));
      });
    });
  }
  for (std::thread& t : ranks) t.join();
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(endings[nth(rank)].what == outcome::mismatch);
    for (bfloat16 h : copies_of[nth(rank)]) CHECK(h.bits == 0x1234);
  }
}

TEST_CASE("a rebase() that fails leaves the masters, and ranks must agree on who keeps one") {
  using optimizer = adam<thread_transport>;
  thread_group links(2), other_links(2);
  std::vector<ending> endings(2), others(2);
  std::vector<std::thread> ranks;
  std::atomic<int> wrong{0};
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::vector<bfloat16> half(40, to_bfloat16(1.0f));
      std::vector<float> x(40, 1.0f), g(40, 0.1f);
      optimizer o({{"w", {}, {}, g, 0, half}}, {}, links.rank(rank));
      for (int t = 0; t < 5; ++t) (void)o.step(1e-3);
      flat const before = copy_of(o.agreed(0));
      for (bfloat16& h : half) h = to_bfloat16(static_cast<float>(rank));
      endings[nth(rank)] = ending_of([&] { o.rebase(); });
      wrong += !same_bits(copy_of(o.agreed(0)), before);

      tensor mine{"w", {}, x, g, 0, half};
      if (rank == 1) mine.parameter = {};
      for (bfloat16& h : half) h = to_bfloat16(1.0f);
      others[nth(rank)] = ending_of([&] { optimizer({mine}, {}, other_links.rank(rank)); });
    });
  }
  for (std::thread& t : ranks) t.join();
  CHECK(wrong == 0);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(endings[nth(rank)].what == outcome::mismatch);
    CHECK(others[nth(rank)].what == outcome::mismatch);
  }
}

}  // namespace
