// SPDX-License-Identifier: Apache-2.0
// Two translation units with different instruction sets, linked: no kernel of one takes the place of the other's.
#include <doctest/doctest.h>

#include <string>

#include "odr/run.hpp"
#include "zoadam/zoadam.hpp"

TEST_CASE("units for different instruction sets live in one program and agree in every bit") {
  odr::result const native = odr::run_native(), scalar = odr::run_scalar();
  CHECK(native.instruction_set == std::string(zoadam::isa::native::name));
  CHECK(scalar.instruction_set == std::string("scalar"));
  CHECK(native.hash == scalar.hash);
  CHECK(native.first == scalar.first);
  CHECK(native.first < 1.0f);
}

TEST_CASE("backends of different instruction sets are different types") {
  static_assert(!std::is_same_v<zoadam::basic_cpu_backend<zoadam::isa::scalar>,
                                zoadam::basic_cpu_backend<zoadam::isa::avx512>>);
  static_assert(std::is_same_v<zoadam::cpu_backend, zoadam::basic_cpu_backend<zoadam::isa::native>>);
}
