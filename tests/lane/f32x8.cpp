// SPDX-License-Identifier: Apache-2.0
// Tests of the AVX2 lane.
#include "zoadam/lane/f32x8.hpp"

#include <string>

#include "suite.hpp"

#if defined(ZOADAM_HAS_AVX2)
TEST_CASE("f32x8: every function, bit for bit") { lane_suite::everything<zoadam::f32x8>(); }
#else
TEST_CASE("f32x8: this build has no AVX2, and the header declares nothing") {
  MESSAGE("not compiled for AVX2");
  CHECK(std::string(zoadam::isa::native::name) != "avx2");
}
#endif
