// SPDX-License-Identifier: Apache-2.0
// Sums in an order that every backend follows: 128 partial sums, then neighbours pairwise.
#pragma once

#include "zoadam/config.hpp"
#include "zoadam/lane/f32.hpp"
#include "zoadam/lane/f64.hpp"
#include "zoadam/lane/lane.hpp"

namespace zoadam {

/// Elements of a block at most; longer groups are summed block by block.
inline constexpr index sum_block = 2048;
/// Partial sums of a block: element k goes into partial k mod 128.
inline constexpr index sum_partials = 128;

/// |x|, for norms and scales of the first kind.
struct abs_term {
  template <class L>
  ZOADAM_INLINE L operator()(L x) const noexcept {
    return abs(x);
  }
};

/// x, where terms are summed as they are.
struct plain_term {
  template <class L>
  ZOADAM_INLINE L operator()(L x) const noexcept {
    return x;
  }
};

/// x * x, for norms and scales of the second kind.
struct square_term {
  template <class L>
  ZOADAM_INLINE L operator()(L x) const noexcept {
    return x * x;
  }
};

namespace detail {

/// Partials [0, 8 * width) of the rows at x, summed over rows, then reduced to one lane by neighbours.
template <class L, class Term>
ZOADAM_INLINE L sum_columns(float const* x, index rows, Term term) noexcept {
  constexpr index w = L::width;
  L a0(0.0f), a1(0.0f), a2(0.0f), a3(0.0f), a4(0.0f), a5(0.0f), a6(0.0f), a7(0.0f);
  for (index row = 0; row < rows; ++row, x += sum_partials) {
    a0 = a0 + term(L::load(x));
    a1 = a1 + term(L::load(x + w));
    a2 = a2 + term(L::load(x + 2 * w));
    a3 = a3 + term(L::load(x + 3 * w));
    a4 = a4 + term(L::load(x + 4 * w));
    a5 = a5 + term(L::load(x + 5 * w));
    a6 = a6 + term(L::load(x + 6 * w));
    a7 = a7 + term(L::load(x + 7 * w));
  }
  return pair_sum(pair_sum(pair_sum(a0, a1), pair_sum(a2, a3)), pair_sum(pair_sum(a4, a5), pair_sum(a6, a7)));
}

}  // namespace detail

/// Sum of term(x[k]) over one block, in the order of the contract.
///
/// @param x     the block; readable and zero up to the next multiple of 128 elements
/// @param n     elements of the block, 1 <= n <= 2048
/// @param term  lane -> lane, with term(0) = +0
///
/// Shape:     (n) -> ()
/// Accuracy:  bit-equal on every instruction set and under every flag     tested: tests/lane/sum.cpp
/// Errors:    none
/// Execution: host; no allocation
template <class L, class Term>
ZOADAM_INLINE float block_sum(float const* x, index n, Term term) noexcept {
  constexpr index span = 8 * L::width;
  constexpr index sweeps = sum_partials / span;
  index const rows = (n + sum_partials - 1) / sum_partials;
  if constexpr (sweeps == 1) {
    L r = detail::sum_columns<L>(x, rows, term);
    for (int left = L::width; left > 1; left /= 2) r = pair_sum(r, r);
    return r.first();
  } else {
    L r[sweeps];
    for (index s = 0; s < sweeps; ++s) r[s] = detail::sum_columns<L>(x + s * span, rows, term);
    for (index left = sweeps / 2; left > 0; left /= 2) {
      for (index s = 0; s < left; ++s) r[s] = pair_sum(r[2 * s], r[2 * s + 1]);
    }
    for (int left = L::width; left > 1; left /= 2) r[0] = pair_sum(r[0], r[0]);
    return r[0].first();
  }
}

/// Sum of n block sums by the same scheme in float64; 0 for n = 0. `Isa` keeps translation units apart.
template <class Isa = isa::native>
double pairwise_sum(float const* block_sums, index n) noexcept {
  f64 p[sum_partials];
  for (f64& partial : p) partial = f64(0.0);
  for (index k = 0; k < n; ++k) p[k % sum_partials] = p[k % sum_partials] + f64(f32(block_sums[k]));
  for (index stride = 1; stride < sum_partials; stride *= 2) {
    for (index i = 0; i < sum_partials; i += 2 * stride) p[i] = p[i] + p[i + stride];
  }
  return p[0].v;
}

/// Scale of a group: the mean of magnitudes whose sum is given; 0 without elements.
ZOADAM_INLINE float group_scale_l1(double sum, index count) noexcept {
  if (count == 0 || sum == 0.0) return 0.0f;
  return (f64(sum) / f64(static_cast<double>(count))).to_float();
}

/// Scale of a group: the root of the mean of squares whose sum is given; 0 without elements.
ZOADAM_INLINE float group_scale_l2(double sum, index count) noexcept {
  return sqrt(f32(group_scale_l1(sum, count))).v;
}

}  // namespace zoadam
