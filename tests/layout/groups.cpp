// SPDX-License-Identifier: Apache-2.0
// Which types are groups, and how they are told apart.
#include "zoadam/layout/groups.hpp"

#include <doctest/doctest.h>

#include "zoadam/detail/describe.hpp"

namespace {

struct not_groups {};

static_assert(zoadam::groups<zoadam::block<>> && zoadam::groups<zoadam::block<32>>);
static_assert(zoadam::groups<zoadam::per_tensor> && zoadam::groups<zoadam::whole>);
static_assert(!zoadam::groups<not_groups> && !zoadam::groups<int> && !zoadam::groups<void>);
static_assert(zoadam::block<>::size == 2048);
static_assert(zoadam::detail::block_size<zoadam::block<64>> == 64);
static_assert(zoadam::detail::block_size<zoadam::whole> == 0);

template <class Groups>
std::uint64_t hash(Groups groups) {
  zoadam::detail::hasher sink;
  groups.describe(sink);
  return sink.value();
}

TEST_CASE("different groups have different hashes, so that ranks cannot mix them") {
  CHECK(hash(zoadam::block<>{}) == hash(zoadam::block<2048>{}));
  CHECK(hash(zoadam::block<>{}) != hash(zoadam::block<1024>{}));
  CHECK(hash(zoadam::per_tensor{}) != hash(zoadam::whole{}));
  CHECK(hash(zoadam::block<>{}) != hash(zoadam::whole{}));
}

}  // namespace
