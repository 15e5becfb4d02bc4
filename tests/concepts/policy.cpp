// SPDX-License-Identifier: Apache-2.0
// The concept of a policy: an archetype, and archetypes with one defect each.
#include "zoadam/concepts/policy.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

struct archetype {
  template <class Sink>
  void describe(Sink& sink) const {
    sink("archetype");
  }
};
static_assert(zoadam::policy<archetype>);

struct nameless {};
static_assert(!zoadam::describes_itself<nameless> && !zoadam::policy<nameless>);

struct changes_itself {
  template <class Sink>
  void describe(Sink& sink) {
    sink("not const");
  }
};
static_assert(!zoadam::describes_itself<changes_itself> && !zoadam::policy<changes_itself>);

struct owns_memory : archetype {
  std::string text;
};
static_assert(zoadam::describes_itself<owns_memory> && !zoadam::policy<owns_memory>);

struct not_copyable : archetype {
  not_copyable() = default;
  not_copyable(not_copyable const&) = delete;
};
static_assert(!zoadam::policy<not_copyable>);

struct needs_arguments : archetype {
  explicit needs_arguments(int) {}
};
static_assert(!zoadam::policy<needs_arguments>);

TEST_CASE("a policy's description reaches both sinks") {
  zoadam::detail::namer name;
  archetype{}.describe(name);
  CHECK(name.text() == "archetype");
  zoadam::detail::hasher hash, other;
  archetype{}.describe(hash);
  CHECK(hash.value() != other.value());
}

}  // namespace
