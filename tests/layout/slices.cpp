// SPDX-License-Identifier: Apache-2.0
// Slices of tensors against their indices.
#include "zoadam/layout/slices.hpp"

#include <doctest/doctest.h>

namespace {

using namespace zoadam;
using zoadam::index;
using shape_type = std::vector<index>;

// The slices of a tensor by the indices that `kept` axes have.
void check(shape_type const& shape, slicing const& s, std::vector<std::size_t> const& kept) {
  index const size = detail::product_of(shape, 0, shape.size());
  index slices = 1;
  for (std::size_t const axis : kept) slices *= shape[axis];
  CHECK(s.size() * slices == size);
  CHECK(size / s.period * s.count == slices);
  std::vector<index> seen(static_cast<std::size_t>(slices));
  for (index e = 0; e < size; ++e) {
    index expected = 0;
    for (std::size_t const axis : kept) {
      index const inner = detail::product_of(shape, axis + 1, shape.size());
      expected = expected * shape[axis] + e / inner % shape[axis];
    }
    REQUIRE(s.slice_of(e) == expected);
    REQUIRE(s.element(expected, seen[static_cast<std::size_t>(expected)]++) == e);
  }
  detail::placed_slicing placed{s, 10, slices, 0};
  for (index const first : {index{0}, size / 3}) {
    index next = first;
    detail::for_slice_runs(placed, first, size, [&](index i, index n, index place, index step) {
      REQUIRE(i == next);
      for (index j = 0; j < n; ++j) REQUIRE(place + j * step == 10 + s.slice_of(i + j));
      next += n;
    });
    CHECK(next == size);
  }
}

TEST_CASE("slices along and across axes") {
  for (shape_type const& shape :
       {shape_type{1}, shape_type{6}, shape_type{3, 5}, shape_type{5, 1}, shape_type{1, 5}, shape_type{2, 3, 4},
        shape_type{2, 1, 4}, shape_type{3, 2, 1, 5}, shape_type{1, 1}}) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      check(shape, along_axis(shape, axis), {axis});
      std::vector<std::size_t> others;
      for (std::size_t other = 0; other < shape.size(); ++other)
        if (other != axis) others.push_back(other);
      check(shape, across_axis(shape, axis), others);
    }
    if (shape.size() < 2) continue;
    std::vector<std::size_t> leading;
    for (std::size_t axis = 0; axis + 2 < shape.size(); ++axis) leading.push_back(axis);
    check(shape, across_matrix(shape), leading);
  }
}

}  // namespace
