// SPDX-License-Identifier: Apache-2.0
// Threads that encode a block together. On the CPU that is one; devices have teams of their own with the same
// members.
#pragma once

#include "zoadam/lane/sum.hpp"

namespace zoadam::detail {

/// Isa: instruction set of its loops.
template <class Isa>
struct lone_thread {
  static constexpr int rank() noexcept { return 0; }
  static constexpr int size() noexcept { return 1; }
  /// What others have written before it can be read after it.
  static void sync() noexcept {}
  /// Sum of everybody's number, and of those of lower rank.
  static int total(int mine) noexcept { return mine; }
  static int before(int) noexcept { return 0; }
  /// How many magnitudes, as integers, are above `bits`.
  static int count_above(float const* c, int n, std::uint32_t bits) noexcept {
    using lane = lane_t<Isa>;
    int count = 0, i = 0;
    for (; i + lane::width <= n; i += lane::width) count += exceeds(lane::load(c + i), bits).count();
    if (i < n) count += exceeds(lane::load(c + i, n - i), bits).count();
    return count;
  }
  /// Sum of n values in float64, in the order of every sum.
  static double sum(float const* x, int n) noexcept { return pairwise_sum<Isa>(x, n); }
};

}  // namespace zoadam::detail
