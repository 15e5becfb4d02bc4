// SPDX-License-Identifier: Apache-2.0
// What every transport must do, as suites over a harness that runs a function on each of n ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "zoadam/concepts/transport.hpp"
#include "zoadam/config.hpp"
#include "zoadam/error.hpp"

// A harness has
//   most_ranks()               the suites run on 1 ... most_ranks() ranks
//   run(n, time_limit, f)      calls f(transport) on each of n ranks; what f lets escape is a failed check
//   failure_is_shared          for the suite of peers: all ranks see the cause of a failure, else some see an abort
namespace transport_suite {

using std::chrono::milliseconds;
using zoadam::index;

inline constexpr milliseconds patient{20000};

enum class kind { all_to_all, all_gather };
enum class outcome { ok, mismatch, timeout, aborted, argument, other };

inline char const* name(outcome o) {
  constexpr char const* names[] = {"ok", "mismatch", "timeout", "aborted", "argument", "other"};
  return names[static_cast<int>(o)];
}
inline doctest::String toString(outcome o) { return name(o); }

template <class Function>
outcome outcome_of(Function function) {
  try {
    function();
    return outcome::ok;
  } catch (zoadam::mismatch_error const&) {
    return outcome::mismatch;
  } catch (zoadam::timeout_error const&) {
    return outcome::timeout;
  } catch (zoadam::aborted_error const&) {
    return outcome::aborted;
  } catch (zoadam::argument_error const&) {
    return outcome::argument;
  } catch (...) {
    return outcome::other;
  }
}

class stopwatch {
 public:
  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start_);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline std::vector<index> offsets_of(std::vector<index> const& lengths, index base = 0) {
  std::vector<index> offsets{base};
  for (index const length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

inline std::vector<index> equal_lengths(int ranks, index length) {
  return std::vector<index>(static_cast<std::size_t>(ranks), length);
}

inline std::vector<index> uneven_lengths(int ranks, int shift) {
  constexpr index sizes[] = {0, 1, 7, 4096, 100003};
  std::vector<index> lengths;
  for (int j = 0; j < ranks; ++j) lengths.push_back(sizes[(j + shift) % 5]);
  return lengths;
}

/// The byte at position k of the message from one rank to another (all messages of an all-gather go to rank 0).
inline std::byte pattern(int from, int to, index k, unsigned salt) {
  std::uint32_t x = static_cast<std::uint32_t>(k) * 2654435761u + static_cast<std::uint32_t>(from) * 40503u +
                    static_cast<std::uint32_t>(to) * 9973u + salt * 101u;
  return static_cast<std::byte>((x >> 9) & 0xffu);
}

template <class Transport>
void call(Transport& transport, kind which, std::vector<index> const& offsets, std::byte const* send,
          std::byte* receive) {
  if (which == kind::all_to_all)
    transport.all_to_all(offsets, send, receive);
  else
    transport.all_gather(offsets, send, receive);
}

/// One collective of given lengths on this rank, with buffers of its own whose contents nobody looks at.
template <class Transport>
outcome attempt(Transport& transport, kind which, std::vector<index> const& offsets) {
  auto const total = static_cast<std::size_t>(offsets.back()) * 8 + 8;
  std::vector<std::byte> send(total), receive(total);
  return outcome_of([&] { call(transport, which, offsets, send.data(), receive.data()); });
}

/// Runs one collective and counts the bytes of the receive buffer that are not what they must be, guards included.
template <class Transport>
index wrong_bytes(Transport& transport, kind which, std::vector<index> const& lengths, unsigned salt, index base = 0,
                  bool in_place = false) {
  constexpr index guard = 16;
  constexpr std::byte untouched{0xa5};
  int const size = transport.size(), me = transport.rank();
  auto const at = [](index i) { return static_cast<std::size_t>(i); };
  std::vector<index> const offsets = offsets_of(lengths, base);
  bool const gather = which == kind::all_gather;
  index const own = lengths[at(me)], total = offsets.back() - base;

  std::vector<std::byte> send(at(gather ? own : offsets.back()));
  for (int to = 0; to < (gather ? 1 : size); ++to)
    for (index k = 0; k < (gather ? own : lengths[at(to)]); ++k)
      send[at((gather ? 0 : offsets[at(to)]) + k)] = pattern(me, to, k, salt);

  index const first = gather ? base : 0, length = gather ? total : own * size;
  std::vector<std::byte> receive(at(guard + first + length + guard), untouched);
  std::byte* const target = receive.data() + guard;
  std::byte const* source = send.data();
  if (in_place) {
    for (index k = 0; k < own; ++k) receive[at(guard + offsets[at(me)] + k)] = send[at(k)];
    source = target + offsets[at(me)];
  }
  index const sent_before = transport.bytes_sent();
  call(transport, which, offsets, source, target);
  CHECK(transport.bytes_sent() - sent_before == (gather ? own * (size - 1) : total - own));

  std::vector<std::byte> expected(receive.size(), untouched);
  index position = guard + first;
  for (int from = 0; from < size; ++from)
    for (index k = 0; k < (gather ? lengths[at(from)] : own); ++k)
      expected[at(position++)] = pattern(from, gather ? 0 : me, k, salt);
  index wrong = 0;
  for (std::size_t i = 0; i < receive.size(); ++i) wrong += receive[i] != expected[i];
  return wrong;
}

/// A few collectives of both kinds.
template <class Transport>
index wrong_bytes_of_rounds(Transport& transport, int rounds, unsigned salt) {
  index wrong = 0;
  for (int round = 0; round < rounds; ++round)
    for (kind const which : {kind::all_to_all, kind::all_gather})
      wrong +=
          wrong_bytes(transport, which, uneven_lengths(transport.size(), round), salt + static_cast<unsigned>(round));
  return wrong;
}

/// Of two ranks both see that they disagree; of more, a third may first hear that another has given up.
template <class Harness>
void check_mismatch(int ranks, outcome seen) {
  if (Harness::failure_is_shared || ranks == 2)
    CHECK(seen == outcome::mismatch);
  else
    CHECK((seen == outcome::mismatch || seen == outcome::aborted));
}

/// Pseudo-random delays, equal in every run.
class delays {
 public:
  explicit delays(unsigned seed) : state_(seed * 2654435769u + 1) {}
  void wait() {
    state_ = state_ * 1664525u + 1013904223u;
    std::this_thread::sleep_for(std::chrono::microseconds((state_ >> 16) % 1500));
  }

 private:
  std::uint32_t state_;
};

TEST_CASE_TEMPLATE_DEFINE("every rank: sizes, one rank to all", Harness, every_rank) {
  REQUIRE(Harness::most_ranks() >= 1);
  SUBCASE("messages of equal and of uneven length arrive, nothing else is written, bytes are counted") {
    for (int n = 1; n <= Harness::most_ranks(); ++n)
      Harness::run(n, patient, [&](auto& transport) {
        CHECK(transport.size() == n);
        CHECK(transport.bytes_sent() == 0);
        unsigned salt = 0;
        for (kind const which : {kind::all_to_all, kind::all_gather}) {
          for (index const length : {0, 1, 7, 4096})
            CHECK(wrong_bytes(transport, which, equal_lengths(n, length), ++salt) == 0);
          for (int shift = 0; shift < 5; ++shift)
            CHECK(wrong_bytes(transport, which, uneven_lengths(n, shift), ++salt) == 0);
          CHECK(wrong_bytes(transport, which, uneven_lengths(n, 2), ++salt, 3) == 0);
        }
        CHECK(wrong_bytes(transport, kind::all_gather, uneven_lengths(n, 1), ++salt, 0, true) == 0);
      });
  }
  SUBCASE("case 5: empty collectives succeed, null buffers included") {
    for (int n = 1; n <= Harness::most_ranks(); ++n)
      Harness::run(n, patient, [&](auto& transport) {
        std::vector<index> const offsets(static_cast<std::size_t>(n) + 1, 0);
        for (int round = 0; round < 3; ++round) {
          CHECK(outcome_of([&] { transport.all_to_all(offsets, nullptr, nullptr); }) == outcome::ok);
          CHECK(outcome_of([&] { transport.all_gather(offsets, nullptr, nullptr); }) == outcome::ok);
        }
        CHECK(transport.bytes_sent() == 0);
      });
  }
  SUBCASE("one transport serves many rounds, also after a move") {
    for (int n = 1; n <= Harness::most_ranks(); ++n)
      Harness::run(n, patient, [&](auto& transport) {
        CHECK(wrong_bytes_of_rounds(transport, 10, 1) == 0);
        index const sent = transport.bytes_sent();
        auto moved = std::move(transport);
        CHECK(moved.size() == n);
        CHECK(moved.bytes_sent() == sent);
        CHECK(transport.size() == 0);
        CHECK(attempt(transport, kind::all_gather, {0, 1}) == outcome::argument);
        CHECK(wrong_bytes_of_rounds(moved, 10, 2) == 0);
        transport = std::move(moved);
        CHECK(wrong_bytes_of_rounds(transport, 10, 3) == 0);
      });
  }
  SUBCASE("arguments that are wrong by themselves are refused, and the transport is out of use") {
    for (int defect = 0; defect < 5; ++defect)
      Harness::run(Harness::most_ranks(), patient, [&](auto& transport) {
        auto const ranks = static_cast<std::size_t>(transport.size());
        std::vector<index> good = offsets_of(equal_lengths(transport.size(), 8)), bad = good;
        std::vector<std::byte> buffer(good.size() * 8), result(good.size() * 8);
        std::byte* send = buffer.data();
        std::byte* receive = result.data();
        if (defect == 0) bad.pop_back();
        if (defect == 1) bad[ranks] = -1;
        if (defect == 2) bad[0] = -8;
        if (defect == 3) send = nullptr;
        if (defect == 4) receive = nullptr;
        // On the last rank alone: its peers must learn of it.
        bool const here = transport.rank() == transport.size() - 1;
        outcome const seen = outcome_of([&] {
          here ? transport.all_gather(bad, send, receive) : transport.all_gather(good, buffer.data(), result.data());
        });
        CHECK(seen == (here ? outcome::argument : outcome::aborted));
        CHECK(attempt(transport, kind::all_gather, good) == outcome::aborted);
      });
  }
  SUBCASE("abort() is final on its own rank") {
    Harness::run(1, patient, [&](auto& transport) {
      transport.abort();
      CHECK(attempt(transport, kind::all_to_all, {0, 4}) == outcome::aborted);
      CHECK(attempt(transport, kind::all_gather, {0, 0}) == outcome::aborted);
    });
  }
}

TEST_CASE_TEMPLATE_DEFINE("peers: ranks that disagree, give up, come late or die", Harness, peers) {
  REQUIRE(Harness::most_ranks() >= 2);
  SUBCASE("sizes that differ raise on every rank, and so does every later call") {
    for (int n = 2; n <= Harness::most_ranks(); ++n)
      for (kind const which : {kind::all_to_all, kind::all_gather})
        for (index const own : {0, 6, 5000}) {
          stopwatch watch;
          Harness::run(n, patient, [&](auto& transport) {
            CHECK(wrong_bytes_of_rounds(transport, 2, 1) == 0);
            std::vector<index> lengths = equal_lengths(n, 4);
            if (transport.rank() == 0) lengths.back() = own;  // the message of (or for) the last rank
            check_mismatch<Harness>(n, attempt(transport, which, offsets_of(lengths)));
            CHECK(attempt(transport, which, offsets_of(lengths)) == outcome::aborted);
          });
          CHECK(watch.elapsed() < patient / 2);
        }
  }
  SUBCASE("case 12: large messages that differ by two floats raise on every rank") {
    Harness::run(2, patient, [&](auto& transport) {
      index const elements = transport.rank() == 0 ? 409600 : 409598;
      CHECK(attempt(transport, kind::all_gather, offsets_of(equal_lengths(2, elements * 4))) == outcome::mismatch);
    });
  }
  SUBCASE("different collectives raise on every rank") {
    for (int n = 2; n <= Harness::most_ranks(); ++n)
      Harness::run(n, patient, [&](auto& transport) {
        kind const which = transport.rank() == n - 1 ? kind::all_gather : kind::all_to_all;
        check_mismatch<Harness>(n, attempt(transport, which, offsets_of(equal_lengths(n, 12))));
        CHECK(attempt(transport, which, offsets_of(equal_lengths(n, 12))) == outcome::aborted);
      });
  }
  SUBCASE("abort() on one rank ends the pending and the later calls of all") {
    for (int n = 2; n <= Harness::most_ranks(); ++n) {
      stopwatch watch;
      Harness::run(n, patient, [&](auto& transport) {
        CHECK(wrong_bytes_of_rounds(transport, 2, 1) == 0);
        if (transport.rank() == 0) {
          std::this_thread::sleep_for(milliseconds(50));
          transport.abort();
        }
        CHECK(attempt(transport, kind::all_to_all, offsets_of(equal_lengths(n, 9))) == outcome::aborted);
        CHECK(attempt(transport, kind::all_gather, offsets_of(equal_lengths(n, 9))) == outcome::aborted);
      });
      CHECK(watch.elapsed() < patient / 2);
    }
  }
  SUBCASE("a peer that does not come: time-out on those who wait, no call succeeds later") {
    constexpr milliseconds limit(200);
    for (int n = 2; n <= Harness::most_ranks(); ++n)
      Harness::run(n, limit, [&](auto& transport) {
        CHECK(wrong_bytes_of_rounds(transport, 2, 1) == 0);
        if (transport.rank() == 0) {
          std::this_thread::sleep_for(5 * limit);
        } else {
          stopwatch watch;
          outcome const seen = attempt(transport, kind::all_to_all, offsets_of(equal_lengths(n, 9)));
          CHECK((seen == outcome::timeout || (!Harness::failure_is_shared && seen == outcome::aborted)));
          CHECK(watch.elapsed() < patient / 2);
          if (n == 2) CHECK(watch.elapsed() >= limit);
        }
        // Where messages are buffered, the late rank may still find those of the collective that the others gave up.
        if (transport.rank() == 0 && !Harness::failure_is_shared)
          CHECK(attempt(transport, kind::all_to_all, offsets_of(equal_lengths(n, 9))) != outcome::mismatch);
        CHECK(attempt(transport, kind::all_to_all, offsets_of(equal_lengths(n, 9))) == outcome::aborted);
      });
  }
  SUBCASE("a rank that leaves by an exception wakes its peers at once") {
    for (int n = 2; n <= Harness::most_ranks(); ++n) {
      stopwatch watch;
      Harness::run(n, patient, [&](auto& transport) {
        CHECK(wrong_bytes_of_rounds(transport, 2, 1) == 0);
        if (transport.rank() == 0) {
          std::this_thread::sleep_for(milliseconds(50));
          try {
            auto mine = std::move(transport);
            throw std::runtime_error("the trainer failed on this rank");
          } catch (std::runtime_error const&) {
          }
        } else {
          CHECK(attempt(transport, kind::all_gather, offsets_of(equal_lengths(n, 9))) == outcome::aborted);
          CHECK(attempt(transport, kind::all_gather, offsets_of(equal_lengths(n, 9))) == outcome::aborted);
        }
      });
      CHECK(watch.elapsed() < patient / 2);
    }
  }
  SUBCASE("a fast rank and a slow one do not confuse consecutive collectives") {
    for (int n = 2; n <= Harness::most_ranks(); ++n)
      Harness::run(n, patient, [&](auto& transport) {
        delays delay(static_cast<unsigned>(transport.rank()));
        index wrong = 0;
        for (unsigned round = 0; round < 60; ++round) {
          if (transport.rank() == static_cast<int>(round) % n) delay.wait();
          wrong += wrong_bytes(transport, kind::all_gather, equal_lengths(n, 64), round);
        }
        CHECK(wrong == 0);
      });
  }
}

}  // namespace transport_suite
