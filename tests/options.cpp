// SPDX-License-Identifier: Apache-2.0
// Bad input: every wrong call is an exception that names the argument, on every rank, and parameters stay.
#include "zoadam/options.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

using zero_one = zero_one_adam<thread_transport>;
using onebit = onebit_adam<thread_transport>;
using plain = adam<thread_transport>;
using options_type = zero_one::options_type;

float start(std::size_t k) { return 0.1f * noise(5, k); }

int changed(buffers const& b) {
  int count = 0;
  std::size_t k = 0;
  for (float const x : b.parameters()) count += x != start(k++);
  return count;
}

template <class Optimizer>
using alteration = std::function<void(typename Optimizer::options_type&, std::vector<tensor>&, buffers&)>;

/// Rank `culprit` (or all, -1) alters what it hands over; returns how construction ended on each of three ranks.
template <class Optimizer>
std::vector<ending> construct(int culprit, alteration<Optimizer> const& alter) {
  return on_ranks(3, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({40, 30}, {}, start);
    typename Optimizer::options_type settings;
    if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 3;
    auto list = mine.tensors();
    if (culprit < 0 || me == culprit) alter(settings, list, mine);
    flat const before = mine.parameters();
    ending const e = ending_of([&] { Optimizer o(list, settings, std::move(link)); });
    CHECK(same_bits(before, mine.parameters()));
    switch (e.what) {
      case outcome::argument:
        throw argument_error(e.text);
      case outcome::mismatch:
        throw mismatch_error(e.text);
      case outcome::ok:
        return;
      default:
        throw std::runtime_error(e.text);
    }
  });
}

/// On all ranks: argument_error everywhere. On one rank: there the argument, elsewhere that rank 1 refused.
template <class Optimizer>
void expect_refusal(std::string const& words, alteration<Optimizer> const& alter) {
  CAPTURE(words);
  for (ending const& e : construct<Optimizer>(-1, alter)) {
    CAPTURE(e.text);
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, words));
  }
  auto const endings = construct<Optimizer>(1, alter);
  CHECK(endings[1].what == outcome::argument);
  CHECK(mentions(endings[1], words));
  for (std::size_t const i : std::initializer_list<std::size_t>{0, 2}) {
    CAPTURE(endings[i].text);
    CHECK(endings[i].what == outcome::mismatch);
    CHECK(mentions(endings[i], "rank 1 refused its arguments"));
  }
}

TEST_CASE("bad input: what is not altered is fine") {
  for (ending const& e : construct<zero_one>(-1, [](auto&...) {})) CHECK(e.what == outcome::ok);
  for (ending const& e : construct<onebit>(-1, [](auto&...) {})) CHECK(e.what == outcome::ok);
}

TEST_CASE("bad input: hyper-parameters") {
  auto const refuse = [](char const* words, double options_type::*field, std::initializer_list<double> values) {
    for (double const value : values) {
      CAPTURE(value);
      expect_refusal<zero_one>(words, [&](options_type& o, auto&, auto&) { o.*field = value; });
    }
  };
  refuse("options.beta1 must be in [0, 1)", &options_type::beta1, {-0.1, 1.0, 1.5, nan, inf, -inf});
  refuse("options.beta2 must be in [0, 1)", &options_type::beta2, {-1e-9, 1.0, 2.0, nan, inf});
  refuse("options.epsilon must be finite and >= 0", &options_type::epsilon, {-1e-8, nan, inf});
  refuse("options.weight_decay must be finite and >= 0", &options_type::weight_decay, {-0.1, nan, inf});
  refuse("options.limit must be finite and >= 0", &options_type::limit, {-1.0, nan, inf});
  refuse("options.max_norm must be finite and >= 0", &options_type::max_norm, {-1.0, nan, inf});
  expect_refusal<zero_one>("options.trusted_gradients", [](options_type& o, auto&, auto&) {
    o.trusted_gradients = true;
    o.max_norm = 1;
  });
}

TEST_CASE("bad input: parameter groups") {
  for (double const value : {-0.1, nan, inf}) {
    expect_refusal<zero_one>("options.groups: weight_decay", [&](options_type& o, auto&, auto&) {
      o.groups = {{0, 1}, {value, 1}};
    });
  }
  for (double const value : {0.0, -1.0, nan, inf}) {
    expect_refusal<zero_one>("options.groups: lr_factor", [&](options_type& o, auto&, auto&) {
      o.groups = {{0, value}};
    });
  }
  for (int const group : {-1, 1, 7}) {
    expect_refusal<zero_one>("tensors: 'tensor 1': group " + std::to_string(group) + " of 1",
                             [&](auto&, std::vector<tensor>& list, auto&) { list[1].group = group; });
  }
}

TEST_CASE("bad input: policies' own numbers") {
  expect_refusal<onebit>("options.state", [](auto& o, auto&, auto&) { o.state.freeze.step = 0; });
  expect_refusal<onebit>("options.state", [](auto& o, auto&, auto&) { o.state.freeze = {}; });
  expect_refusal<zero_one>("options.state",
                           [](options_type& o, auto&, auto&) { o.state.variance_schedule.kappa = 0; });
  expect_refusal<zero_one>("options.state",
                           [](options_type& o, auto&, auto&) { o.state.variance_schedule.stop = -1; });
  expect_refusal<zero_one>("options.sync", [](options_type& o, auto&, auto&) { o.sync.start = -1; });
  expect_refusal<zero_one>("options.sync", [](options_type& o, auto&, auto&) { o.sync.period = 0; });
  expect_refusal<zero_one>("options.sync", [](options_type& o, auto&, auto&) { o.sync.longest = 0; });
  expect_refusal<local_adam<thread_transport>>("options.sync", [](auto& o, auto&, auto&) { o.sync.interval = 0; });
}

TEST_CASE("bad input: tensors") {
  using list_type = std::vector<tensor>;
  expect_refusal<zero_one>("tensors: the list is empty", [](auto&, list_type& list, auto&) { list.clear(); });
  expect_refusal<zero_one>("tensors: 'tensor 1': gradient has 40 elements, parameter 30",
                           [](auto&, list_type& list, auto&) { list[1].gradient = list[0].gradient; });
  expect_refusal<zero_one>("tensors: 'tensor 0': the shape", [](auto&, list_type& list, auto&) {
    list[0].shape = {4, 11};
  });
  expect_refusal<zero_one>("tensors: 'tensor 0': the shape", [](auto&, list_type& list, auto&) {
    list[0].shape = {-4, -10};
  });
  expect_refusal<zero_one>("tensors: 'tensor 0': the shape", [](auto&, list_type& list, auto&) {
    list[0].shape = {index{1} << 40, index{1} << 40};
  });
  expect_refusal<zero_one>("tensors: 'tensor 1': parameter is null", [](auto&, list_type& list, auto&) {
    list[1].parameter = std::span<float>(static_cast<float*>(nullptr), 30);
  });
}

TEST_CASE("bad input: spans that overlap") {
  using list_type = std::vector<tensor>;
  auto const refuse = [](alteration<zero_one> const& alter) { expect_refusal<zero_one>("overlap", alter); };
  // The same parameter twice, a part of it, a gradient over its own parameter, one over another's.
  refuse([](auto&, list_type& list, auto&) { list[1].parameter = list[0].parameter.first(30); });
  refuse([](auto&, list_type& list, auto&) { list[1].parameter = list[0].parameter.subspan(10, 30); });
  refuse([](auto&, list_type& list, auto&) { list[0].gradient = list[0].parameter; });
  refuse([](auto&, list_type& list, auto&) { list[1].gradient = list[0].parameter.subspan(5, 30); });
  // Neighbours do not overlap, and gradients may be shared: they are only read.
  for (ending const &e : construct<zero_one>(-1, [](auto&, list_type&list, buffers&mine) {
         mine.parameter[0].resize(70);
         list[0].parameter = std::span<float>(mine.parameter[0]).first(40);
         list[1].parameter = std::span<float>(mine.parameter[0]).last(30);
         list[1].gradient = std::span<float const>(mine.gradient[0]).first(30);
       })) {
    CHECK(e.what == outcome::ok);
  }
}

TEST_CASE("bad input: ranks that differ") {
  using list_type = std::vector<tensor>;
  auto const expect = [](std::string const& words, alteration<zero_one> const& alter) {
    CAPTURE(words);
    for (ending const& e : construct<zero_one>(1, alter)) {
      CAPTURE(e.text);
      CHECK(e.what == outcome::mismatch);
      CHECK(mentions(e, "optimizer(): rank 1 has " + words));
    }
  };
  expect("other tensors", [](auto&, list_type& list, auto&) { list.pop_back(); });
  expect("other tensors", [](auto&, list_type& list, auto&) { std::swap(list[0], list[1]); });
  expect("other tensors", [](auto&, list_type& list, auto&) { list[0].name = "another"; });
  expect("other tensors", [](auto&, list_type& list, auto&) { list[0].shape = {8, 5}; });
  expect("other tensors", [](options_type& o, list_type& list, auto&) {
    o.groups = {{0, 1}, {0, 1}};
    list[0].group = 1;
  });
  expect("other options", [](options_type& o, auto&, auto&) { o.beta1 = std::nextafter(0.9, 1.0); });
  expect("other options", [](options_type& o, auto&, auto&) { o.beta2 = 0.99; });
  expect("other options", [](options_type& o, auto&, auto&) { o.epsilon = 1e-9; });
  expect("other options", [](options_type& o, auto&, auto&) { o.epsilon_inside = true; });
  expect("other options", [](options_type& o, auto&, auto&) { o.bias_correction = false; });
  expect("other options", [](options_type& o, auto&, auto&) { o.weight_decay = 0.1; });
  expect("other options", [](options_type& o, auto&, auto&) { o.limit = 0.5; });
  expect("other options", [](options_type& o, auto&, auto&) { o.max_norm = 1; });
  expect("other options", [](options_type& o, auto&, auto&) { o.trusted_gradients = true; });
  expect("other options", [](options_type& o, auto&, auto&) { o.groups = {{0, 0.5}}; });
  expect("other parameters", [](auto&, auto&, buffers& mine) { mine.parameter[1][29] = 7; });
  expect("other parameters",
         [](auto&, auto&, buffers& mine) { std::swap(mine.parameter[0][1], mine.parameter[0][2]); });
}

TEST_CASE("bad input: ranks with other settings of a policy, or other policies") {
  auto const expect = [](alteration<zero_one> const& alter) {
    for (ending const& e : construct<zero_one>(2, alter)) {
      CHECK(e.what == outcome::mismatch);
      CHECK(mentions(e, "rank 2 runs another composition than rank 0"));
    }
  };
  expect([](options_type& o, auto&, auto&) { o.sync.start = 1; });
  expect([](options_type& o, auto&, auto&) { o.sync.longest = 8; });
  expect([](options_type& o, auto&, auto&) { o.state.variance_schedule.kappa = 16; });
  expect([](options_type& o, auto&, auto&) { o.state.variance_schedule.stop = 1000; });

  for (ending const& e : on_ranks(2, [&](thread_transport link) {
         buffers mine({40}, {}, start);
         if (link.rank() == 0) {
           (void)make<zero_one>(mine, {}, std::move(link));
         } else {
           (void)make<zero_one_adam_paper<thread_transport>>(mine, {}, std::move(link));
         }
       })) {
    CHECK(e.what == outcome::mismatch);
    CHECK(mentions(e, "rank 1 runs another composition than rank 0"));
  }
}

// --------------------------------------------------------------------------------------------------------- step()

TEST_CASE_TEMPLATE("bad input: step() refuses bad rates and scales, and goes on with the next good ones", Optimizer,
                   zero_one, plain) {
  on_all_ranks(2, [](thread_transport link) {
    int const me = link.rank();
    buffers mine({40}, {}, start), other({40}, {}, start);
    auto o = make<Optimizer>(mine, {}, std::move(link));
    for (double const lr : {-1e-3, nan, inf, -inf}) {
      ending const e = ending_of([&] { (void)o.step(lr); });
      CHECK(e.what == outcome::argument);
      CHECK(mentions(e, "optimizer::step: lr must be finite and >= 0"));
    }
    for (double const scale : {0.0, -1.0, nan, inf}) {
      ending const e = ending_of([&] { (void)o.step(1e-2, scale); });
      CHECK(e.what == outcome::argument);
      CHECK(mentions(e, "optimizer::step: grad_scale must be in [2^-126, largest float32]"));
    }
    CHECK(changed(mine) == 0);
    CHECK(o.steps() == 0);
    mine.set_gradient(noisy_gradient(1, me, 1, 40));
    CHECK(o.step(1e-2).step == 1);
    CHECK(changed(mine) == 40);
  });
}

TEST_CASE_TEMPLATE("bad input: learning rates that differ between ranks: mismatch everywhere, then poisoned",
                   Optimizer, zero_one, zero_one_adam_paper<thread_transport>, onebit, plain,
                   local_adam<thread_transport>) {
  for (int const good_steps : {0, 1, 9}) {
    typename Optimizer::options_type settings;
    if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 5;
    if constexpr (requires { settings.sync.interval; }) settings.sync.interval = 1;
    std::atomic<int> replicas_changed{0};
    auto const endings = on_ranks(3, [&](thread_transport link) {
      int const me = link.rank();
      buffers mine({40}, {}, start);
      auto o = make<Optimizer>(mine, settings, std::move(link));
      for (int t = 1; t <= good_steps; ++t) {
        mine.set_gradient(noisy_gradient(1, me, t, 40));
        (void)o.step(1e-2);
      }
      flat const before = mine.parameters();
      ending const e = ending_of([&] { (void)o.step(me == 1 ? 1.5e-2 : 1e-2); });
      replicas_changed += !same_bits(before, mine.parameters());
      CHECK(ending_of([&] { (void)o.step(1e-2); }).what == outcome::poisoned);
      CHECK(ending_of([&] { (void)o.synchronize(); }).what == outcome::poisoned);
      CHECK(ending_of([&] { o.rebase(); }).what != outcome::ok);
      CHECK(same_bits(before, mine.parameters()));
      if (e.what == outcome::mismatch) throw mismatch_error(e.text);
    });
    CHECK(replicas_changed == 0);
    for (ending const& e : endings) {
      CAPTURE(e.text);
      CHECK(e.what == outcome::mismatch);
    }
  }
}

TEST_CASE("bad input: a learning rate that differed within a window is found at its exchange") {
  auto const endings = on_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({40}, {}, start);
    options_type settings;
    settings.sync = {0, 1, 16};
    settings.state.variance_schedule.stop = 1;
    auto o = make<zero_one>(mine, settings, std::move(link));
    for (int t = 1; t <= 40; ++t) {
      mine.set_gradient(noisy_gradient(1, me, t, 40));
      flat const before = mine.parameters();
      bool const exchanges = o.will_exchange();
      ending const e = ending_of([&] { (void)o.step(me == 1 && t == 20 ? 2e-2 : 1e-2); });
      if (e.what == outcome::ok) continue;
      CHECK(exchanges);
      CHECK(t >= 20);
      CHECK(same_bits(before, mine.parameters()));
      if (e.what == outcome::mismatch) throw mismatch_error(e.text);
    }
  });
  for (ending const& e : endings) {
    CHECK(e.what == outcome::mismatch);
    CHECK(mentions(e, "learning rate"));
  }
}

TEST_CASE_TEMPLATE("bad input: a rank that makes another call, or is a step behind", Optimizer, zero_one, plain) {
  auto const endings = on_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({40}, {}, start);
    auto o = make<Optimizer>(mine, {}, std::move(link));
    mine.set_gradient(noisy_gradient(1, me, 1, 40));
    (void)o.step(1e-2);
    flat const before = mine.parameters();
    ending const e = ending_of([&] { me == 0 ? o.rebase() : (void)o.step(1e-2); });
    CHECK(same_bits(before, mine.parameters()));
    if (e.what == outcome::mismatch) throw mismatch_error(e.text);
    throw std::runtime_error(e.text);
  });
  for (ending const& e : endings) CHECK(e.what == outcome::mismatch);
}

// ------------------------------------------------------------------------------------------------- failing peers

TEST_CASE_TEMPLATE("a thread that throws between steps: the others throw within the time limit", Optimizer, zero_one,
                   onebit) {
  auto const begin = std::chrono::steady_clock::now();
  std::atomic<int> changed_by_failure{0};
  auto const endings = on_ranks(
      3,
      [&](thread_transport link) {
        int const me = link.rank();
        buffers mine({40}, {}, start);
        typename Optimizer::options_type settings;
        if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 2;
        auto o = make<Optimizer>(mine, settings, std::move(link));
        for (int t = 1; t <= 10; ++t) {
          if (me == 2 && t == 5) throw std::runtime_error("this rank has had enough");
          mine.set_gradient(noisy_gradient(1, me, t, 40));
          flat const before = mine.parameters();
          ending const e = ending_of([&] { (void)o.step(1e-2); });
          if (e.what == outcome::ok) continue;
          changed_by_failure += !same_bits(before, mine.parameters());
          CHECK(ending_of([&] { (void)o.step(1e-2); }).what == outcome::poisoned);
          if (e.what == outcome::aborted) throw aborted_error(e.text);
          throw std::runtime_error(e.text);
        }
      },
      milliseconds(20000));
  CHECK(endings[0].what == outcome::aborted);
  CHECK(endings[1].what == outcome::aborted);
  CHECK(endings[2].text == "this rank has had enough");
  CHECK(changed_by_failure == 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("a rank that stays away: the others throw when the time is up") {
  std::atomic<int> rest{2};
  auto const endings = on_ranks(
      3,
      [&](thread_transport link) {
        int const me = link.rank();
        buffers mine({40}, {}, start);
        auto o = make<zero_one>(mine, {}, std::move(link));
        (void)o.step(1e-2);
        if (me == 2) {
          while (rest > 0) std::this_thread::sleep_for(milliseconds(1));
          return;
        }
        flat const before = mine.parameters();
        ending const e = ending_of([&] { (void)o.step(1e-2); });
        CHECK(same_bits(before, mine.parameters()));
        --rest;
        if (e.what == outcome::timeout) throw timeout_error(e.text);
        if (e.what == outcome::aborted) throw aborted_error(e.text);
        throw std::runtime_error(e.text);
      },
      milliseconds(300));
  int timeouts = 0;
  for (std::size_t const i : std::initializer_list<std::size_t>{0, 1}) {
    timeouts += endings[i].what == outcome::timeout;
    CHECK((endings[i].what == outcome::timeout || endings[i].what == outcome::aborted));
  }
  CHECK(timeouts >= 1);
  CHECK(endings[2].what == outcome::ok);
}

TEST_CASE("a bad rate on one rank that gives up: the others are told") {
  auto const endings = on_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({40}, {}, start);
    auto o = make<zero_one>(mine, {}, std::move(link));
    (void)o.step(me == 1 ? nan : 1e-2);
  });
  CHECK(endings[0].what == outcome::aborted);
  CHECK(endings[1].what == outcome::argument);
}

}  // namespace
