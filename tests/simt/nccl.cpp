// SPDX-License-Identifier: Apache-2.0
// The fake NCCL: messages between ranks on threads, and what it says to those who use it wrongly.
#include <nccl.h>

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

using strings = std::vector<std::string>;
using std::size_t;

bool has(strings const& all, char const* part) {
  for (std::string const& each : all)
    if (each.find(part) != std::string::npos) return true;
  return false;
}

/// One rank: a device, a stream and two buffers of `capacity` integers.
struct rank {
  static constexpr size_t capacity = 256;
  rank(int number, int ranks) : self(number), size(ranks) {
    CHECK(cudaSetDevice(self) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc(&in, capacity * sizeof(int)) == cudaSuccess);
    CHECK(cudaMalloc(&out, capacity * sizeof(int)) == cudaSuccess);
    std::vector<int> mine(capacity);
    for (size_t i = 0; i < capacity; ++i) mine[i] = 1000 * self + static_cast<int>(i);
    CHECK(cudaMemcpyAsync(in, mine.data(), capacity * sizeof(int), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  ~rank() {
    if (comm != nullptr) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    cudaFree(in);
    cudaFree(out);
    cudaStreamDestroy(stream);
  }
  std::vector<int> received(size_t n) {
    std::vector<int> host(n);
    CHECK(cudaMemcpyAsync(host.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return host;
  }
  ncclResult_t send(size_t n, int peer, size_t from = 0) {
    return ncclSend(in + from, n, ncclInt32, peer, comm, stream);
  }
  ncclResult_t receive(size_t n, int peer, size_t to = 0) {
    return ncclRecv(out + to, n, ncclInt32, peer, comm, stream);
  }
  /// Gives up what was started.
  void abort() {
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    comm = nullptr;
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  bool pending() { return cudaStreamQuery(stream) == cudaErrorNotReady; }
  int self, size;
  cudaStream_t stream{};
  int* in = nullptr;
  int* out = nullptr;
  ncclComm_t comm{};
};

/// Runs a function on one thread per rank, each with its communicator; what the world complains of at the end.
strings on_ranks(int ranks, std::function<void(rank&)> const& function, bool lazy = false) {
  simt::reset();
  simt::set_device_count(ranks);
  if (lazy) simt::set_stream_order(simt::stream_order::lazy);
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i)
    threads.emplace_back([&, i] {
      rank r(i, ranks);
      CHECK(ncclCommInitRank(&r.comm, ranks, id, i) == ncclSuccess);
      function(r);
    });
  for (std::thread& each : threads) each.join();
  return simt::reset();
}

TEST_CASE("all to all, gather and broadcast between three ranks") {
  for (bool lazy : {false, true}) {
    strings const found = on_ranks(
        3,
        [](rank& r) {
          int value = 0;
          CHECK(ncclCommCount(r.comm, &value) == ncclSuccess);
          CHECK(value == 3);
          CHECK(ncclCommUserRank(r.comm, &value) == ncclSuccess);
          CHECK(value == r.self);
          CHECK(ncclCommCuDevice(r.comm, &value) == ncclSuccess);
          CHECK(value == r.self);
          for (int round = 0; round < 5; ++round) {
            CHECK(ncclGroupStart() == ncclSuccess);
            for (int peer = 0; peer < r.size; ++peer) {
              CHECK(r.send(10, peer, static_cast<size_t>(10 * peer)) == ncclSuccess);
              CHECK(r.receive(10, peer, static_cast<size_t>(10 * peer)) == ncclSuccess);
            }
            CHECK(ncclGroupEnd() == ncclSuccess);
          }
          std::vector<int> got = r.received(30);
          for (int i = 0; i < 30; ++i) CHECK(got[static_cast<size_t>(i)] == 1000 * (i / 10) + 10 * r.self + i % 10);
          CHECK(ncclAllGather(r.in, r.out, 20, ncclInt32, r.comm, r.stream) == ncclSuccess);
          got = r.received(60);
          for (int i = 0; i < 60; ++i) CHECK(got[static_cast<size_t>(i)] == 1000 * (i / 20) + i % 20);
          CHECK(ncclBroadcast(r.in, r.out, 5, ncclInt32, 1, r.comm, r.stream) == ncclSuccess);
          CHECK(r.received(5) == std::vector<int>{1000, 1001, 1002, 1003, 1004});
          if (r.self == 0) CHECK(r.send(3, 1) == ncclSuccess);
          if (r.self == 1) CHECK(r.receive(3, 0) == ncclSuccess);
          ncclResult_t error = ncclInternalError;
          CHECK(ncclCommGetAsyncError(r.comm, &error) == ncclSuccess);
          CHECK(error == ncclSuccess);
          CHECK(ncclCommFinalize(r.comm) == ncclSuccess);
        },
        lazy);
    CHECK(found == strings{});
  }
}

TEST_CASE("one thread drives all ranks") {
  simt::reset();
  {
    rank a(0, 2), b(1, 2);
    ncclComm_t comms[2];
    CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
    a.comm = comms[0], b.comm = comms[1];
    simt::set_stream_order(simt::stream_order::lazy);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (rank* r : {&a, &b}) CHECK(ncclAllGather(r->in, r->out, 1, ncclInt32, r->comm, r->stream) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(a.received(2) == std::vector<int>{0, 1000});
    CHECK(b.received(2) == std::vector<int>{0, 1000});
  }
  int const twice[] = {0, 0};
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, twice) == ncclInvalidUsage);
  CHECK(simt::reset() == strings{});
}

TEST_CASE("a captured exchange runs at every launch") {
  CHECK(on_ranks(2, [](rank& r) {
          cudaGraph_t graph{};
          cudaGraphExec_t exec{};
          CHECK(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
          CHECK(ncclGroupStart() == ncclSuccess);
          CHECK(r.send(4, 1 - r.self) == ncclSuccess);
          CHECK(r.receive(4, 1 - r.self) == ncclSuccess);
          CHECK(ncclGroupEnd() == ncclSuccess);
          CHECK(cudaStreamEndCapture(r.stream, &graph) == cudaSuccess);
          CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
          for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, r.stream) == cudaSuccess);
          CHECK(r.received(1)[0] == 1000 * (1 - r.self));
          CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
          CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        }) == strings{});
}

TEST_CASE("two ranks on one device are refused, and so are ranks that do not come") {
  simt::reset();
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&id, i] {
      ncclComm_t comm{};
      CHECK(ncclCommInitRank(&comm, 2, id, i) == ncclInvalidUsage);
      CHECK(comm == nullptr);
    });
  for (std::thread& each : threads) each.join();
  CHECK(simt::reset() == strings{});
  simt::set_nccl_patience(std::chrono::milliseconds(20));
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm{};
  CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclSystemError);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  ncclResult_t error = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comm, &error) == ncclSuccess);
  CHECK(error == ncclInProgress);
  CHECK(ncclSend(nullptr, 0, ncclInt8, 1, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(simt::reset().size() == 1);
}

TEST_CASE("a peer that never comes: pending until the abort") {
  CHECK(on_ranks(3, [](rank& r) {
          if (r.self == 0) return;
          CHECK(ncclGroupStart() == ncclSuccess);
          for (int peer = 0; peer < 3; ++peer) {
            CHECK(r.send(8, peer) == ncclSuccess);
            CHECK(r.receive(8, peer, static_cast<size_t>(8 * peer)) == ncclSuccess);
          }
          CHECK(ncclGroupEnd() == ncclSuccess);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          CHECK(r.pending());
          ncclResult_t error = ncclInternalError;
          CHECK(ncclCommGetAsyncError(r.comm, &error) == ncclSuccess);
          CHECK(error == ncclSuccess);
          simt::nccl_async_error(r.self, ncclRemoteError);
          CHECK(ncclCommGetAsyncError(r.comm, &error) == ncclSuccess);
          CHECK(error == ncclRemoteError);
          r.abort();
        }) == strings{});
}

TEST_CASE("ranks that contradict each other are found") {
  auto const found = [](std::function<ncclResult_t(rank&)> const& sends,
                        std::function<ncclResult_t(rank&)> const& receives) {
    return on_ranks(2, [&](rank& r) {
      CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
      CHECK((r.self == 0 ? sends(r) : receives(r)) == ncclSuccess);
      CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
    });
  };
  CHECK(found([](rank& r) { return r.send(4, 1); }, [](rank& r) { return r.receive(4, 0); }) == strings{});
  CHECK(has(found([](rank& r) { return r.send(4, 1); }, [](rank& r) { return r.receive(3, 0); }), "expects 3"));
  CHECK(has(found([](rank& r) { return ncclSend(r.in, 4, ncclFloat, 1, r.comm, r.stream); },
                  [](rank& r) { return r.receive(4, 0); }),
            "of type 7"));
  CHECK(has(found([](rank& r) { return ncclBroadcast(r.in, r.out, 4, ncclInt32, 0, r.comm, r.stream); },
                  [](rank& r) { return r.receive(4, 0); }),
            "ncclBroadcast"));
}

TEST_CASE("sends outside of a group that wait for each other are found") {
  CHECK(has(on_ranks(2,
                     [](rank& r) {
                       CHECK(r.send(4, 1 - r.self) == ncclSuccess);
                       while (simt::violations().empty()) std::this_thread::yield();
                       CHECK(r.pending());
                       r.abort();
                     }),
            "wait for each other"));
}

TEST_CASE("calls that are wrong by themselves are refused") {
  strings const found = on_ranks(2, [](rank& r) {
    CHECK(ncclSend(r.in, 1, ncclInt32, 0, nullptr, r.stream) == ncclInvalidArgument);
    CHECK(r.send(1, 2) == ncclInvalidArgument);
    CHECK(r.send(1, -1) == ncclInvalidArgument);
    CHECK(ncclBroadcast(r.in, r.out, 1, ncclNumTypes, 0, r.comm, r.stream) == ncclInvalidArgument);
    CHECK(std::string(ncclGetLastError(r.comm)).find("invalid argument") == 0);
    CHECK(ncclGroupStart() == ncclSuccess);  // a group fails as a whole
    CHECK(r.send(1, 1 - r.self) == ncclSuccess);
    CHECK(r.receive(1, 7) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
  });
  CHECK(found == strings{});
}

TEST_CASE("misuse of streams, memory, handles and groups is found") {
  strings const found = on_ranks(2, [](rank& r) {
    if (r.self == 1) return;
    int local = 0;
    cudaStream_t other{};
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaStreamCreate(&other) == cudaSuccess);
    CHECK(ncclSend(r.in, 1, ncclInt32, 1, r.comm, other) == ncclInvalidUsage);
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
    CHECK(ncclSend(&local, 1, ncclInt32, 1, r.comm, r.stream) == ncclInvalidArgument);
    CHECK(r.send(rank::capacity + 1, 1) == ncclInvalidArgument);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(r.send(1, 1) == ncclSuccess);
    std::thread([&r] {
      CHECK(ncclGroupStart() == ncclSuccess);
      CHECK(r.receive(1, 1) == ncclInvalidUsage);
    }).join();
    ncclComm_t const gone = r.comm;
    r.abort();
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclSend(r.in, 1, ncclInt32, 1, gone, r.stream) == ncclInvalidArgument);
    CHECK(ncclCommDestroy(gone) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
  });
  CHECK(found.size() == 8);
  for (char const* part :
       {"stream of another device", "pageable", "out of range", "another thread's open group",
        "ends inside of a group", "ncclSend: destroyed", "ncclCommDestroy: destroyed", "without ncclGroupStart"})
    CHECK_MESSAGE(has(found, part), part);
}

TEST_CASE("a communicator that is not destroyed leaks; an open group is found at a reset") {
  simt::reset();
  ncclComm_t comm{};
  CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  strings const found = simt::reset();
  CHECK(found.size() == 2);
  CHECK(has(found, "leak: communicator"));
  CHECK(has(found, "ncclGroupEnd is missing"));
}

TEST_CASE("split") {
  CHECK(on_ranks(3, [](rank& r) {
          ncclComm_t half{};
          // Ranks 2 and 0, in this order by their keys; rank 1 stays out.
          CHECK(ncclCommSplit(r.comm, r.self == 1 ? NCCL_SPLIT_NOCOLOR : 4, -r.self, &half, nullptr) == ncclSuccess);
          CHECK((half == nullptr) == (r.self == 1));
          if (half == nullptr) return;
          int value = -1;
          CHECK(ncclCommUserRank(half, &value) == ncclSuccess);
          CHECK(value == (r.self == 2 ? 0 : 1));
          CHECK(ncclCommCount(half, &value) == ncclSuccess);
          CHECK(value == 2);
          CHECK(ncclAllGather(r.in, r.out, 1, ncclInt32, half, r.stream) == ncclSuccess);
          CHECK(r.received(2) == std::vector<int>{2000, 0});
          CHECK(ncclCommDestroy(half) == ncclSuccess);
        }) == strings{});
}

TEST_CASE("calls can be made to fail") {
  simt::reset();
  ncclComm_t comm{};
  simt::fail_nccl("ncclCommInitAll", 1, ncclSystemError);
  CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSystemError);
  CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  simt::fail_nccl("", 3, ncclInternalError);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclBroadcast(nullptr, nullptr, 0, ncclInt8, 0, comm, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInternalError);
  CHECK(simt::nccl_calls() == 5);
  CHECK(simt::calls("ncclCommInitAll") == 2);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  simt::set_driver_error(cudaErrorInsufficientDriver);
  CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclUnhandledCudaError);
  CHECK(simt::reset() == strings{});
}

}  // namespace
