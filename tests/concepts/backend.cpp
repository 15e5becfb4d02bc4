// SPDX-License-Identifier: Apache-2.0
// The concept of a backend: an archetype, and archetypes with one defect each.
#include "zoadam/concepts/backend.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using zoadam::index;

struct archetype {
  std::vector<std::byte> allocate(index bytes) { return std::vector<std::byte>(static_cast<std::size_t>(bytes)); }
  void reserve(index elements) { elements_ = elements; }
  index workspace_bytes() const noexcept { return 4 * elements_; }

 private:
  index elements_ = 0;
};
static_assert(zoadam::backend<archetype>);

struct allocates_floats : archetype {
  std::vector<float> allocate(index n) { return std::vector<float>(static_cast<std::size_t>(n)); }
};
static_assert(!zoadam::allocates<allocates_floats> && !zoadam::backend<allocates_floats>);

struct allocates_nothing : archetype {
  void allocate(index) {}
};
static_assert(!zoadam::allocates<allocates_nothing> && !zoadam::backend<allocates_nothing>);

struct reserves_nothing : archetype {
  void reserve() {}
};
static_assert(!zoadam::has_workspace<reserves_nothing> && !zoadam::backend<reserves_nothing>);

struct counts_in_int : archetype {
  int workspace_bytes() const noexcept { return 0; }
};
static_assert(!zoadam::has_workspace<counts_in_int> && !zoadam::backend<counts_in_int>);

struct count_may_throw : archetype {
  index workspace_bytes() const { return 0; }
};
static_assert(!zoadam::has_workspace<count_may_throw> && !zoadam::backend<count_may_throw>);

struct immovable : archetype {
  immovable(immovable&&) = delete;
};
static_assert(!zoadam::backend<immovable>);

TEST_CASE("the archetype's memory is what the concept asks for") {
  archetype backend;
  auto const memory = backend.allocate(100);
  CHECK(memory.data() != nullptr);
  for (std::byte b : memory) CHECK(b == std::byte{0});
  backend.reserve(10);
  CHECK(backend.workspace_bytes() == 40);
}

}  // namespace
