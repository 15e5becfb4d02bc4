// SPDX-License-Identifier: Apache-2.0
// The transport between threads; also run under ThreadSanitizer.
#include "zoadam/transport/thread.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include "transport/suite.hpp"

namespace {

using namespace transport_suite;
using zoadam::index;

template <class Function>
void on_threads(int n, Function function) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i)
    threads.emplace_back([i, &function] {
      try {
        function(i);
      } catch (std::exception const& failure) {
        FAIL_CHECK("rank ", i, ": ", failure.what());
      }
    });
  for (std::thread& each : threads) each.join();
}

struct thread_harness {
  static constexpr bool failure_is_shared = true;
  static int most_ranks() { return 5; }
  template <class Function>
  static void run(int n, milliseconds limit, Function function) {
    zoadam::thread_group group(n, limit);
    std::vector<zoadam::thread_transport> ranks;
    for (int i = 0; i < n; ++i) ranks.push_back(group.rank(i));
    on_threads(n, [&](int i) {
      zoadam::thread_transport& transport = ranks[static_cast<std::size_t>(i)];
      CHECK(transport.rank() == i);
      function(transport);
    });
  }
};

TEST_CASE_TEMPLATE_INVOKE(transport_suite::every_rank, thread_harness);
TEST_CASE_TEMPLATE_INVOKE(transport_suite::peers, thread_harness);

TEST_CASE("a group refuses what cannot be a group") {
  CHECK(outcome_of([] { zoadam::thread_group group(0); }) == outcome::argument);
  CHECK(outcome_of([] { zoadam::thread_group group(2, milliseconds(0)); }) == outcome::argument);
  zoadam::thread_group group(2, milliseconds::max());  // no overflow of the deadline
  CHECK(outcome_of([&] { group.rank(2); }) == outcome::argument);
  CHECK(outcome_of([&] { group.rank(-1); }) == outcome::argument);
  on_threads(2, [&](int i) {
    zoadam::thread_transport transport = group.rank(i);
    CHECK(wrong_bytes_of_rounds(transport, 3, 1) == 0);
  });
}

TEST_CASE("a rank that is taken is refused, and its peers throw") {
  zoadam::thread_group group(3, patient);
  stopwatch watch;
  on_threads(3, [&](int i) {
    if (i < 2) {
      zoadam::thread_transport transport = group.rank(i);
      CHECK(attempt(transport, kind::all_gather, {0, 1, 2, 3}) == outcome::aborted);
    } else {
      std::this_thread::sleep_for(milliseconds(100));
      CHECK(outcome_of([&] { group.rank(0); }) == outcome::argument);
    }
  });
  CHECK(watch.elapsed() < patient / 2);
}

TEST_CASE("a rank that died before its peers joined is noticed at once") {
  zoadam::thread_group group(2, patient);
  { zoadam::thread_transport const early = group.rank(0); }
  zoadam::thread_transport late = group.rank(1);
  stopwatch watch;
  CHECK(attempt(late, kind::all_gather, {0, 1, 2}) == outcome::aborted);
  CHECK(watch.elapsed() < patient / 2);
}

TEST_CASE("a group hands out its ranks again when all handles are gone, also after a failure") {
  zoadam::thread_group group(3, patient);
  for (unsigned round = 0; round < 4; ++round) {
    std::vector<zoadam::thread_transport> ranks;
    for (int i = 0; i < 3; ++i) ranks.push_back(group.rank(i));
    on_threads(3, [&](int i) {
      zoadam::thread_transport transport = std::move(ranks[static_cast<std::size_t>(i)]);
      CHECK(transport.bytes_sent() == 0);
      CHECK(wrong_bytes_of_rounds(transport, 5, round) == 0);
      if (round == 1) {  // sizes that differ
        CHECK(attempt(transport, kind::all_gather, {0, 1, 2, 3 + i}) == outcome::mismatch);
      } else if (round == 2) {
        transport.abort();
        CHECK(attempt(transport, kind::all_gather, {0, 1, 2, 3}) == outcome::aborted);
      }
    });
  }
}

TEST_CASE("handles outlive their group") {
  auto group = std::make_unique<zoadam::thread_group>(2);
  std::optional<zoadam::thread_transport> ranks[2] = {group->rank(0), group->rank(1)};
  group.reset();
  on_threads(2, [&](int i) { CHECK(wrong_bytes_of_rounds(*ranks[i], 3, 7) == 0); });
}

TEST_CASE("a failure leaves the caller's buffers alone: no peer reads them after a call has thrown") {
  // Under a sanitizer a late read is an error; elsewhere the freed buffers make it likely to be seen.
  for (int round = 0; round < 30; ++round) {
    zoadam::thread_group group(3, milliseconds(4));
    std::vector<zoadam::thread_transport> ranks;
    for (int i = 0; i < 3; ++i) ranks.push_back(group.rank(i));
    on_threads(3, [&](int i) {
      delays delay(static_cast<unsigned>(3 * round + i));
      outcome seen = outcome::ok;
      for (int call = 0; call < 10 && seen == outcome::ok; ++call) {
        for (int k = 0; k < 2 * i; ++k) delay.wait();
        index wrong = 0;
        seen = outcome_of([&] {
          wrong = wrong_bytes(ranks[static_cast<std::size_t>(i)], kind::all_gather, equal_lengths(3, 20000), 3);
        });
        CHECK(wrong == 0);
      }
      CHECK((seen == outcome::ok || seen == outcome::timeout || seen == outcome::aborted));
    });
  }
}

TEST_CASE("case 1: a collective of a subgroup does not wait for the other ranks") {
  zoadam::thread_group halves[2] = {zoadam::thread_group(2, patient), zoadam::thread_group(2, patient)};
  std::atomic<int> stepped{0};
  stopwatch watch;
  on_threads(4, [&](int world_rank) {
    zoadam::thread_transport transport = halves[world_rank / 2].rank(world_rank % 2);
    CHECK(transport.size() == 2);
    if (world_rank < 2) {
      CHECK(wrong_bytes_of_rounds(transport, 5, 1) == 0);
      ++stepped;
    } else {
      while (stepped < 2 && watch.elapsed() < patient) std::this_thread::sleep_for(milliseconds(1));
      CHECK(transport.bytes_sent() == 0);
      CHECK(wrong_bytes_of_rounds(transport, 5, 2) == 0);  // and it works when its turn comes
    }
  });
  CHECK(stepped == 2);
  CHECK(watch.elapsed() < patient);
}

TEST_CASE("case 21: two communicators, four threads, random delays, 100 rounds") {
  zoadam::thread_group groups[2] = {zoadam::thread_group(2, patient), zoadam::thread_group(2, patient)};
  on_threads(4, [&](int thread) {
    int const communicator = thread / 2, rank = thread % 2;
    zoadam::thread_transport transport = groups[communicator].rank(rank);
    delays delay(static_cast<unsigned>(thread));
    index wrong = 0;
    for (int round = 0; round < 100; ++round) {
      delay.wait();
      // The data depend on the communicator: a message that strays into the other one is seen.
      wrong += wrong_bytes(transport, round % 2 == 0 ? kind::all_gather : kind::all_to_all, uneven_lengths(2, round),
                           static_cast<unsigned>(1000 * communicator + round));
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("one thread per rank may drive two communicators in turn") {
  zoadam::thread_group groups[2] = {zoadam::thread_group(3, patient), zoadam::thread_group(3, patient)};
  on_threads(3, [&](int i) {
    zoadam::thread_transport a = groups[0].rank(i), b = groups[1].rank(i);
    for (int round = 0; round < 20; ++round) {
      CHECK(wrong_bytes_of_rounds(a, 1, 1) == 0);
      CHECK(wrong_bytes_of_rounds(b, 1, 2) == 0);
    }
  });
}

}  // namespace
