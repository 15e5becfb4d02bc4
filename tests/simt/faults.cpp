// SPDX-License-Identifier: Apache-2.0
// Every CUDA call of a job made to fail once: an exception that names it, on every rank some exception, nothing
// leaked, parameters as they were. Only the shim can do that.
#include <map>

#include "device.hpp"
#include "zoadam/backend/cuda_graph.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Quantizer, class Space, class Allocator>
using over = optimizer<Quantizer, fixed_interval, frozen_variance_state<Space, cast_quantizer<bfloat16>>,
                       basic_cuda_backend<Allocator>, cuda_thread_transport>;
// Blocks that take more shared memory than a kernel has without asking.
using plain = over<sign_with_feedback<block<8192>>, displacement<>, plain_allocator>;
using pool_of_groups = over<sign_with_feedback<whole>, momentum_sum<>, pool_allocator>;

constexpr std::size_t n = 50;

/// One rank's tensors: one with a working copy, one that is nothing else. What it calls is the test's own.
struct device_tensors {
  std::optional<device_stream> stream;
  std::optional<device_array<float>> x, g;
  std::optional<device_array<std::uint16_t>> copy, alone;

  explicit device_tensors(int rank) {
    simt::uncounted const own;
    stream.emplace(), x.emplace(n), g.emplace(n), copy.emplace(n), alone.emplace(n);
    flat start(n);
    for (std::size_t k = 0; k < n; ++k) start[k] = 0.1f * noise(5, k);
    x->put(start.data(), *stream);
    g->put(noisy_gradient(3, rank, 1, n).data(), *stream);
    std::vector<std::uint16_t> half(n);
    for (std::size_t k = 0; k < n; ++k) half[k] = to_bfloat16(start[k]).bits;
    copy->put(half.data(), *stream);
    alone->put(half.data(), *stream);
  }
  device_tensors(device_tensors&&) = default;
  ~device_tensors() {
    simt::uncounted const own;
    x.reset(), g.reset(), copy.reset(), alone.reset(), stream.reset();
  }
  std::vector<tensor> tensors() const {
    auto const half = [](device_array<std::uint16_t> const& a) {
      return std::span<bfloat16>(reinterpret_cast<bfloat16*>(a.span().data()), a.size());
    };
    return {{"x", {}, x->span(), g->span(), 0, half(*copy)}, {"alone", {}, {}, g->span(), 0, half(*alone)}};
  }
  flat parameters() const {
    simt::uncounted const own;
    flat all = x->get(*stream);
    for (auto const* each : {&copy, &alone}) {
      for (std::uint16_t const bits : (*each)->get(*stream)) all.push_back(bits);
    }
    return all;
  }
};

/// What a rank saw: its first exception, and what broke a rule.
struct story {
  std::string error;
  outcome what = outcome::ok;
  std::string wrong;
};

template <class Optimizer>
void run_rank(cuda_thread_group& group, int rank, device_tensors& mine, story& seen) {
  // A call that throws leaves the parameters alone.
  auto const call = [&](auto const& f) {
    flat const before = mine.parameters();
    try {
      f();
    } catch (...) {
      if (!same_bits(before, mine.parameters())) seen.wrong += " parameters changed;";
      throw;
    }
  };
  std::optional<Optimizer> o;
  auto const job = [&] {
    auto link = group.rank(rank, *mine.stream);
    typename Optimizer::options_type options;
    options.sync.interval = 2;
    call(
        [&] { o.emplace(mine.tensors(), options, std::move(link), typename Optimizer::backend_type(*mine.stream)); });
    for (int step = 1; step <= 3; ++step) {  // an exchange that closes a window of two steps, and a local step
      std::optional<cuda_report<cuda_thread_watch>> report;
      call([&] { report.emplace(o->step(1e-2)); });
      if (step == 2) (void)report->get();
    }
    step_graphs graphs(*mine.stream);
    for (int step = 4; step <= 7; ++step) {  // an exchange, a local step recorded, an exchange, and one replayed
      std::optional<cuda_report<cuda_thread_watch>> report;
      call([&] { report.emplace(o->step(1e-2, 1, graphs)); });
    }
    std::optional<cuda_report<cuda_thread_watch>> report;
    call([&] { report.emplace(o->synchronize()); });
    (void)report->get();
    call([&] { o->rebase(); });
    // What a peer or an unread report still had to say.
    simt::uncounted const own;
    (void)o->step(1e-2).get();
    (void)o->synchronize().get();
  };
  ending const first = ending_of(job);
  seen.what = first.what, seen.error = first.text;
  if (first.what == outcome::ok || !o) return;
  // A report that could not be fetched, here or by a peer, is no failure of its step: the next call throws, and no
  // later one runs.
  for (int i = 0; i < 2; ++i) {
    ending const later = ending_of([&] { call([&] { (void)o->step(1e-2); }); });
    bool const told = later.what == outcome::poisoned || (i == 0 && later.what != outcome::ok);
    if (!told) seen.wrong += " a later call says: " + later.text + ";";
  }
}

template <class Optimizer>
std::vector<story> run(int ranks, std::string const& api, int nth_call) {
  std::vector<story> seen(nth(ranks));
  std::vector<device_tensors> tensors;
  for (int rank = 0; rank < ranks; ++rank) tensors.emplace_back(rank);
  if (!api.empty()) simt::fail_call(api, nth_call, cudaErrorECCUncorrectable);
  {
    cuda_thread_group group(ranks, std::chrono::seconds(20));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { run_rank<Optimizer>(group, rank, tensors[nth(rank)], seen[nth(rank)]); });
    }
    for (std::thread& t : threads) t.join();
  }
  return seen;
}

/// The CUDA call that an error's text names.
std::string call_in(std::string const& text) {
  if (text.rfind("zoadam: launch of ", 0) == 0) return "cudaLaunchKernel";
  std::size_t const first = text.find("cuda"), last = text.find_first_of("(:", first);
  return first == std::string::npos ? text : text.substr(first, last - first);
}

TEST_CASE_TEMPLATE("each CUDA call fails once", Optimizer, plain, pool_of_groups) {
  for (int const ranks : {1, 2}) {
    (void)simt::reset();
    for (story const& each : run<Optimizer>(ranks, "", 0)) CHECK_MESSAGE(each.what == outcome::ok, each.error);
    auto const calls = simt::calls_by_name();
    CHECK(calls.contains("cudaFuncSetAttribute") == std::is_same_v<Optimizer, plain>);
    CHECK(simt::default_stream_uses() == 0);
    int failures = 0;
    for (auto const& call : calls) {
      std::string const& api = call.first;
      bool const releases = api.find("Free") != std::string::npos || api.find("Destroy") != std::string::npos;
      for (int i = 1;; ++i) {
        simt::set_stream_order(i % 2 == 0 ? simt::stream_order::lazy : simt::stream_order::eager);
        std::vector<story> const seen = run<Optimizer>(ranks, api, i);
        bool const met = simt::pending_failures() == 0;
        std::vector<std::string> const left = simt::reset();
        if (!met) break;
        ++failures;
        INFO(api << " number " << i << " of " << ranks << " ranks");
        bool named = false;
        for (story const& each : seen) {
          INFO(each.error);
          CHECK_MESSAGE(each.wrong == "", each.wrong);
          CHECK((each.what != outcome::ok) == !releases);
          CHECK(each.what != outcome::timeout);
          CHECK(each.error.rfind(releases ? "" : "zoadam: ", 0) == 0);
          named = named || call_in(each.error) == api;
        }
        CHECK(named == !releases);
        // A release that fails has kept what it was given, and nothing else.
        std::string all;
        for (std::string const& each : left) all += each + "; ";
        CHECK_MESSAGE(left.size() == (releases ? 1 : 0), all);
      }
    }
    MESSAGE(ranks << " ranks: " << failures << " calls failed");
    CHECK(failures > 100);
  }
}

}  // namespace
