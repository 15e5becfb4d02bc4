// SPDX-License-Identifier: Apache-2.0
// What is thrown, and that a check evaluates its message on failure only.
#include "zoadam/error.hpp"

#include <doctest/doctest.h>

#include <type_traits>

namespace {

static_assert(std::is_base_of_v<zoadam::error, zoadam::argument_error>);
static_assert(std::is_base_of_v<zoadam::error, zoadam::mismatch_error>);
static_assert(std::is_base_of_v<zoadam::error, zoadam::poisoned_error>);
static_assert(std::is_base_of_v<zoadam::error, zoadam::transport_error>);
static_assert(std::is_base_of_v<zoadam::transport_error, zoadam::timeout_error>);
static_assert(std::is_base_of_v<zoadam::transport_error, zoadam::aborted_error>);
static_assert(std::is_base_of_v<std::exception, zoadam::error>);

TEST_CASE("a failed check names the call and the rule, and nothing is evaluated where it holds") {
  int evaluated = 0;
  auto const rule = [&] {
    ++evaluated;
    return std::string("n must be even");
  };
  auto const check = [&](int n) { ZOADAM_EXPECTS(n % 2 == 0, "function", rule()); };
  check(2);
  CHECK(evaluated == 0);
  CHECK_THROWS_WITH_AS(check(3), "zoadam: function: n must be even", zoadam::argument_error);
  CHECK(evaluated == 1);
}

TEST_CASE("a transport error holds the native status") {
  CHECK(zoadam::transport_error("zoadam: call", 7).status == 7);
  CHECK(zoadam::timeout_error("zoadam: late").status == 0);
  CHECK(zoadam::timeout_error("zoadam: late").what() == std::string("zoadam: late"));
}

}  // namespace
