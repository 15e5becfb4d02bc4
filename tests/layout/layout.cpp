// SPDX-License-Identifier: Apache-2.0
// The flat index space, and the lists of tensors that it refuses.
#include "zoadam/layout/layout.hpp"

#include <doctest/doctest.h>

#include <random>

namespace {

using zoadam::index;
using zoadam::tensor;

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }

// Tensors over memory that nobody touches: a layout looks at addresses only.
std::vector<tensor> tensors_of(std::vector<index> const& sizes) {
  std::vector<tensor> list;
  std::uintptr_t at = 0x100000;
  for (index n : sizes) {
    auto* const x = reinterpret_cast<float*>(at);
    auto const* const g = reinterpret_cast<float const*>(at + nth(n) * 4);
    list.push_back({"t" + std::to_string(list.size()), {}, {x, nth(n)}, std::span<float const>(g, nth(n))});
    at += nth(n) * 8 + 64;
  }
  return list;
}

std::string refusal(std::vector<tensor> list, index groups = 1) {
  try {
    zoadam::layout const l(std::move(list), groups);
  } catch (zoadam::argument_error const& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("find() is the tensor that holds a position; empty tensors hold none") {
  std::mt19937 random(4);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<index> sizes;
    for (int t = 0; t < 1 + trial % 9; ++t) sizes.push_back(static_cast<index>(random() % 3 * (random() % 5)));
    zoadam::layout const l(tensors_of(sizes), 1);
    std::vector<index> holder;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      CHECK(l.first(static_cast<index>(t)) == static_cast<index>(holder.size()));
      holder.insert(holder.end(), nth(sizes[t]), static_cast<index>(t));
    }
    REQUIRE(l.elements() == static_cast<index>(holder.size()));
    CHECK(l.size() == static_cast<index>(sizes.size()));
    for (index i = 0; i < l.elements(); ++i) CHECK(l.find(i) == holder[nth(i)]);
  }
}

TEST_CASE("blocks of sums begin with each tensor; empty tensors have none") {
  zoadam::layout const l(tensors_of({0, 1, 2048, 0, 2049, 5000}), 1);
  CHECK(l.blocks() == 7);
  std::vector<index> first, of;
  for (index t = 0; t <= l.size(); ++t) first.push_back(l.first_block(t));
  for (index b = 0; b < l.blocks(); ++b) of.push_back(l.find_block(b));
  CHECK(first == std::vector<index>{0, 0, 1, 2, 2, 4, 7});
  CHECK(of == std::vector<index>{1, 2, 4, 4, 5, 5, 5});
}

TEST_CASE("case 17: an empty tensor among sixty, in the middle and at the end") {
  for (std::size_t const empty : {std::size_t{35}, std::size_t{59}}) {
    std::vector<index> sizes(60, 10);
    sizes[empty] = 0;
    zoadam::layout const l(tensors_of(sizes), 1);
    CHECK(l.elements() == 590);
    for (index i = 0; i < 590; ++i) CHECK(l.find(i) != static_cast<index>(empty));
  }
}

TEST_CASE("case 18: positions beyond 2^31") {
  index const n = (index{1} << 31) + 5;
  zoadam::layout const l(tensors_of({3, n}), 1);
  CHECK(l.elements() == n + 3);
  CHECK(l.find(n + 2) == 1);
  CHECK(l.find(2) == 0);
}

TEST_CASE("refusals name the tensor and the rule") {
  CHECK(refusal({}).find("the list is empty") != std::string::npos);
  CHECK(refusal(tensors_of({0})).empty());

  auto list = tensors_of({4, 6});
  list[1].shape = {2, 2};
  CHECK(refusal(list).find("'t1': the shape does not multiply to the span's size") != std::string::npos);
  list[1].shape = {-2, -3};
  CHECK_FALSE(refusal(list).empty());
  list[1].shape = {index{1} << 40, index{1} << 40, 0};
  CHECK_FALSE(refusal(list).empty());
  list[1].shape = {2, 3};
  CHECK(refusal(list).empty());

  list[0].gradient = std::span<float const>(reinterpret_cast<float const*>(0x900000), 5);
  CHECK(refusal(list).find("'t0': gradient has 5 elements, parameter 4") != std::string::npos);
  list[0].gradient = {};
  CHECK(refusal(list).empty());

  list[0].parameter = {static_cast<float*>(nullptr), 4};
  CHECK(refusal(list).find("'t0': parameter is null") != std::string::npos);

  list = tensors_of({4, 6});
  list[1].group = 1;
  CHECK(refusal(list).find("'t1': group 1 of 1") != std::string::npos);
  CHECK(refusal(list, 2).empty());
  list[1].group = -1;
  CHECK_FALSE(refusal(list, 2).empty());

  list = tensors_of({4, 6});
  list[1].parameter = {reinterpret_cast<float*>(0x700002), 6};
  CHECK(refusal(list).find("'t1': misaligned span") != std::string::npos);
}

TEST_CASE("overlaps are refused, whichever spans they are between; shared gradients are not") {
  std::vector<float> memory(100);
  auto const span = [&](std::size_t first, std::size_t n) { return std::span<float>(memory).subspan(first, n); };
  auto const two = [&](std::span<float> x0, std::span<float> g0, std::span<float> x1, std::span<float> g1) {
    return refusal({{"first", {}, x0, g0}, {"second", {}, x1, g1}});
  };
  CHECK(two(span(0, 10), span(10, 10), span(20, 10), span(30, 10)).empty());
  CHECK(two(span(0, 10), span(50, 10), span(20, 10), span(50, 10)).empty());  // one gradient for both
  CHECK(two(span(0, 10), span(50, 10), span(20, 10), span(55, 10)).empty());
  CHECK_FALSE(two(span(0, 10), span(50, 10), span(9, 10), span(70, 10)).empty());   // parameters
  CHECK_FALSE(two(span(9, 10), span(50, 10), span(0, 10), span(70, 10)).empty());   // the other order
  CHECK_FALSE(two(span(0, 10), span(5, 10), span(20, 10), span(70, 10)).empty());   // a parameter and its gradient
  CHECK_FALSE(two(span(0, 10), span(50, 10), span(20, 10), span(5, 10)).empty());   // and another's
  CHECK_FALSE(two(span(10, 10), span(50, 10), span(30, 10), span(5, 10)).empty());  // reaching in from below
  // A long parameter that a later, shorter gradient hides from its neighbour.
  CHECK_FALSE(refusal({{"a", {}, span(0, 60), {}}, {"b", {}, span(70, 5), span(40, 5)}}).empty());
  std::string const text = two(span(0, 10), span(50, 10), span(9, 10), span(70, 10));
  CHECK(text.find("'first'") != std::string::npos);
  CHECK(text.find("'second'") != std::string::npos);
  CHECK(text.find("overlap") != std::string::npos);
}

TEST_CASE("layouts hash alike when order, names, sizes, shapes and groups agree") {
  auto const hash = [](std::vector<tensor> list) {
    zoadam::detail::hasher sink;
    zoadam::layout(std::move(list), 2).describe(sink);
    return sink.value();
  };
  auto const base = hash(tensors_of({4, 6}));
  CHECK(hash(tensors_of({4, 6})) == base);
  CHECK(hash(tensors_of({6, 4})) != base);
  CHECK(hash(tensors_of({4, 7})) != base);
  CHECK(hash(tensors_of({4, 6, 0})) != base);
  auto list = tensors_of({4, 6});
  list[0].name = "other";
  CHECK(hash(list) != base);
  list = tensors_of({4, 6});
  list[1].group = 1;
  CHECK(hash(list) != base);
  list = tensors_of({4, 6});
  list[1].shape = {2, 3};
  auto const shaped = hash(list);
  list[1].shape = {3, 2};
  CHECK(shaped != base);
  CHECK(hash(list) != shaped);
}

}  // namespace
