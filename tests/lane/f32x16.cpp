// SPDX-License-Identifier: Apache-2.0
// Tests of the AVX-512 lane.
#include "zoadam/lane/f32x16.hpp"

#include <string>

#include "suite.hpp"

#if defined(ZOADAM_HAS_AVX512)
TEST_CASE("f32x16: every function, bit for bit") { lane_suite::everything<zoadam::f32x16>(); }
#else
TEST_CASE("f32x16: this build has no AVX-512, and the header declares nothing") {
  MESSAGE("not compiled for AVX-512");
  CHECK(std::string(zoadam::isa::native::name) != "avx512");
}
#endif
