// SPDX-License-Identifier: Apache-2.0
// Groups: which elements share one scale. A compile-time choice of the quantizer.
#pragma once

#include <concepts>

#include "zoadam/config.hpp"

namespace zoadam {

/// Blocks of N elements, counted from each tensor's start and cut at its end. N: a multiple of 32.
template <index N = 2048>
struct block {
  static_assert(N >= 32 && N % 32 == 0, "zoadam: block<N>: N must be a positive multiple of 32");
  static constexpr index size = N;
  template <class Sink>
  void describe(Sink& sink) const {
    sink("block", N);
  }
};

/// One group for each tensor.
struct per_tensor {
  template <class Sink>
  void describe(Sink& sink) const {
    sink("tensor");
  }
};

/// One group: all tensors in order, without gaps.
struct whole {
  template <class Sink>
  void describe(Sink& sink) const {
    sink("whole");
  }
};

namespace detail {
template <class>
inline constexpr index block_size = 0;  // 0: groups are not blocks
template <index N>
inline constexpr index block_size<block<N>> = N;
}  // namespace detail

template <class Groups>
concept groups = std::same_as<Groups, per_tensor> || std::same_as<Groups, whole> ||(detail::block_size<Groups> > 0);

}  // namespace zoadam
