// SPDX-License-Identifier: Apache-2.0
// The threads of one rank: every part once, borders at multiples of the grain, the standard floating-point mode.
#include "zoadam/backend/thread_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <set>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

using zoadam::index;
using zoadam::detail::thread_pool;

struct part {
  index first, last;
  int thread;
};

// The parts of one loop, in order of their threads.
std::vector<part> parts_of(thread_pool& pool, index n, index grain) {
  std::vector<part> parts(static_cast<std::size_t>(pool.size()), part{0, 0, -1});
  std::atomic<int> calls = 0;
  pool.parallel(n, grain, [&](index first, index last, int thread) {
    ++calls;
    parts[static_cast<std::size_t>(thread)] = {first, last, thread};
  });
  std::erase_if(parts, [](part const& p) { return p.thread < 0; });
  CHECK(calls == static_cast<int>(parts.size()));
  return parts;
}

TEST_CASE("the parts cover [0, n) without gaps, cut at multiples of the grain") {
  for (int const threads : {1, 2, 3, 5}) {
    thread_pool pool(threads);
    CHECK(pool.size() == threads);
    for (index const grain : {1, 32, 64, 2048}) {
      for (index const n : {index{1}, grain - 1, grain, grain + 1, 3 * grain, 10 * grain + 7, index{10000}}) {
        CAPTURE(threads);
        CAPTURE(grain);
        CAPTURE(n);
        index at = 0;
        for (part const& p : parts_of(pool, n, grain)) {
          CHECK(p.first == at);
          CHECK(p.last > p.first);
          at = p.last;
          CHECK((at == n || at % grain == 0));
        }
        CHECK(at == (n > 0 ? n : 0));
      }
    }
  }
}

TEST_CASE("nothing to do is nothing called") {
  thread_pool pool(3);
  CHECK(parts_of(pool, 0, 1).empty());
  CHECK(parts_of(pool, -5, 1).empty());
}

TEST_CASE("fewer than one thread are refused") {
  CHECK_THROWS_AS(thread_pool(0), zoadam::argument_error);
  CHECK_THROWS_AS(thread_pool(-3), zoadam::argument_error);
}

TEST_CASE("one thread is the caller, and so is a pool that was moved from") {
  thread_pool from(3);
  thread_pool const to(std::move(from));
  CHECK(to.size() == 3);
  thread_pool pool(1);
  pool = std::move(from);
  CHECK(pool.size() == 1);
  std::thread::id id;
  pool.parallel(100, 1, [&](index, index, int) { id = std::this_thread::get_id(); });
  CHECK(id == std::this_thread::get_id());
}

TEST_CASE("many loops one after the other, each complete when it returns; the pool may be moved") {
  thread_pool first(4);
  thread_pool pool = std::move(first);
  std::vector<int> values(1000, 0);
  for (int round = 1; round <= 2000; ++round) {
    pool.parallel(1000, 1, [&](index a, index b, int) {
      for (index i = a; i < b; ++i) ++values[static_cast<std::size_t>(i)];
    });
    bool complete = true;
    for (int v : values) complete &= v == round;
    REQUIRE(complete);
  }
}

TEST_CASE("each thread index belongs to one thread, the caller's being 0") {
  thread_pool pool(3);
  std::vector<std::thread::id> ids(3);
  for (int round = 0; round < 50; ++round) {
    pool.parallel(300, 1, [&](index, index, int thread) {
      auto& id = ids[static_cast<std::size_t>(thread)];
      if (round == 0) id = std::this_thread::get_id();
      if (id != std::this_thread::get_id()) id = {};
    });
  }
  CHECK(ids[0] == std::this_thread::get_id());
  CHECK(std::set<std::thread::id>(ids.begin(), ids.end()).size() == 3);
  CHECK(ids[1] != std::thread::id{});
  CHECK(ids[2] != std::thread::id{});
}

#if defined(__SSE2__)
TEST_CASE("threads work in the standard floating-point mode, whatever the mode of their creator") {
  unsigned const before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, denormals are zero: what fast-math programs start with
  thread_pool pool(3);
  _mm_setcsr(before);
  std::vector<unsigned> modes(3, 0);
  pool.parallel(300, 1, [&](index, index, int thread) { modes[static_cast<std::size_t>(thread)] = _mm_getcsr(); });
  CHECK((modes[1] & 0xffc0u) == 0x1f80u);
  CHECK((modes[2] & 0xffc0u) == 0x1f80u);
}
#endif

}  // namespace
