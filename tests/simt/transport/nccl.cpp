// SPDX-License-Identifier: Apache-2.0
// The NCCL transport over the fake NCCL: messages, optimizers, and everything that can fail.
#include "zoadam/transport/nccl.hpp"

#include <barrier>
#include <map>
#include <optional>

#include "simt/device.hpp"
#include "simt/nccl_group.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;
using strings = std::vector<std::string>;

/// A new machine of n devices.
void new_world(int devices) {
  CHECK(simt::reset() == strings{});
  simt::set_device_count(devices);
}

/// f(rank) on a thread per rank. A rank that throws is gone, which its peers hear of as over a network: as an error.
template <class Function>
std::vector<ending> on_devices(int ranks, Function const& f, bool peers_hear = true) {
  std::vector<ending> endings(nth(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      endings[nth(rank)] = ending_of([&] { f(rank); });
      for (int j = 0; j < ranks && peers_hear && endings[nth(rank)].what != outcome::ok; ++j) {
        if (j != rank) simt::nccl_async_error(j, ncclRemoteError);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return endings;
}
void check_ok(std::vector<ending> const& endings) {
  for (ending const& e : endings) {
    INFO(e.text);
    CHECK(e.what == outcome::ok);
  }
}

std::byte* at(device_array<unsigned char> const& a) { return reinterpret_cast<std::byte*>(a.span().data()); }
unsigned char value(int from, int to, index k) {
  return static_cast<unsigned char>(31 * from + 7 * to + static_cast<int>(k % 251));
}
std::vector<index> uneven(int ranks, index base = 0) {
  std::vector<index> offsets{base};
  for (int j = 0; j < ranks; ++j) offsets.push_back(offsets.back() + (j == 1 ? 0 : 7 * j + 3));
  return offsets;
}
std::vector<index> even(int ranks, index length, index base = 0) {
  std::vector<index> offsets{base};
  for (int j = 0; j < ranks; ++j) offsets.push_back(offsets.back() + length);
  return offsets;
}

using device_bytes = device_array<unsigned char>;

/// Bytes of both collectives that are not what they must be. Where other communicators are at work on the same
/// device, `keep` takes the arrays: cudaFree waits for the whole device, so that a rank that frees between its
/// collectives can wait for a peer that waits for it.
int wrong_bytes(nccl_transport& link, cudaStream_t stream, std::vector<index> const& offsets, bool in_place = false,
                std::vector<device_bytes>* keep = nullptr) {
  int const me = link.rank(), ranks = link.size();
  auto const mine = nth(offsets[nth(me) + 1] - offsets[nth(me)]), all = nth(offsets.back()), base = nth(offsets[0]);
  device_bytes send(all), receive(mine * nth(ranks)), gathered(all);
  std::vector<unsigned char> bytes(all);
  for (int j = 0; j < ranks; ++j) {
    for (index k = offsets[nth(j)]; k < offsets[nth(j) + 1]; ++k) bytes[nth(k)] = value(me, j, k);
  }
  send.put(bytes.data(), stream);
  gathered.put(bytes.data(), stream);
  index const sent = link.bytes_sent();
  link.all_to_all(offsets, at(send), at(receive));
  link.all_gather(offsets, (in_place ? at(gathered) : at(send)) + offsets[nth(me)], at(gathered));
  ZOADAM_CUDA(cudaStreamSynchronize(stream));
  link.check();
  int wrong = link.bytes_sent() - sent != static_cast<index>(all - base - mine + mine * (nth(ranks) - 1));
  std::vector<unsigned char> const got = receive.get(stream), list = gathered.get(stream);
  for (int i = 0; i < ranks; ++i) {
    for (std::size_t k = 0; k < mine; ++k) {
      wrong += got[nth(i) * mine + k] != value(i, me, offsets[nth(me)] + static_cast<index>(k));
    }
    for (index k = offsets[nth(i)]; k < offsets[nth(i) + 1]; ++k) wrong += list[nth(k)] != value(i, i, k);
  }
  if (keep != nullptr) {
    for (device_bytes* each : {&send, &receive, &gathered}) keep->push_back(std::move(*each));
  }
  return wrong;
}

TEST_CASE("messages reach their ranks, of any size") {
  for (bool const blocking : {true, false}) {
    for (int const ranks : {1, 2, 3, 5}) {
      CAPTURE(ranks);
      new_world(ranks);
      nccl_group group(ranks, no_hang, blocking);
      std::atomic<int> wrong{0};
      check_ok(on_devices(ranks, [&](int rank) {
        group.enter(rank);
        device_stream const stream;
        nccl_transport link = group.rank(rank, stream);
        wrong += link.rank() != rank || link.size() != ranks || link.stream() != stream || link.bytes_sent() != 0;
        for (int round = 0; round < 8; ++round) {
          wrong += wrong_bytes(link, stream, uneven(ranks));
          wrong += wrong_bytes(link, stream, uneven(ranks, 5), true);
          wrong += wrong_bytes(link, stream, even(ranks, 4099));
          wrong += wrong_bytes(link, stream, even(ranks, 40, 3), round % 2 == 0);
          std::vector<index> const nothing(nth(ranks) + 1, 0);
          link.all_to_all(nothing, nullptr, nullptr);
          link.all_gather(nothing, nullptr, nullptr);
          nccl_transport moved = std::move(link);
          wrong += link.size() != 0 || link.bytes_sent() != 0;
          link = std::move(moved);
        }
      }));
      CHECK(wrong == 0);
      CHECK(simt::default_stream_uses() == 0);
    }
  }
  CHECK(simt::reset() == strings{});
}

TEST_CASE("the host runs ahead of the device, by any number of collectives") {
  new_world(2);
  {
    nccl_group group(2);
    std::atomic<bool> open{false};
    std::atomic<int> wrong{0};
    check_ok(on_devices(2, [&](int rank) {
      group.enter(rank);
      device_stream const stream;
      device_array<unsigned char> send(8), receive(16);
      nccl_transport link = group.rank(rank, stream);
      ZOADAM_CUDA(cudaLaunchHostFunc(
          stream,
          [](void* p) {
            while (!*static_cast<std::atomic<bool>*>(p)) std::this_thread::yield();
          },
          &open));
      for (int i = 0; i < 200; ++i) link.all_gather(even(2, 8), at(send), at(receive));
      wrong += cudaStreamQuery(stream) != cudaErrorNotReady;
      if (rank == 0) open = true;
      stream.wait();
      for (int i = 0; i < 20; ++i) link.all_gather(even(2, 8), at(send), at(receive));
      stream.wait();
      link.check();
    }));
    CHECK(wrong == 0);
  }
  CHECK(simt::calls("cudaEventCreateWithFlags") <= 2 * 2 * 65);
  CHECK(simt::reset() == strings{});
}

template <class Optimizer>
void quick_schedules(typename twin<Optimizer>::cpu::options_type& o) {
  o.max_norm = 1;
  if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 6;
  if constexpr (requires { o.sync.period; }) {
    o.sync.start = 5;
    o.sync.period = 5;
  }
  if constexpr (requires { o.state.variance_schedule.kappa; }) o.state.variance_schedule.kappa = 2;
}

TEST_CASE_TEMPLATE("every alias computes the bits of the CPU", Optimizer, zero_one_adam<>, zero_one_adam_paper<>,
                   onebit_adam<>, adam<>, local_adam<>) {
  for (int const ranks : {1, 3}) {
    CAPTURE(ranks);
    new_world(ranks);
    pair_job<Optimizer> job;
    job.ranks = ranks;
    job.steps = 14;
    job.sizes = {700, 0, 2100, 33};
    job.set = quick_schedules<Optimizer>;
    compare_with_cpu<Optimizer, nccl_group>(job);
    for (char const* phase : {"zoadam: all_to_all", "zoadam: all_gather"})
      CHECK_MESSAGE(simt::nvtx_counts()[phase] > 0, phase);
  }
  CHECK(simt::reset() == strings{});
}

TEST_CASE_TEMPLATE("case 1: an optimizer over a communicator that the user has split: the others may step, or not",
                   Others, std::false_type, std::true_type) {
  new_world(4);
  std::vector<flat> ends(4), wanted(4);
  using device_type = twin<zero_one_adam<>>::device<nccl_transport>;
  {
    nccl_group world(4);
    check_ok(on_devices(4, [&](int rank) {
      world.enter(rank);
      ncclComm_t half = nullptr;
      REQUIRE(ncclCommSplit(world.comm(rank), rank / 2, rank, &half, nullptr) == ncclSuccess);
      {
        device_stream const stream;
        device_array<float> const x(300), g(300);
        x.put(flat(300, 0.5f).data(), stream);
        g.put(noisy_gradient(3, rank, 1, 300).data(), stream);
        nccl_transport link(half, stream);
        CHECK(link.size() == 2);
        CHECK(link.rank() == rank % 2);
        device_type o({{"x", {}, x.span(), g.span()}}, {}, std::move(link), cuda_backend(stream));
        for (int t = 0; t < 6 && (rank < 2 || Others::value); ++t) (void)o.step(1e-2).get();
        ends[nth(rank)] = x.get(stream);
      }
      CHECK(ncclCommDestroy(half) == ncclSuccess);
    }));
  }
  CHECK(simt::reset() == strings{});
  for (int pair = 0; pair < 2; ++pair) {  // the same on the CPU, a world for each pair
    thread_group links(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        flat x(300, 0.5f);
        flat const g = noisy_gradient(3, 2 * pair + rank, 1, 300);
        zero_one_adam<thread_transport> o({{"x", {}, x, g}}, {}, links.rank(rank));
        for (int t = 0; t < 6 && (pair == 0 || Others::value); ++t) (void)o.step(1e-2);
        wanted[nth(2 * pair + rank)] = x;
      });
    }
    for (std::thread& t : threads) t.join();
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(same_bits(ends[i], wanted[i]));
  CHECK(!same_bits(ends[0], ends[2]));
}

TEST_CASE("case 9: 1000 tensors of 1000 elements, W = 4: two collectives per exchange") {
  new_world(4);
  constexpr std::size_t count = 1000, size = 1000;
  constexpr int steps = 2;
  auto const collectives = [] {
    return simt::nvtx_counts()["zoadam: all_to_all"] + simt::nvtx_counts()["zoadam: all_gather"];
  };
  std::size_t before = 0, after = 0;
  {
    nccl_group group(4);
    std::barrier all(4);
    check_ok(on_devices(4, [&](int rank) {
      group.enter(rank);
      device_stream const stream;
      device_array<float> const x(count * size), g(count * size);
      x.put(flat(count * size).data(), stream);
      g.put(noisy_gradient(1, rank, 1, count * size).data(), stream);
      std::vector<tensor> list;
      for (std::size_t t = 0; t < count; ++t)
        list.push_back({"t", {}, x.span().subspan(t * size, size), g.span().subspan(t * size, size)});
      twin<adam<>>::device<nccl_transport> o(std::move(list), {}, group.rank(rank, stream), cuda_backend(stream));
      all.arrive_and_wait();
      if (rank == 0) before = collectives();
      all.arrive_and_wait();
      for (int t = 0; t < steps; ++t) (void)o.step(1e-2).get();
      all.arrive_and_wait();
      if (rank == 0) after = collectives();
    }));
  }
  CHECK(after - before == 4 * 2 * steps);
  CHECK(simt::reset() == strings{});
}

TEST_CASE("case 21: two communicators, four threads, random delays, 100 rounds") {
  new_world(2);
  {
    nccl_group first(2), second(2);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    std::vector<ending> endings(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        endings[nth(i)] = ending_of([&] {
          int const rank = i % 2;
          nccl_group& group = i < 2 ? first : second;
          group.enter(rank);
          device_stream const stream;
          nccl_transport link = group.rank(rank, stream);
          std::vector<device_bytes> kept;
          for (std::uint64_t round = 0; round < 100; ++round) {
            double const pause = 200 * (1 + double(noise(round, static_cast<std::uint64_t>(i))));
            std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(pause)));
            // Messages that stray into the other communicator have another length.
            auto const offsets = even(2, 5 + 3 * (i / 2) + static_cast<index>(round % 7));
            wrong += wrong_bytes(link, stream, offsets, false, &kept);
          }
        });
      });
    }
    for (std::thread& t : threads) t.join();
    check_ok(endings);
    CHECK(wrong == 0);
  }
  CHECK(simt::reset() == strings{});
}

/// How often two ranks called what waits for a device, or takes or gives memory, in so many steps that nobody asks
/// about.
template <class Optimizer>
std::map<std::string, std::size_t> waits(int steps) {
  new_world(2);
  {
    nccl_group group(2);
    auto const endings = on_devices(2, [&](int rank) {
      group.enter(rank);
      device_stream const stream;
      device_array<float> const x(3000), g(3000);
      x.put(flat(3000, 1.0f).data(), stream);
      g.put(noisy_gradient(1, rank, 1, 3000).data(), stream);
      typename Optimizer::options_type options;
      quick_schedules<Optimizer>(options);
      Optimizer o({{"x", {}, x.span(), g.span()}}, options, group.rank(rank, stream), cuda_backend(stream));
      for (int t = 1; t < steps; ++t) (void)o.step(1e-3);
      CHECK(o.step(1e-3).get().step == steps);
    });
    for (ending const& e : endings) CHECK_MESSAGE(e.what == outcome::ok, e.text);
  }
  std::map<std::string, std::size_t> all;
  for (auto const& [name, count] : simt::calls_by_name()) {
    for (char const* part : {"Synchronize", "Malloc", "Free"})
      if (name.find(part) != std::string::npos) all[name] = count;
  }
  CHECK(all.count("cudaMalloc") == 1);
  CHECK(all.count("cudaEventSynchronize") == 1);
  CHECK(simt::reset() == strings{});
  return all;
}

TEST_CASE_TEMPLATE("steps neither wait nor allocate, with an exchange or without", Optimizer,
                   zero_one_adam<nccl_transport, cuda_backend>, zero_one_adam_paper<nccl_transport, cuda_backend>,
                   adam<nccl_transport, cuda_backend>) {
  auto const few = waits<Optimizer>(20), many = waits<Optimizer>(60);
  CHECK(few.size() == many.size());
  for (auto const& each : few) {
    CAPTURE(each.first);
    CHECK(many.at(each.first) == each.second);
  }
}

TEST_CASE("arguments of the constructor and of collectives") {
  new_world(2);
  {
    nccl_group group(1);
    device_stream const stream;
    ZOADAM_CUDA(cudaSetDevice(1));
    device_stream const foreign;
    ZOADAM_CUDA(cudaSetDevice(0));
    auto const refused = [&](ncclComm_t comm, cudaStream_t s, milliseconds limit, char const* words) {
      ending const e = ending_of([&] { nccl_transport link(comm, s, limit); });
      CHECK_MESSAGE((e.what == outcome::argument && mentions(e, words)), e.text);
    };
    refused(nullptr, stream, no_hang, "comm must not be null");
    for (cudaStream_t s : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread})
      refused(group.comm(0), s, no_hang, "default stream");
    refused(group.comm(0), stream, milliseconds(0), "time_limit");
    refused(group.comm(0), foreign, no_hang, "stream belongs to device 1, comm to device 0");

    device_array<unsigned char> buffer(8);
    nccl_transport link = group.rank(0, stream);
    CHECK(wrong_bytes(link, stream, even(1, 100)) == 0);
    // Offsets for two ranks, a communicator of one.
    constexpr char sizes[] = "offsets must have size() + 1 = 2 entries, not 3";
    ending const other_size = ending_of([&] { link.all_gather(even(2, 4), at(buffer), at(buffer)); });
    CHECK((other_size.what == outcome::argument && mentions(other_size, sizes)));
    ending const later = ending_of([&] { link.all_gather(even(1, 4), at(buffer), at(buffer)); });
    CHECK((later.what == outcome::aborted && mentions(later, sizes)));
    CHECK(group.watch(0).failed());

    nccl_transport moved = std::move(link);
    CHECK(ending_of([&] { link.all_gather(even(1, 4), at(buffer), at(buffer)); }).what == outcome::argument);
    CHECK(ending_of([&] { (void)link.watch(); }).what == outcome::argument);
    CHECK(ending_of([&] { link.check(); }).what == outcome::ok);
    CHECK(link.stream() == nullptr);
  }
  CHECK(simt::reset() == strings{});
}

TEST_CASE("a peer that never comes: time-out on the others, within the limit") {
  constexpr milliseconds limit(150);
  for (int const ranks : {2, 3}) {
    new_world(ranks);
    {
      nccl_group group(ranks, limit);
      std::atomic<int> wrong{0};
      std::atomic<int> timed_out{0};
      check_ok(on_devices(ranks, [&](int rank) {
        group.enter(rank);
        device_stream const stream;
        nccl_transport link = group.rank(rank, stream);
        wrong += wrong_bytes(link, stream, uneven(ranks));
        nccl_watch const watch = link.watch();
        if (rank == 0) return;
        device_array<unsigned char> send(nth(9 * ranks)), receive(nth(9 * ranks));
        auto const started = std::chrono::steady_clock::now();
        link.all_to_all(even(ranks, 9), at(send), at(receive));
        nccl_transport moved = std::move(link);
        wrong += std::chrono::steady_clock::now() - started > limit;  // nobody waited here
        stream.wait();
        auto const took = std::chrono::steady_clock::now() - started;
        wrong += took < limit || took > no_hang / 2;
        for (int i = 0; i < 2; ++i) {
          ending const e = ending_of([&] { moved.all_gather(even(ranks, 9), at(send), at(receive)); });
          timed_out += e.what == outcome::timeout && mentions(e, "150 ms");
        }
        timed_out += ending_of([&] { moved.check(); }).what == outcome::timeout;
        { nccl_transport const gone = std::move(moved); }
        timed_out += ending_of([&] { watch.check(); }).what == outcome::timeout;
      }));
      CHECK(wrong == 0);
      CHECK(timed_out == 4 * (ranks - 1));
      CHECK(!group.watch(0).failed());
    }
    CHECK(simt::reset() == strings{});
  }
}

TEST_CASE("a rank for which NCCL itself waits is freed as well") {
  new_world(2);
  simt::set_nccl_connects(true);
  {
    nccl_group group(2, milliseconds(150));
    std::vector<ending> const endings = on_devices(2, [&](int rank) {
      group.enter(rank);
      device_stream const stream;
      nccl_transport link = group.rank(rank, stream);
      CHECK(wrong_bytes(link, stream, uneven(2)) == 0);
      device_array<unsigned char> send(18), receive(18);
      if (rank == 1) link.all_to_all(even(2, 9), at(send), at(receive));
    });
    CHECK(endings[0].what == outcome::ok);
    CHECK(endings[1].what != outcome::ok);
    CHECK(ending_of([&] { group.watch(1).check(); }).what == outcome::timeout);
  }
  CHECK(simt::reset() == strings{});
}

TEST_CASE("a peer that is slow, but comes, is waited for; so is a long computation before the collective") {
  static constexpr milliseconds limit(1500);
  new_world(2);
  {
    nccl_group group(2, limit);
    check_ok(on_devices(2, [&](int rank) {
      group.enter(rank);
      device_stream const stream;
      nccl_transport link = group.rank(rank, stream);
      for (int round = 0; round < 3; ++round) {
        if (rank == round % 2) std::this_thread::sleep_for(limit / 5);
        CHECK(wrong_bytes(link, stream, uneven(2)) == 0);
      }
      // The stream is busy for longer than the limit, and reaches the collective only then.
      device_array<unsigned char> send(18), receive(18);
      ZOADAM_CUDA(cudaLaunchHostFunc(
          stream, [](void*) { std::this_thread::sleep_for(limit + limit / 5); }, nullptr));
      link.all_to_all(even(2, 9), at(send), at(receive));
      stream.wait();
      link.check();
    }));
  }
  CHECK(simt::reset() == strings{});
}

TEST_CASE("an asynchronous error, an abort, and a rank that leaves free the streams of all") {
  enum class end { error, abort, exception, device };
  for (end const how : {end::error, end::abort, end::exception, end::device}) {
    CAPTURE(static_cast<int>(how));
    new_world(3);
    {
      nccl_group group(3, milliseconds(300));
      std::vector<ending> endings = on_devices(
          3,
          [&](int rank) {
            group.enter(rank);
            device_stream const stream;
            device_array<unsigned char> send(27), receive(27);
            nccl_transport link = group.rank(rank, stream);
            CHECK(wrong_bytes(link, stream, uneven(3)) == 0);
            if (rank == 0 && how == end::exception) {
              link.all_to_all(even(3, 9), at(send), at(receive));
              throw std::runtime_error("the trainer failed on this rank");
            }
            if (rank == 0 && how == end::abort) {
              link.all_to_all(even(3, 9), at(send), at(receive));
              link.abort();
              link.abort();
              stream.wait();
            } else if (rank != 2) {
              link.all_to_all(even(3, 9), at(send), at(receive));
              if (rank == 0 && how == end::error) simt::nccl_async_error(0, ncclRemoteError);
              if (rank == 0 && how == end::device) simt::break_device(0, cudaErrorECCUncorrectable);
              (void)cudaStreamSynchronize(stream);
              // A device that fails ends its stream at once; the watchdog hears of it when it asks.
              for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(milliseconds(2))) link.check();
            }
            link.check();
          },
          false);
      CHECK(endings[2].what == outcome::ok);
      CHECK(endings[1].what == outcome::timeout);
      INFO(endings[0].text);
      CHECK(endings[0].what == (how == end::abort ? outcome::aborted : outcome::other));
      if (how == end::error) CHECK(mentions(endings[0], "remote process exited"));
      if (how == end::device) CHECK(mentions(endings[0], "cudaErrorECCUncorrectable"));
      CHECK(ending_of([&] { group.watch(1).check(); }).what == outcome::timeout);
      CHECK(group.watch(0).failed());
      CHECK(simt::calls("ncclCommAbort") == 2);
    }
    CHECK(simt::reset() == strings{});
  }
}

TEST_CASE("leaving by an exception does not cost a communicator on which nothing is under way") {
  new_world(2);
  {
    nccl_group group(2);
    for (int round = 0; round < 2; ++round) {
      std::vector<ending> const endings = on_devices(
          2,
          [&](int rank) {
            group.enter(rank);
            device_stream const stream;
            nccl_transport link = group.rank(rank, stream);
            CHECK(wrong_bytes(link, stream, uneven(2)) == 0);
            throw mismatch_error("both ranks");
          },
          false);
      CHECK(endings[0].what == outcome::mismatch);
      CHECK(!group.watch(0).failed());
    }
  }
  CHECK(simt::calls("ncclCommAbort") == 0);
  CHECK(simt::reset() == strings{});
}

TEST_CASE("a non-blocking communicator whose initialization or call does not end") {
  new_world(2);
  {
    ncclUniqueId id;
    ncclComm_t comm{};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    device_stream const stream;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    ending const e = ending_of([&] { nccl_transport link(comm, stream, milliseconds(50)); });
    CHECK((e.what == outcome::timeout && mentions(e, "initialization")));
    CHECK(simt::calls("ncclCommAbort") == 0);  // still the user's
    CHECK(ncclCommAbort(comm) == ncclSuccess);
  }
  {
    nccl_group group(2, milliseconds(100), false);
    std::vector<ending> const endings = on_devices(
        2,
        [&](int rank) {
          group.enter(rank);
          device_stream const stream;
          nccl_transport link = group.rank(rank, stream);
          CHECK(wrong_bytes(link, stream, uneven(2)) == 0);
          device_array<unsigned char> send(18), receive(18);
          if (rank == 0) simt::nccl_async_error(0, ncclInProgress);
          link.all_gather(even(2, 9), at(send), at(receive));
          stream.wait();
          link.check();
        },
        false);
    CHECK((endings[0].what == outcome::timeout && mentions(endings[0], "within 100 ms")));
    CHECK(ending_of([&] { group.watch(0).check(); }).what == outcome::timeout);
  }
  CHECK(simt::reset() == strings{});
}

TEST_CASE("a capture on another thread is not disturbed by the watchdog") {
  new_world(1);
  simt::set_device_count(2);
  {
    nccl_group group(2);
    std::atomic<bool> ready{false}, captured{false};
    check_ok(on_devices(2, [&](int rank) {
      group.enter(rank);
      device_stream const stream, other;
      nccl_transport link = group.rank(rank, stream);
      device_array<unsigned char> send(18), receive(18);
      CHECK(wrong_bytes(link, stream, uneven(2)) == 0);
      if (rank == 0) {
        while (!ready) std::this_thread::sleep_for(milliseconds(1));
        link.all_gather(even(2, 9), at(send), at(receive));
        cudaGraph_t graph{};
        CHECK(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal) == cudaSuccess);
        std::this_thread::sleep_for(milliseconds(30));
        CHECK(cudaStreamEndCapture(other, &graph) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        captured = true;
      } else {
        ready = true;
        while (!captured) std::this_thread::sleep_for(milliseconds(1));
        link.all_gather(even(2, 9), at(send), at(receive));
      }
      stream.wait();
      link.check();
    }));
  }
  CHECK(simt::reset() == strings{});
}

// ---- every call fails once ----

/// What no caller can make up for: a release that fails leaves its object.
bool releases(std::string const& name) {
  return name == "cudaFree" || name == "cudaFreeHost" || name == "ncclCommAbort" ||
         name.find("Destroy") != std::string::npos;
}

/// Runs `work(group, rank)` on two ranks, once for every call that it makes outside of releases, which fails.
template <class Work>
void fail_every_call(Work const& work, bool (*skip)(std::string const&) = releases) {
  new_world(2);
  std::map<std::string, std::size_t> calls;
  {
    nccl_group group(2);
    auto const before = simt::calls_by_name();
    check_ok(on_devices(2, [&](int rank) { work(group, rank); }));
    for (auto const& [name, count] : simt::calls_by_name()) {
      auto const known = before.find(name);
      calls[name] = count - (known == before.end() ? 0 : known->second);
    }
  }
  CHECK(simt::reset() == strings{});
  int failed = 0;
  for (auto const& each : calls) {
    std::string const& name = each.first;
    std::size_t const count = each.second;
    if (skip(name)) continue;
    bool const polled = name == "cudaEventQuery" || name == "ncclCommGetAsyncError";
    bool const nccl = name.starts_with("nccl");
    for (std::size_t nth_call = 1; nth_call <= (polled ? std::min<std::size_t>(count, 8) : count); ++nth_call) {
      INFO(name << " " << nth_call);
      simt::set_device_count(2);
      std::vector<ending> endings;
      bool met = false;
      {
        nccl_group group(2);
        int const number = static_cast<int>(nth_call);
        if (nccl)
          simt::fail_nccl(name, number, ncclInternalError);
        else
          simt::fail_call(name, number, cudaErrorUnknown);
        endings = on_devices(2, [&](int rank) { work(group, rank); });
        met = simt::pending_failures() == 0;
      }
      int named = 0, well = 0;
      for (ending const& e : endings) {
        char const* const call = name == "cudaLaunchKernel" ? "launch of " : name.c_str();
        named += mentions(e, call) && mentions(e, nccl ? "internal error" : "cudaErrorUnknown");
        well += e.what == outcome::ok;
      }
      std::string const texts = endings[0].text + " | " + endings[1].text;
      // The watchdog may get to its calls when everything has ended well.
      bool const on_watchdog = polled || name == "cudaSetDevice" || name == "cudaThreadExchangeStreamCaptureMode";
      if (met && !on_watchdog) CHECK_MESSAGE(named >= 1, texts);
      if (on_watchdog) CHECK_MESSAGE((named >= 1 || well == 2), texts);
      if (!met) CHECK(well == 2);
      failed += met;
      CHECK(simt::reset() == strings{});
    }
  }
  CHECK(failed > 20);
}

TEST_CASE("every call of the transport fails once: an exception that names it, no hang, no leak") {
  fail_every_call([](nccl_group& group, int rank) {
    group.enter(rank);
    device_stream const stream;
    device_array<unsigned char> send(64), receive(128);
    nccl_transport link = group.rank(rank, stream);
    for (int round = 0; round < 2; ++round) {
      index const sent = link.bytes_sent();
      try {
        link.all_to_all(uneven(2), at(send), at(receive));
        link.all_gather(uneven(2), at(send), at(receive));
        link.all_gather(even(2, 8), at(send), at(receive));
      } catch (...) {
        CHECK(link.bytes_sent() - sent < 31);
        CHECK(group.watch(rank).failed());
        CHECK(ending_of([&] { link.all_gather(even(2, 8), at(send), at(receive)); }).what != outcome::ok);
        throw;
      }
      stream.wait();
      link.check();
    }
  });
}

TEST_CASE("every call of an optimizer fails once: parameters are as they were before the call that throws") {
  using optimizer_type =
      twin<threaded<sign_with_feedback<>, fixed_interval, frozen_variance_state<>>>::device<nccl_transport>;
  static auto const polls = [](std::string const& name) {
    return releases(name) || name == "cudaEventQuery" || name == "ncclCommGetAsyncError";
  };
  fail_every_call(
      [](nccl_group& group, int rank) {
        group.enter(rank);
        device_stream const stream;
        device_array<float> x(40), g(40);
        {
          simt::uncounted const own;
          x.put(flat(40, 0.5f).data(), stream);
          g.put(noisy_gradient(3, rank, 1, 40).data(), stream);
        }
        auto const now = [&] {
          simt::uncounted const own;
          return x.get(stream);
        };
        auto const call = [&](auto const& f) {
          flat const before = now();
          try {
            f();
          } catch (error const& e) {
            CHECK_MESSAGE(same_bits(before, now()), std::string(e.what()));
            throw;
          }
          group.watch(rank).check();
        };
        optimizer_type::options_type options;
        options.sync.interval = 2;
        optimizer_type adam({{"x", {}, x.span(), g.span()}}, options, group.rank(rank, stream), cuda_backend(stream));
        std::optional<cuda_report<nccl_watch>> report;
        for (int step = 1; step <= 3; ++step) call([&] { report = adam.step(0.01); });  // the second one exchanges
        (void)report->get();
        call([&] { report = adam.synchronize(); });
        step_report const got = report->get();
        CHECK(got.exchanged);
        call([&] { adam.rebase(); });
      },
      polls);
}

}  // namespace
