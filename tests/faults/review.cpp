// SPDX-License-Identifier: Apache-2.0
// Faults at the edges: numbers beyond float32, objects that were moved from, the caller's floating-point mode.
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <limits>

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using zero_one_each_step = zero_one_adam<single_transport, cpu_backend, every_step>;

template <class Optimizer>
typename Optimizer::options_type settings() {
  typename Optimizer::options_type o;
  if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 2;
  return o;
}

/// Every value that the optimizer keeps, the parameters included.
template <class Optimizer>
flat everything(Optimizer const& o, buffers const& mine) {
  flat all = mine.parameters();
  detail::for_each_tag(typename Optimizer::fields::tags{}, [&](auto tag) {
    for (float const x : o.values(tag)) all.push_back(x);
  });
  return all;
}

buffers small_model() {
  buffers mine({40, 24}, {0, 1}, [](std::size_t k) { return 0.1f * noise(5, k); });
  mine.set_gradient(noisy_gradient(1, 0, 1, 64));
  return mine;
}

TEST_CASE_TEMPLATE("learning rates that float32 takes for 0 or infinite are refused, and nothing has changed",
                   Optimizer, zero_one_each_step, zero_one_adam<>, zero_one_adam_paper<>, onebit_adam<>, adam<>,
                   local_adam<>) {
  buffers mine = small_model();
  auto o = settings<Optimizer>();
  o.groups = {{0.01, 1}, {0, 0x1p-10}};
  Optimizer opt(mine.tensors(), o, single_transport{});
  (void)opt.step(1e-3);
  flat const before = everything(opt, mine);
  // 2^-120: the first group could take it.
  for (double const lr : {1e-300, 1e-50, 1e-46, 0x1p-120, 0x1p70, 1e39, 1e300}) {
    CAPTURE(lr);
    CHECK(ending_of([&] { (void)opt.step(lr); }).what == outcome::argument);
    CHECK(same_bits(everything(opt, mine), before));
  }
  for (double const lr : {0x1p-116, 0.0, 1e-3, 1e-3}) (void)opt.step(lr);
  (void)opt.synchronize();
  CHECK(opt.steps() == 5);
  CHECK(all_finite(everything(opt, mine)));
  CHECK(!same_bits(everything(opt, mine), before));
}

TEST_CASE_TEMPLATE("a grad_scale that takes gradients beyond 2^56 makes them bad and leaves no trace", Optimizer,
                   zero_one_each_step, zero_one_adam<>, zero_one_adam_paper<>, onebit_adam<>, adam<>, local_adam<>) {
  buffers mine = small_model();
  mine.gradient[0][3] = 0;
  Optimizer opt(
      mine.tensors(),
      [] {
        auto o = settings<Optimizer>();
        o.groups = {{0.01, 1}, {0, 1}};
        return o;
      }(),
      single_transport{});
  for (int t = 1; t <= 8; ++t) {
    bool const huge = t == 3 || t == 6;
    CHECK(opt.step(1e-3, huge ? 1e38 : 1).skipped_here == huge);
    CHECK(all_finite(everything(opt, mine)));
  }
}

TEST_CASE("options beyond float32 are refused") {
  using options_type = zero_one_adam<>::options_type;
  buffers mine = small_model();
  auto const refused = [&](auto set) {
    options_type o;
    o.groups = {{}, {}};
    set(o);
    return ending_of([&] { zero_one_adam<>(mine.tensors(), o, single_transport{}); }).what == outcome::argument;
  };
  CHECK_FALSE(refused([](options_type&) {}));
  CHECK_FALSE(refused([](options_type& o) { o.limit = static_cast<double>(std::numeric_limits<float>::max()); }));
  CHECK(refused([](options_type& o) { o.epsilon = 1e39; }));
  CHECK(refused([](options_type& o) { o.weight_decay = 1e39; }));
  CHECK(refused([](options_type& o) { o.limit = 1e39; }));
  CHECK(refused([](options_type& o) { o.groups[1].weight_decay = 1e39; }));
  CHECK(refused([](options_type& o) { o.limit = 1e-60; }));       // 0 in float32: nothing would ever move
  CHECK(refused([](options_type& o) { o.weight_decay = 0.1; }));  // not used with groups
}

TEST_CASE("a limit without an error to keep what it cuts is refused, and not the default") {
  using plain = optimizer<identity_quantizer, local_steps, frozen_variance_state<>, cpu_backend, single_transport>;
  buffers mine = small_model();
  auto settings = plain::options_type{};
  settings.groups = {{}, {}};
  CHECK(settings.limit == 0);
  CHECK(ending_of([&] { plain(mine.tensors(), settings, single_transport{}); }).what != outcome::argument);
  settings.limit = 1;
  CHECK(ending_of([&] { plain(mine.tensors(), settings, single_transport{}); }).what == outcome::argument);
}

TEST_CASE("a transport that was moved from is refused") {
  buffers mine({10}, {}, [](std::size_t) { return 1.0f; });
  single_transport alone;
  [[maybe_unused]] single_transport const elsewhere = std::move(alone);
  auto const e = ending_of([&] { adam<>(mine.tensors(), {}, std::move(alone)); });
  CHECK(e.what == outcome::argument);
  CHECK(mentions(e, "moved from"));

  thread_group group(2);
  thread_transport link = group.rank(0);
  [[maybe_unused]] thread_transport const taken = std::move(link);
  CHECK(ending_of([&] { adam<thread_transport>(mine.tensors(), {}, std::move(link)); }).what == outcome::argument);
}

TEST_CASE_TEMPLATE("an optimizer that was moved from refuses every call and leaves the new one alone", Optimizer,
                   zero_one_adam<>, adam<>) {
  buffers mine({100}, {}, [](std::size_t k) { return 0.1f * noise(5, k); });
  mine.set_gradient(noisy_gradient(1, 0, 1, 100));
  Optimizer first(mine.tensors(), {}, single_transport{});
  (void)first.step(1e-3);
  Optimizer second = std::move(first);
  flat const before = everything(second, mine);
  CHECK(ending_of([&] { (void)first.step(1e-3); }).what == outcome::poisoned);
  CHECK(ending_of([&] { (void)first.synchronize(); }).what == outcome::poisoned);
  CHECK(ending_of([&] { first.rebase(); }).what == outcome::poisoned);
  CHECK(same_bits(everything(second, mine), before));
  CHECK(ending_of([&] { (void)second.step(1e-3); }).what == outcome::ok);
  CHECK(!same_bits(everything(second, mine), before));
}

/// One bit for +-1, without a scale.
template <class Groups>
struct unit_sign {
  using groups = Groups;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  static constexpr index payload_bytes(index n) noexcept { return sign_quantizer<>::payload_bytes(n); }
  template <class Lane>
  static void encode(float const* c, index n, float, std::byte* payload) noexcept {
    sign_quantizer<>::encode<Lane>(c, n, 1.0f, payload);
  }
  template <class Lane>
  static void decode(std::byte const* payload, index skip, index n, float, float* out) noexcept {
    sign_quantizer<>::decode<Lane>(payload, skip, n, 1.0f, out);
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("unit_sign");
  }
};
static_assert(quantizer<unit_sign<block<>>>);
static_assert(!quantizer<unit_sign<whole>>,
              "its words would hold elements of two tensors, written one after the other");
static_assert(!quantizer<unit_sign<per_tensor>>, "its words would hold elements of two threads");

TEST_CASE("bits without a scale, in blocks: no tensor writes into the words of another") {
  using mean = optimizer<unit_sign<block<64>>, every_step, mean_state, cpu_backend, single_transport>;
  buffers mine({7, 100, 0, 65}, {}, [](std::size_t) { return 0.0f; });
  flat const g = noisy_gradient(1, 0, 1, mine.elements());
  mine.set_gradient(g);
  mean o = make<mean>(mine, {}, single_transport{}, 3);
  (void)o.step(1);
  flat const x = mine.parameters();
  int wrong = 0;
  for (std::size_t k = 0; k < g.size(); ++k) wrong += x[k] != (g[k] < 0 ? -1.0f : 1.0f);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("a grad_scale that float32 takes for 0 or infinite is refused, and nothing has changed", Optimizer,
                   zero_one_each_step, zero_one_adam<>, zero_one_adam_paper<>, onebit_adam<>, adam<>, local_adam<>) {
  for (bool const trusted : {false, true}) {
    buffers mine = small_model();
    auto o = settings<Optimizer>();
    o.groups = {{0.01, 1}, {0, 1}};
    o.trusted_gradients = trusted;
    Optimizer opt(mine.tensors(), o, single_transport{});
    (void)opt.step(1e-3);
    flat const before = everything(opt, mine);
    for (double const scale : {1e39, 1e-50, 0x1p-127, 0.0, -1.0}) {
      CHECK(ending_of([&] { (void)opt.step(1e-3, scale); }).what == outcome::argument);
      CHECK(same_bits(everything(opt, mine), before));
    }
    (void)opt.step(1e-3, 0x1p-126);
    CHECK(all_finite(everything(opt, mine)));
  }
}

TEST_CASE("learning rate and weight decay that are each in range may not overflow together") {
  buffers mine = small_model();
  zero_one_adam<>::options_type o;
  o.groups = {{1e38, 1}, {0, 1}};
  zero_one_adam<> opt(mine.tensors(), o, single_transport{});
  flat const before = everything(opt, mine);
  CHECK(ending_of([&] { (void)opt.step(10); }).what == outcome::argument);
  CHECK(same_bits(everything(opt, mine), before));
}

TEST_CASE_TEMPLATE("learning rate 0 moves no parameter, not even a negative zero, and replicas stay equal", Optimizer,
                   zero_one_adam<thread_transport>, zero_one_adam_paper<thread_transport>,
                   onebit_adam<thread_transport>, adam<thread_transport>, local_adam<thread_transport>) {
  on_all_ranks(3, [](thread_transport link) {
    int const me = link.rank();
    int wrong = 0;
    buffers mine({40, 24}, {0, 0}, [](std::size_t k) { return k % 3 == 0 ? -0.0f : k % 3 == 1 ? 0.0f : 0.25f; });
    Optimizer o(mine.tensors(), settings<Optimizer>(), std::move(link));
    flat const before = mine.parameters();
    for (int t = 1; t <= 5; ++t) {
      flat g(64);
      for (std::size_t k = 0; k < g.size(); ++k) g[k] = (static_cast<int>(k) % 3 == me) ? 1.0f : -0.5f;
      mine.set_gradient(g);
      (void)o.step(0);
      wrong += !same_bits(mine.parameters(), before);
      if (t % 2 == 0) (void)o.synchronize();
    }
    (void)o.synchronize();
    o.rebase();  // compares parameters between ranks
    (void)o.step(0.1);
    (void)o.synchronize();
    o.rebase();
    if (wrong != 0) throw std::runtime_error("a parameter moved");
  });
}

TEST_CASE_TEMPLATE("will_exchange() without a rate answers for a step that moves: first, and after rates of 0",
                   Optimizer, zero_one_each_step, zero_one_adam<>, zero_one_adam_paper<>, onebit_adam<>, adam<>,
                   local_adam<>) {
  buffers mine = small_model();
  auto o = settings<Optimizer>();
  o.groups = {{0.01, 1}, {0, 1}};
  Optimizer opt(mine.tensors(), o, single_transport{});
  for (int t = 1; t <= 12; ++t) {
    bool const predicted = opt.will_exchange();
    CHECK(opt.step(0.1).exchanged == predicted);
    if (t % 4 == 0) (void)opt.step(0);
  }
}

TEST_CASE("an empty gradient is no gradient, wherever its pointer points") {
  flat memory(64, 1);
  std::span<float> const x(memory.data() + 8, 8);
  for (std::ptrdiff_t const at : {0, 8, 12, 15, 16}) {
    std::span<float const> const none(memory.data() + at, std::size_t{0});
    auto const* odd = reinterpret_cast<bfloat16 const*>(reinterpret_cast<std::byte const*>(memory.data()) + 1);
    CHECK(ending_of([&] { zero_one_adam<>({{"x", {}, x, none}}, {}, single_transport{}); }).what == outcome::ok);
    CHECK(ending_of([&] {
            zero_one_adam<>({{"x", {}, x, std::span<bfloat16 const>(odd, std::size_t{0})}}, {}, single_transport{});
          }).what == outcome::ok);
  }
}

TEST_CASE("a shape with an extent of 0 has no elements, wherever the 0 stands") {
  flat x(8, 1), none;
  index const large = index{1} << 40;
  for (std::vector<index> const& shape :
       {std::vector<index>{0, large, large}, {large, 0, large}, {large, large, 0}, {0}, {3, 0}}) {
    CHECK(ending_of([&] {
            zero_one_adam<>({{"x", {}, x, {}}, {"e", shape, none, {}}}, {}, single_transport{});
          }).what == outcome::ok);
  }
  CHECK(ending_of([&] {
          zero_one_adam<>({{"e", {large, large, large}, x, {}}}, {}, single_transport{});
        }).what == outcome::argument);
}

TEST_CASE("what was moved from throws; so does what has failed, before it looks at arguments") {
  buffers mine({40}, {0}, [](std::size_t) { return 1.0f; });
  zero_one_adam<> from(mine.tensors(), {}, single_transport{});
  zero_one_adam<> const to = std::move(from);
  CHECK(to.elements() == 40);
  auto const poisoned = [&](auto call) { return ending_of([&] { call(from); }).what == outcome::poisoned; };
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(poisoned([&](auto& o) { (void)o.step(nan); }));
  CHECK(poisoned([](auto& o) { (void)o.synchronize(); }));
  CHECK(poisoned([](auto& o) { o.rebase(); }));
  CHECK(poisoned([](auto& o) { o.reopen_variance(); }));
  CHECK(poisoned([](auto& o) { (void)o.elements(); }));
  CHECK(poisoned([](auto& o) { (void)o.agreed(0); }));
  CHECK(poisoned([](auto& o) { (void)o.values(at::momentum); }));
  CHECK(poisoned([](auto& o) { (void)o.replica_hash(); }));
  CHECK(poisoned([](auto& o) { (void)o.variance_updates(); }));
  (void)from.will_exchange(0.1);
  (void)from.will_exchange();
  CHECK(ending_of([&] { (void)to.agreed(1); }).what == outcome::argument);
  CHECK(ending_of([&] { (void)to.agreed(-1); }).what == outcome::argument);
}

TEST_CASE("a backend that was moved from has one thread, and none has fewer") {
  buffers mine({80000}, {0}, [](std::size_t) { return 1.0f; });
  mine.set_gradient(noisy_gradient(1, 0, 1, 80000));
  cpu_backend from(2);
  cpu_backend const to(std::move(from));
  zero_one_adam<> o(mine.tensors(), {}, single_transport{}, std::move(from));
  CHECK(o.step(0.1).exchanged);
  for (int const threads : {0, -1, -3}) {
    CHECK(ending_of([&] { cpu_backend{threads}; }).what == outcome::argument);
  }
}

TEST_CASE("what is wrong with a policy is said by its name") {
  buffers mine({40}, {0}, [](std::size_t) { return 1.0f; });
  auto const text = [&](auto options) {
    using options_type = decltype(options);
    if constexpr (std::is_same_v<options_type, onebit_adam<>::options_type>) {
      return ending_of([&] { onebit_adam<>(mine.tensors(), options, single_transport{}); });
    } else {
      return ending_of([&] { zero_one_adam<>(mine.tensors(), options, single_transport{}); });
    }
  };
  CHECK(mentions(text(onebit_adam<>::options_type{}), "options.state.freeze.step must be set"));
  zero_one_adam<>::options_type o;
  o.sync.period = 0;
  CHECK(mentions(text(o), "options.sync.period must be >= 1"));
  o = {};
  o.state.variance_schedule.kappa = 0;
  CHECK(mentions(text(o), "options.state.variance_schedule.kappa must be >= 1"));
  CHECK(zero_one_adam<>(mine.tensors(), {}, single_transport{}).name().find("never") != std::string::npos);
}

#if defined(__SSE2__)
TEST_CASE_TEMPLATE("the caller's rounding, FTZ and DAZ change no bit, and are given back", Optimizer, zero_one_adam<>,
                   zero_one_adam_paper<>, onebit_adam<>, adam<>, local_adam<>) {
  auto const run = [](unsigned mode, int threads) {
    job<Optimizer> one;
    one.sizes = {700, 2100};
    one.groups = {0, 1};
    one.threads = threads;
    one.settings = settings<Optimizer>();
    one.settings.groups = {{0.01, 1}, {0, 0.7}};
    one.settings.max_norm = 1;
    one.gradient = [](int rank, int step, std::size_t n) {
      flat g = noisy_gradient(3, rank, step, n);
      for (std::size_t k = 0; k < n; k += 3) g[k] *= 0x1p-60f;  // squares are denormal
      return g;
    };
    buffers mine(one.sizes, one.groups, one.start);
    Optimizer o = make<Optimizer>(mine, one.settings, typename Optimizer::transport_type{}, threads);
    for (int t = 1; t <= 30; ++t) {
      mine.set_gradient(one.gradient_at(0, t, mine.elements()));
      unsigned const own = _mm_getcsr();
      _mm_setcsr(own | mode);
      (void)o.step(0.3 / (t + 2), 1.0 / 3);
      bool const given_back = (_mm_getcsr() & mode) == mode;
      _mm_setcsr(own);
      CHECK(given_back);
    }
    return everything(o, mine);
  };
  flat const expected = run(0, 1);
  CHECK(all_finite(expected));
  for (unsigned const rounding : {0x2000u, 0x4000u, 0x6000u}) {
    CHECK(same_bits(run(rounding | 0x8040u, 1), expected));
  }
  CHECK(same_bits(run(0x6000u | 0x8040u, 3), expected));
}
#endif

}  // namespace
