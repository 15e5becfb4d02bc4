// SPDX-License-Identifier: Apache-2.0
// What users may hand over by mistake, and ranks that disagree: exceptions that say what, and nothing leaked.
#include "device.hpp"
#include "zoadam/backend/cuda_graph.hpp"
#if defined(ZOADAM_SIMT)
#include <nccl.h>
#endif

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using device_optimizer = zero_one_adam<cuda_thread_transport, cuda_backend>;
using settings = device_optimizer::options_type;

constexpr std::size_t n = 300;

struct device_tensors {
  device_stream stream;
  device_array<float> x{n}, g{n};

  device_tensors() {
    flat start(n);
    for (std::size_t k = 0; k < n; ++k) start[k] = 0.1f * noise(5, k);
    x.put(start.data(), stream);
    gradient(0, 1);
  }
  void gradient(int rank, int step) const { g.put(noisy_gradient(3, rank, step, n).data(), stream); }
  flat parameters() const { return x.get(stream); }
  std::vector<tensor> list() const { return {{"weights", {}, x.span(), g.span(), 0}}; }
};

template <class T>
std::span<T> at(void* p) {
  return {static_cast<T*>(p), n};
}

/// How the construction on one rank ends.
ending construction(std::vector<tensor> list, cudaStream_t stream) {
  cuda_thread_group group(1);
  return ending_of([&] { device_optimizer(std::move(list), {}, group.rank(0, stream), cuda_backend(stream)); });
}

/// No leak and no violation since the last time; violations that say why may be.
void expect_nothing_left(std::string const& but = "") {
#if defined(ZOADAM_SIMT)
  for (std::string const& each : simt::reset()) {
    bool const expected = !but.empty() && each.find(but) != std::string::npos;
    CHECK_MESSAGE(expected, each);
  }
#else
  (void)but;
#endif
}

TEST_CASE("tensors that are not in the memory of the backend's device are refused by name") {
  expect_nothing_left();
  {
    device_tensors const mine;
    flat host(n);
    void *pinned = nullptr, *elsewhere = nullptr;
    ZOADAM_CUDA(cudaMallocHost(&pinned, n * 4));
    ZOADAM_CUDA(cudaSetDevice(1));
    ZOADAM_CUDA(cudaMalloc(&elsewhere, n * 4));
    ZOADAM_CUDA(cudaSetDevice(0));
    for (std::span<float> const wrong : {std::span<float>(host), at<float>(pinned), at<float>(elsewhere)}) {
      ending const x = construction({{"weights", {}, wrong, mine.g.span(), 0}}, mine.stream);
      CHECK(x.what == outcome::argument);
      CHECK(mentions(x, "tensors: 'weights': parameter is not in the memory of the backend's device"));
      ending const g = construction({{"weights", {}, mine.x.span(), wrong, 0}}, mine.stream);
      CHECK(g.what == outcome::argument);
      CHECK(mentions(g, "tensors: 'weights': gradient is not in the memory of the backend's device"));
      std::span<bfloat16> const copy(reinterpret_cast<bfloat16*>(wrong.data()), n);
      for (std::span<float> const x32 : {mine.x.span(), std::span<float>()}) {
        ending const w = construction({{"weights", {}, x32, mine.g.span(), 0, copy}}, mine.stream);
        CHECK(w.what == outcome::argument);
        CHECK(mentions(w, "tensors: 'weights': working is not in the memory of the backend's device"));
      }
    }
    // The second of two, a gradient of another type, and what has no elements.
    device_array<bfloat16> const half(n);
    CHECK(construction({{"a", {}, mine.x.span(), half.span(), 0}, {"b", {}, {host.data(), 0}, {}, 0}}, mine.stream)
              .what == outcome::ok);
    CHECK(mentions(construction({{"a", {}, mine.x.span(), {}, 0}, {"b", {}, host, {}, 0}}, mine.stream), "'b'"));
    ZOADAM_CUDA(cudaFreeHost(pinned));
    ZOADAM_CUDA(cudaFree(elsewhere));
  }
  expect_nothing_left();
}

TEST_CASE("misaligned and overlapping views are refused by name") {
  {
    device_tensors const mine;
    auto* const bytes = reinterpret_cast<std::byte*>(mine.x.span().data());
    std::span<float> const odd(reinterpret_cast<float*>(bytes + 2), n - 1);
    ending const x = construction({{"weights", {}, odd, {}, 0}}, mine.stream);
    CHECK(x.what == outcome::argument);
    CHECK(mentions(x, "tensors: 'weights': misaligned span"));
    auto const* const half = reinterpret_cast<bfloat16 const*>(bytes + 1);
    CHECK(mentions(construction({{"w", {}, mine.g.span(), std::span(half, n), 0}}, mine.stream), "misaligned span"));
    CHECK(mentions(
        construction({{"a", {}, mine.x.span(), {}, 0}, {"b", {}, mine.x.span().subspan(7), {}, 0}}, mine.stream),
        "the spans of 'b' and 'a' overlap"));
  }
  expect_nothing_left();
}

TEST_CASE("streams: the default one, one of another device, and two that differ") {
  {
    device_tensors const mine;
    device_stream const other;
    cuda_thread_group group(1);
    for (cudaStream_t const given : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
      CHECK(ending_of([&] { (void)cuda_backend(given); }).what == outcome::argument);
      CHECK(ending_of([&] { (void)group.rank(0, given); }).what == outcome::argument);
      CHECK(ending_of([&] { step_graphs const graphs(given); }).what == outcome::argument);
    }
    ending e = ending_of([&] { (void)cuda_backend(nullptr); });
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, "cuda_backend(stream): the default stream serializes"));
    e = ending_of([&] { (void)group.rank(0, nullptr); });
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, "cuda_thread_group::rank: stream: the default stream serializes"));
    e = ending_of([&] { device_optimizer(mine.list(), {}, group.rank(0, other), cuda_backend(mine.stream)); });
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, "optimizer(link): link: its stream is not the backend's"));
  }
  expect_nothing_left();
  {
    ZOADAM_CUDA(cudaSetDevice(1));
    device_stream const far;
    ZOADAM_CUDA(cudaSetDevice(0));
    cuda_thread_group group(1);
    ending e = ending_of([&] { (void)cuda_backend(far); });
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, "cuda_backend(stream): stream: it is not one of the current device"));
    e = ending_of([&] { (void)group.rank(0, far); });
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, "cuda_thread_group::rank: stream: it is not one of the current device"));
  }
  expect_nothing_left("the event is of another device than the stream");
}

TEST_CASE("a call with another device current is refused, and changes nothing") {
  {
    device_tensors const mine;
    cuda_thread_group group(1);
    device_optimizer o(mine.list(), {}, group.rank(0, mine.stream), cuda_backend(mine.stream));
    ZOADAM_CUDA(cudaSetDevice(1));
    flat const before = mine.parameters();
    for (ending const& e : {ending_of([&] { (void)o.step(1e-2); }), ending_of([&] { (void)o.synchronize(); }),
                            ending_of([&] { o.rebase(); }), ending_of([&] { o.reopen_variance(); })}) {
      CHECK(e.what == outcome::argument);
      CHECK(mentions(e, "the current device is not the backend's"));
    }
    CHECK(same_bits(mine.parameters(), before));
    ZOADAM_CUDA(cudaSetDevice(0));
    CHECK(o.step(1e-2).get().step == 1);
  }
  expect_nothing_left();
}

TEST_CASE("ranks of a group: out of range, taken, or fewer than its size") {
  {
    device_stream const stream;
    cuda_thread_group group(2, std::chrono::milliseconds(200));
    CHECK(ending_of([&] { (void)group.rank(2, stream); }).what == outcome::argument);
    CHECK(ending_of([&] { (void)group.rank(-1, stream); }).what == outcome::argument);
    auto const held = group.rank(0, stream);
    CHECK(mentions(ending_of([&] { (void)group.rank(0, stream); }), "rank 0 is taken"));
    CHECK(ending_of([] { (void)cuda_thread_group(0); }).what == outcome::argument);
    CHECK(ending_of([] { (void)cuda_thread_group(1, milliseconds(0)); }).what == outcome::argument);
    (void)cuda_thread_group(1, milliseconds::max());
  }
  {
    device_tensors const mine;
    cuda_thread_group group(3, milliseconds(200));  // its other ranks believe in another group
    ending const e =
        ending_of([&] { device_optimizer(mine.list(), {}, group.rank(1, mine.stream), cuda_backend(mine.stream)); });
    CHECK(e.what == outcome::timeout);
    CHECK(mentions(e, "a peer did not come"));
  }
  expect_nothing_left();
}

/// Calls f(rank, tensors, link) on each rank, a thread each.
template <class F>
std::vector<ending> on_devices(int ranks, F const& f) {
  std::vector<ending> endings(nth(ranks));
  cuda_thread_group group(ranks, std::chrono::seconds(20));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      endings[nth(rank)] = ending_of([&] {
        device_tensors const mine;
        f(rank, mine, group.rank(rank, mine.stream));
      });
    });
  }
  for (std::thread& t : threads) t.join();
  return endings;
}

#if defined(ZOADAM_SIMT)

TEST_CASE("too little device memory, at any place of the construction, is told on every rank") {
  for (int const ranks : {1, 2}) {
    std::size_t failures = 0;
    for (std::size_t spare = 0;; spare += failures < 6 ? 64 : 2500) {
      std::atomic<int> ready{0};
      auto const endings = on_devices(ranks, [&](int, device_tensors const& mine, cuda_thread_transport link) {
        ++ready;
        while (ready < ranks) std::this_thread::yield();
        simt::set_device_memory(nth(ranks) * 2 * (n + 1) * 4 + spare);
        device_optimizer o(mine.list(), {}, std::move(link), cuda_backend(mine.stream));
      });
      expect_nothing_left();
      if (endings[0].what == outcome::ok && endings.back().what == outcome::ok) break;
      ++failures;
      bool named = false;
      for (ending const& e : endings) {
        CHECK(e.what != outcome::ok);
        CHECK(e.what != outcome::timeout);
        INFO(e.text);
        CHECK(e.text.rfind("zoadam: ", 0) == 0);
        named = named || (mentions(e, "cudaMalloc") && mentions(e, "cudaErrorMemoryAllocation"));
      }
      CHECK(named);
    }
    CHECK(failures >= 8);
  }
}

TEST_CASE("freed memory that NCCL is given is found, at the call or when the operation runs") {
  expect_nothing_left();
  for (bool const later : {false, true}) {
    CAPTURE(later);
    for (int const which : {0, 1}) {
      CAPTURE(which);
      ncclComm_t comm = nullptr;
      CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
      std::atomic<bool> open{false};
      {
        device_stream const stream, other;
        void* buffer[2];
        for (void*& each : buffer) ZOADAM_CUDA(cudaMallocAsync(&each, 64, other));
        other.wait();
        auto const gather = [&] { return ncclAllGather(buffer[0], buffer[1], 64, ncclInt8, comm, stream); };
        auto const wait = [](void* p) {
          while (!*static_cast<std::atomic<bool>*>(p)) std::this_thread::yield();
        };
        if (later) {  // the operation is in the stream; nothing orders the free of another stream behind it
          ZOADAM_CUDA(cudaLaunchHostFunc(stream, wait, &open));
          CHECK(gather() == ncclSuccess);
        }
        ZOADAM_CUDA(cudaFreeAsync(buffer[which], other));
        other.wait();
        if (!later) CHECK(gather() == ncclInvalidArgument);
        open = true;
        stream.wait();
        ZOADAM_CUDA(cudaFreeAsync(buffer[1 - which], stream));
        stream.wait();
      }
      CHECK(ncclCommDestroy(comm) == ncclSuccess);
      std::vector<std::string> const found = simt::reset();
      REQUIRE(found.size() == 1);
      CHECK(found[0].find(later ? "was freed before the operation ran" : "was freed") != std::string::npos);
      CHECK(found[0].rfind("ncclAllGather: ", 0) == 0);
    }
  }
  // A free in the operation's own stream comes after it.
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  {
    device_stream const stream;
    void* buffer = nullptr;
    ZOADAM_CUDA(cudaMallocAsync(&buffer, 64, stream));
    CHECK(ncclAllGather(buffer, buffer, 64, ncclInt8, comm, stream) == ncclSuccess);
    ZOADAM_CUDA(cudaFreeAsync(buffer, stream));
    stream.wait();
  }
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  expect_nothing_left();
}

#endif

// ------------------------------------------------------------------------------------------ ranks that disagree

void expect_mismatch(ending const& e) {
  INFO(e.text);
  CHECK(e.what == outcome::mismatch);
}

/// Every call that changes something, as long as the device knows.
void expect_refusal(device_optimizer& o) {
  for (int round = 0; round < 2; ++round) {
    expect_mismatch(ending_of([&] { (void)o.step(1e-2); }));
    expect_mismatch(ending_of([&] { (void)o.synchronize(); }));
    expect_mismatch(ending_of([&] { o.rebase(); }));
    expect_mismatch(ending_of([&] { o.reopen_variance(); }));
  }
}

TEST_CASE("another learning rate on one rank, found on the device: every rank throws, now and later") {
  for (int const ranks : {2, 3}) {
    for (int odd = 0; odd < ranks; ++odd) {
      for (ending const &e : on_devices(ranks, [&](int rank, device_tensors const&mine, cuda_thread_transport link) {
             device_optimizer o(mine.list(), {}, std::move(link), cuda_backend(mine.stream));
             for (int step = 1; step <= 3; ++step) {
               mine.gradient(rank, step);
               (void)o.step(1e-2).get();
             }
             flat const before = mine.parameters();
             mine.gradient(rank, 4);
             auto const report = o.step(rank == odd ? 2e-2 : 1e-2);
             expect_mismatch(ending_of([&] { (void)report.get(); }));
             CHECK(report.ready());
             CHECK(same_bits(mine.parameters(), before));
             expect_refusal(o);
             expect_mismatch(ending_of([&] { (void)report.get(); }));
             CHECK(same_bits(mine.parameters(), before));
           })) {
        CHECK_MESSAGE(e.what == outcome::ok, e.text);
      }
      expect_nothing_left();
    }
  }
}

TEST_CASE("the same where nobody asks for a report: the calls themselves say it, and none waits for the device") {
  for (int const odd : {0, 1}) {
    for (ending const &e : on_devices(2, [&](int rank, device_tensors const&mine, cuda_thread_transport link) {
           device_optimizer o(mine.list(), {}, std::move(link), cuda_backend(mine.stream));
           (void)o.step(1e-2).get();
           flat const before = mine.parameters();
           int calls = 0;
           ending e;
           while (e.what == outcome::ok && ++calls < 1000) {
             e = ending_of([&] { (void)o.step(rank == odd ? 2e-2 : 1e-2); });
           }
           expect_mismatch(e);
           expect_refusal(o);
           CHECK(same_bits(mine.parameters(), before));
         })) {
      CHECK_MESSAGE(e.what == outcome::ok, e.text);
    }
    expect_nothing_left();
  }
}

TEST_CASE("other numbers of steps before an exchange, found on the device") {
  for (int const odd : {0, 1, 2}) {
    for (ending const &e : on_devices(3, [&](int rank, device_tensors const&mine, cuda_thread_transport link) {
           settings s;
           s.sync.period = 1;
           s.state.variance_schedule.stop = 1;
           device_optimizer o(mine.list(), s, std::move(link), cuda_backend(mine.stream));
           (void)o.step(1e-2).get();
           for (int local = 0; local < (rank == odd ? 2 : 1); ++local) (void)o.step(1e-2).get();
           REQUIRE(!o.will_exchange());
           flat const before = mine.parameters();
           auto const report = o.synchronize();
           expect_mismatch(ending_of([&] { (void)report.get(); }));
           CHECK(same_bits(mine.parameters(), before));
           expect_refusal(o);
         })) {
      CHECK_MESSAGE(e.what == outcome::ok, e.text);
    }
    expect_nothing_left();
  }
}

TEST_CASE("an exchange on one rank only: sizes of other collectives, or a timeout") {
  // Rank 0 exchanges its variance while rank 1 has none due.
  for (ending const &e : on_devices(2, [&](int rank, device_tensors const&mine, cuda_thread_transport link) {
         settings s;
         s.state.variance_schedule.stop = 1;
         device_optimizer o(mine.list(), s, std::move(link), cuda_backend(mine.stream));
         (void)o.step(1e-2).get();
         flat const before = mine.parameters();
         if (rank == 0) o.reopen_variance();
         expect_mismatch(ending_of([&] { (void)o.step(1e-2).get(); }));
         CHECK(same_bits(mine.parameters(), before));
       })) {
    CHECK_MESSAGE(e.what == outcome::ok, e.text);
  }
  expect_nothing_left();
}

}  // namespace
