// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backend, and its counts over threads. What it does with tiles shows in tests/backend/cpu.cpp.
#include "zoadam/backend/cpu_tiles.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

namespace {

using namespace zoadam;

struct opened : detail::cpu_tiles<isa::native> {
  explicit opened(int threads) : cpu_tiles(threads) {}
  using cpu_tiles::buffer, cpu_tiles::counted, cpu_tiles::pool_, cpu_tiles::reserve_tiles, cpu_tiles::tally_of,
      cpu_tiles::tile_bytes;
};

TEST_CASE("memory is zeroed, aligned to 64 bytes, and nothing where nothing is asked for") {
  for (zoadam::index bytes : {1, 63, 64, 4097}) {
    detail::cpu_memory memory(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0);
    for (zoadam::index i = 0; i < bytes; ++i) CHECK(memory.data()[i] == std::byte{0});
    std::byte* const at = memory.data();
    detail::cpu_memory const moved = std::move(memory);
    CHECK(moved.data() == at);
  }
  CHECK(detail::cpu_memory(0).data() == nullptr);
}

TEST_CASE("every thread has buffers of its own, of whole rows of partial sums") {
  opened tiles(3);
  tiles.reserve_tiles(2000);
  zoadam::index const capacity = 2048;
  CHECK(tiles.tile_bytes() % (3 * capacity * 4) == 0);
  CHECK(tiles.buffer(1, 0) - tiles.buffer(0, 0) == tiles.tile_bytes() / 4 / 3);
  CHECK(tiles.buffer(0, 1) - tiles.buffer(0, 0) == capacity);
}

TEST_CASE("counts add up over the threads and start from zero each time") {
  opened tiles(3);
  for (int round = 0; round < 2; ++round) {
    tiles.reserve_tiles(2048);
    detail::tally const all = tiles.counted([&] {
      tiles.pool_.parallel(1000, 1, [&](zoadam::index first, zoadam::index last, int thread) {
        tiles.tally_of(thread).active += last - first;
        tiles.tally_of(thread).waiting += 1;
        tiles.tally_of(thread).bad = last == 1000;
      });
    });
    CHECK(all.active == 1000);
    CHECK(all.waiting == 3);
    CHECK(all.bad);
  }
}

}  // namespace
