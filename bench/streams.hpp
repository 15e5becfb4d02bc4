// SPDX-License-Identifier: Apache-2.0
// The yardstick of every bench: a loop that moves the same streams as the loop under test and computes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "zoadam/lane/lane.hpp"

namespace bench {

using zoadam::index;
using lane = zoadam::lane_t<zoadam::isa::native>;

/// Takes a register in, so that its load has to happen.
ZOADAM_INLINE void consume(lane const& value) noexcept { asm volatile("" : : "v"(value.v)); }

/// Streams of one loop: float32 arrays that are only read, read and written in place, only written; and rows of bits,
/// one 32-bit word per 32 elements.
template <std::size_t Reads, std::size_t InPlace, std::size_t Writes, std::size_t RowsIn = 0, std::size_t RowsOut = 0>
struct streams {
  std::array<float const*, Reads> reads{};
  std::array<float*, InPlace> in_place{};
  std::array<float*, Writes> writes{};
  std::array<std::uint32_t const*, RowsIn> rows_in{};
  std::array<std::uint32_t*, RowsOut> rows_out{};

  /// Bytes of memory traffic per element; a stream that is read and written counts as both.
  static constexpr double bytes = 4.0 * (Reads + 2 * InPlace + Writes) + (RowsIn + RowsOut) / 8.0;

  /// Reads and writes elements [first, last), both multiples of 32. Arrays in place keep their values; arrays that
  /// are only written take those of the first array that is read.
  void copy(index first, index last) const noexcept {
    for (index i = first; i < last; i += 32) {
      for (index j = i; j < i + 32; j += lane::width) move(j);
      std::uint32_t word = 0;
      for (std::uint32_t const* row : rows_in) word ^= row[i / 32];
      asm volatile("" : "+r"(word));
      for (std::uint32_t* row : rows_out) row[i / 32] = word;
    }
  }

 private:
  ZOADAM_INLINE void move(index j) const noexcept {
    lane value(0.0f);
    each<Reads>([&](auto s) ZOADAM_LAMBDA_INLINE {
      value = lane::load(reads[s] + j);
      consume(value);
    });
    each<InPlace>([&](auto s) ZOADAM_LAMBDA_INLINE {
      value = lane::load(in_place[s] + j);
      value.store(in_place[s] + j);
    });
    each<Writes>([&](auto s) ZOADAM_LAMBDA_INLINE { value.store(writes[s] + j); });
  }
  template <std::size_t N, class F>
  ZOADAM_INLINE static void each(F f) noexcept {
    [&]<std::size_t... S>(std::index_sequence<S...>) ZOADAM_LAMBDA_INLINE {
      (f(std::integral_constant<std::size_t, S>{}), ...);
    }
    (std::make_index_sequence<N>{});
  }
};

}  // namespace bench
