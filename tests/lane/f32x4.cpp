// SPDX-License-Identifier: Apache-2.0
// Tests of the SSE2 lane.
#include "zoadam/lane/f32x4.hpp"

#include <string>

#include "suite.hpp"

#if defined(ZOADAM_HAS_SSE2)
TEST_CASE("f32x4: every function, bit for bit") { lane_suite::everything<zoadam::f32x4>(); }
#else
TEST_CASE("f32x4: this build has no SSE2, and the header declares nothing") {
  MESSAGE("not compiled for SSE2");
  CHECK(std::string(zoadam::isa::native::name) != "sse2");
}
#endif
