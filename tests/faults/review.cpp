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

TEST_CASE_TEMPLATE("a grad_scale beyond float32 makes the gradient bad and leaves no trace", Optimizer,
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
    CHECK(opt.step(1e-3, huge ? 1e39 : 1).skipped_here == huge);
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
