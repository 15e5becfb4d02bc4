// SPDX-License-Identifier: Apache-2.0
// Fields, their homes, and lists of them.
#include "zoadam/state/field.hpp"

#include <doctest/doctest.h>

namespace {

using namespace zoadam;

struct what {};
using first = fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::replica>>;
using second = fields<field<at::anchor_t, home::replica>, field<at::owner_error_t<what>, home::owner>>;
using all = detail::join<first, fields<>, second>;

TEST_CASE("field: counts by home") {
  static_assert(first::size == 2 && second::size == 2 && all::size == 4 && fields<>::size == 0);
  static_assert(all::count<home::worker> == 1 && all::count<home::replica> == 2 && all::count<home::owner> == 1);
  static_assert(fields<>::count<home::worker> == 0);
  CHECK(all::size == 4);
}

TEST_CASE("field: lists keep their order") {
  using expected = tags<at::momentum_t, at::variance_t, at::anchor_t, at::owner_error_t<what>>;
  static_assert(std::is_same_v<all::tags, expected>);
  static_assert(std::is_same_v<detail::join<>, fields<>>);
  static_assert(std::is_same_v<detail::at_home<all, home::replica>, tags<at::variance_t, at::anchor_t>>);
  static_assert(std::is_same_v<detail::at_home<all, home::owner>, tags<at::owner_error_t<what>>>);
  static_assert(std::is_same_v<detail::at_home<first, home::owner>, tags<>>);
  CHECK(at::worker_error_t<what>::name != at::owner_error_t<what>::name);
}

TEST_CASE("field: a value per tensor is told by its tag") {
  using with_scalar = detail::join<first, fields<tensor_field<at::trust_ratio_t>>>;
  static_assert(with_scalar::size == 3 && with_scalar::count<home::replica> == 1);  // per element
  static_assert(detail::is_tensor_scalar<at::trust_ratio_t> && !detail::is_tensor_scalar<at::momentum_t>);
  static_assert(std::is_same_v<detail::at_home<with_scalar, home::replica>, tags<at::variance_t, at::trust_ratio_t>>);
  CHECK(with_scalar::size == 3);
}

TEST_CASE("field: errors of different exchanges are different fields") {
  struct other {};
  static_assert(!std::is_same_v<at::worker_error_t<what>, at::worker_error_t<other>>);
  static_assert(!detail::contains<all::tags, at::owner_error_t<other>>);
  CHECK(detail::contains<all::tags, at::owner_error_t<what>>);
}

}  // namespace
