// SPDX-License-Identifier: Apache-2.0
// Tests of the scalar lane.
#include "zoadam/lane/f32.hpp"

#include "suite.hpp"

TEST_CASE("f32: every function, bit for bit") { lane_suite::everything<zoadam::f32>(); }
