// SPDX-License-Identifier: Apache-2.0
// What the user hands over.
#include "zoadam/layout/tensor.hpp"

#include <doctest/doctest.h>

namespace {

using zoadam::dtype;
using zoadam::gradient_view;

TEST_CASE("a gradient view knows its type, size and place") {
  std::vector<float> f(3);
  std::vector<float> const constant(4);
  std::vector<zoadam::bfloat16> b(5);
  std::vector<zoadam::float16> h(6);
  gradient_view const views[] = {std::span<float>(f), constant, std::span<zoadam::bfloat16 const>(b),
                                 std::span<zoadam::float16 const>(h), gradient_view{}};
  dtype const types[] = {dtype::float32, dtype::float32, dtype::bfloat16, dtype::float16, dtype::float32};
  zoadam::index const sizes[] = {3, 4, 5, 6, 0};
  void const* const places[] = {f.data(), constant.data(), b.data(), h.data(), nullptr};
  for (int i = 0; i < 5; ++i) {
    CHECK(views[i].type() == types[i]);
    CHECK(views[i].size() == sizes[i]);
    CHECK(views[i].data() == places[i]);
  }
}

TEST_CASE("a working view knows its type, size and place, and shows its elements by type") {
  std::vector<zoadam::bfloat16> b(5);
  std::vector<zoadam::float16> h(6);
  zoadam::working_view const of_b = b, of_h = std::span<zoadam::float16>(h), none;
  CHECK(of_b.type() == dtype::bfloat16);
  CHECK(of_h.type() == dtype::float16);
  CHECK(of_b.data() == b.data());
  CHECK(of_h.size() == 6);
  CHECK(none.size() == 0);
  int seen = 0;
  auto const see = [&](auto* first) { seen = std::is_same_v<decltype(first), zoadam::bfloat16*> ? 1 : 2; };
  none.visit(see);
  CHECK(seen == 0);
  of_b.visit(see);
  CHECK(seen == 1);
  of_h.visit(see);
  CHECK(seen == 2);
}

TEST_CASE("a tensor is written as name, shape, parameter, gradient") {
  std::vector<float> x(6), g(6);
  zoadam::tensor const t{"w", {2, 3}, x, g};
  CHECK(t.parameter.data() == x.data());
  CHECK(t.gradient.data() == g.data());
  CHECK(t.group == 0);
  zoadam::tensor const frozen{"w", {}, x, {}};
  CHECK(frozen.gradient.size() == 0);
}

TEST_CASE("a parameter group changes nothing by default") {
  zoadam::parameter_group const group;
  CHECK(group.weight_decay == 0.0);
  CHECK(group.lr_factor == 1.0);
}

}  // namespace
