// SPDX-License-Identifier: Apache-2.0
// Tests of the lane concept and of the map from instruction sets to lanes.
#include "zoadam/lane/lane.hpp"

#include <concepts>
#include <type_traits>

#include <doctest/doctest.h>

namespace lane_archetypes {

// The smallest lane, and lanes with one defect each.
struct archetype_mask {
  static archetype_mask from_bits(std::uint32_t) noexcept { return {}; }
  std::uint32_t bits() const noexcept { return 0; }
  bool all() const noexcept { return false; }
  bool any() const noexcept { return false; }
  int count() const noexcept { return 0; }
  friend archetype_mask operator&(archetype_mask a, archetype_mask) noexcept { return a; }
  friend archetype_mask operator|(archetype_mask a, archetype_mask) noexcept { return a; }
  friend archetype_mask operator!(archetype_mask a) noexcept { return a; }
};

enum class defect { none, width, may_throw, no_root, bool_comparison };

template <defect D>
struct archetype {
  using isa = zoadam::isa::scalar;
  using mask = archetype_mask;
  static constexpr int width = D == defect::width ? 0 : 1;

  explicit archetype(float) noexcept {}
  static archetype load(float const*) noexcept { return archetype(0.0f); }
  static archetype load(float const*, int) noexcept { return archetype(0.0f); }
  void store(float*) const noexcept {}
  void store(float*, int) const noexcept {}
  float first() const noexcept { return 0.0f; }

  friend archetype operator+(archetype a, archetype) noexcept(D != defect::may_throw) { return a; }
  friend archetype operator-(archetype a, archetype) noexcept { return a; }
  friend archetype operator*(archetype a, archetype) noexcept { return a; }
  friend archetype operator/(archetype a, archetype) noexcept { return a; }
  friend archetype operator-(archetype a) noexcept { return a; }
  friend archetype abs(archetype a) noexcept { return a; }
  friend archetype sqrt(archetype a) noexcept requires(D != defect::no_root) { return a; }
  friend archetype min(archetype a, archetype) noexcept { return a; }
  friend archetype max(archetype a, archetype) noexcept { return a; }
  friend archetype pair_sum(archetype a, archetype) noexcept { return a; }

  using truth = std::conditional_t<D == defect::bool_comparison, bool, mask>;
  friend truth less(archetype, archetype) noexcept { return {}; }
  friend mask greater(archetype, archetype) noexcept { return {}; }
  friend mask negative(archetype) noexcept { return {}; }
  friend mask nonzero(archetype) noexcept { return {}; }
  friend mask any_bit(archetype) noexcept { return {}; }
  friend mask exceeds(archetype, std::uint32_t) noexcept { return {}; }
  friend archetype select(mask, archetype a, archetype) noexcept { return a; }
  friend archetype with_sign(archetype a, mask) noexcept { return a; }
  friend archetype flush(archetype a, float) noexcept { return a; }
};

template <class Isa>
concept has_lane = requires {
  typename zoadam::lane_t<Isa>;
};

template <class Isa, int Width>
bool matches() {
  if constexpr (has_lane<Isa>) {
    using lane = zoadam::lane_t<Isa>;
    return zoadam::lane<lane> && std::same_as<typename lane::isa, Isa> && lane::width == Width;
  } else {
    return false;
  }
}

}  // namespace lane_archetypes

using namespace lane_archetypes;

TEST_CASE("lane: the concept takes the archetype and refuses each defect") {
  CHECK(zoadam::lane<archetype<defect::none>>);
  CHECK_FALSE(zoadam::lane<archetype<defect::width>>);
  CHECK_FALSE(zoadam::lane<archetype<defect::may_throw>>);
  CHECK_FALSE(zoadam::lane<archetype<defect::no_root>>);
  CHECK_FALSE(zoadam::lane<archetype<defect::bool_comparison>>);
  CHECK_FALSE(zoadam::lane_memory<float>);
}

TEST_CASE("lane: each instruction set of the target has its lane, others have none") {
  CHECK(matches<zoadam::isa::scalar, 1>());
#if defined(ZOADAM_HAS_SSE2)
  CHECK(matches<zoadam::isa::sse2, 4>());
#else
  CHECK_FALSE(has_lane<zoadam::isa::sse2>);
#endif
#if defined(ZOADAM_HAS_AVX2)
  CHECK(matches<zoadam::isa::avx2, 8>());
#else
  CHECK_FALSE(has_lane<zoadam::isa::avx2>);
#endif
#if defined(ZOADAM_HAS_AVX512)
  CHECK(matches<zoadam::isa::avx512, 16>());
#else
  CHECK_FALSE(has_lane<zoadam::isa::avx512>);
#endif
  CHECK(has_lane<zoadam::isa::native>);
}
