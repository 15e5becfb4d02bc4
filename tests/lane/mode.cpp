// SPDX-License-Identifier: Apache-2.0
// Tests of the floating-point mode guard.
#include "zoadam/lane/mode.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <doctest/doctest.h>

#include "zoadam/lane/f32.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

TEST_CASE("floating_point_mode: not copied, not moved") {
  CHECK_FALSE(std::copy_constructible<zoadam::floating_point_mode>);
  CHECK_FALSE(std::is_move_constructible_v<zoadam::floating_point_mode>);
}

#if defined(__SSE2__)

namespace {

// Bits of 2^-126 / 2 in the mode of the moment.
std::uint32_t half_of_smallest_normal() {
  float volatile x = 0x1p-126f;
  float const volatile r = (zoadam::f32(x) * zoadam::f32(0.5f)).v;
  float const volatile kept = r;
  return std::bit_cast<std::uint32_t>(float(kept));
}

constexpr unsigned flush_to_zero = 0x8000u, denormals_are_zero = 0x0040u, round_up = 0x4000u, standard = 0x1f80u;
constexpr unsigned sticky = 0x3fu;

}  // namespace

TEST_CASE("floating_point_mode: IEEE default inside, the caller's mode after") {
  unsigned const before = _mm_getcsr();
  for (unsigned callers : {standard, standard | flush_to_zero, standard | denormals_are_zero,
                           standard | flush_to_zero | denormals_are_zero | round_up, standard | 0x2000u}) {
    _mm_setcsr(callers);
    unsigned inside = 0, after = 0;
    std::uint32_t product = 0;
    {
      zoadam::floating_point_mode const mode;
      inside = _mm_getcsr();
      product = half_of_smallest_normal();
    }
    after = _mm_getcsr();
    std::uint32_t const product_after = half_of_smallest_normal();
    _mm_setcsr(before);
    CHECK(inside == standard);
    CHECK(product == 0x00400000u);
    CHECK((after & ~sticky) == callers);
    // the value shows that the modes differ, so that the comparison above says something
    CHECK(product_after == ((callers & flush_to_zero) != 0 ? 0u : 0x00400000u));
  }
  CHECK((_mm_getcsr() & ~sticky) == (before & ~sticky));
}

TEST_CASE("floating_point_mode: nests") {
  unsigned const before = _mm_getcsr();
  _mm_setcsr(standard | flush_to_zero);
  {
    zoadam::floating_point_mode const outer;
    { zoadam::floating_point_mode const inner; }
    CHECK((_mm_getcsr() & ~sticky) == standard);
  }
  CHECK((_mm_getcsr() & ~sticky) == (standard | flush_to_zero));
  _mm_setcsr(before);
}

#endif
