// SPDX-License-Identifier: Apache-2.0
// The lane types that the target has, the map from instruction set to lane type, and their concept.
#pragma once

#include <concepts>
#include <cstdint>

#include "zoadam/config.hpp"
#include "zoadam/lane/f32.hpp"
#include "zoadam/lane/f32x16.hpp"
#include "zoadam/lane/f32x4.hpp"
#include "zoadam/lane/f32x8.hpp"

namespace zoadam {

/// Truth values of a lane; bit k belongs to element k.
template <class M>
concept lane_mask = requires(M const m, std::uint32_t bits) {
  { M::from_bits(bits) }
  noexcept->std::same_as<M>;
  { m.bits() }
  noexcept->std::same_as<std::uint32_t>;
  { m.all() }
  noexcept->std::same_as<bool>;
  { m.any() }
  noexcept->std::same_as<bool>;
  { m.count() }
  noexcept->std::same_as<int>;
  { m& m }
  noexcept->std::same_as<M>;
  { m | m }
  noexcept->std::same_as<M>;
  { !m }
  noexcept->std::same_as<M>;
};

template <class L>
concept lane_memory = requires(L const a, float x, float const* in, float* out, int n) {
  { L(x) }
  noexcept;
  { L::load(in) }
  noexcept->std::same_as<L>;
  { L::load(in, n) }
  noexcept->std::same_as<L>;
  { a.store(out) }
  noexcept;
  { a.store(out, n) }
  noexcept;
  { a.first() }
  noexcept->std::same_as<float>;
};

template <class L>
concept lane_arithmetic = requires(L const a, L const b) {
  { a + b }
  noexcept->std::same_as<L>;
  { a - b }
  noexcept->std::same_as<L>;
  { a* b }
  noexcept->std::same_as<L>;
  { a / b }
  noexcept->std::same_as<L>;
  { -a }
  noexcept->std::same_as<L>;
  { abs(a) }
  noexcept->std::same_as<L>;
  { sqrt(a) }
  noexcept->std::same_as<L>;
  { min(a, b) }
  noexcept->std::same_as<L>;
  { max(a, b) }
  noexcept->std::same_as<L>;
  { pair_sum(a, b) }
  noexcept->std::same_as<L>;
};

template <class L>
concept lane_selection = requires(L const a, L const b, typename L::mask m, float threshold, std::uint32_t bits) {
  { less(a, b) }
  noexcept->std::same_as<typename L::mask>;
  { greater(a, b) }
  noexcept->std::same_as<typename L::mask>;
  { negative(a) }
  noexcept->std::same_as<typename L::mask>;
  { nonzero(a) }
  noexcept->std::same_as<typename L::mask>;
  { any_bit(a) }
  noexcept->std::same_as<typename L::mask>;
  { exceeds(a, bits) }
  noexcept->std::same_as<typename L::mask>;
  { select(m, a, b) }
  noexcept->std::same_as<L>;
  { with_sign(a, m) }
  noexcept->std::same_as<L>;
  { flush(a, threshold) }
  noexcept->std::same_as<L>;
};

/// A register of float32 with the only arithmetic that kernels use.
template <class L>
concept lane = lane_mask<typename L::mask> && lane_memory<L> && lane_arithmetic<L> && lane_selection<L> && requires {
  typename L::isa;
  requires L::width >= 1 && L::width <= 16;
};

/// The lane type of an instruction set that the translation unit is compiled for.
template <class Isa>
struct lane_of {
  static_assert(sizeof(Isa) == 0,
                "zoadam: this translation unit is not compiled for that instruction set: give the "
                "compiler its flag (-mavx2; -mavx512f -mavx512bw -mavx512vl -mavx512dq)");
  using type = void;
};

template <>
struct lane_of<isa::scalar> {
  using type = f32;
};
static_assert(lane<f32>);

#if defined(ZOADAM_HAS_SSE2)
template <>
struct lane_of<isa::sse2> {
  using type = f32x4;
};
static_assert(lane<f32x4>);
#endif

#if defined(ZOADAM_HAS_AVX2)
template <>
struct lane_of<isa::avx2> {
  using type = f32x8;
};
static_assert(lane<f32x8>);
#endif

#if defined(ZOADAM_HAS_AVX512)
template <>
struct lane_of<isa::avx512> {
  using type = f32x16;
};
static_assert(lane<f32x16>);
#endif

template <class Isa>
using lane_t = typename lane_of<Isa>::type;

}  // namespace zoadam
