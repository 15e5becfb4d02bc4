// SPDX-License-Identifier: Apache-2.0
// The concept of a sync policy: an archetype, and archetypes with one defect each.
#include "zoadam/concepts/sync.hpp"

#include <doctest/doctest.h>

#include "zoadam/aliases.hpp"

namespace {

struct archetype {
  bool due(zoadam::clock const& c) const noexcept { return c.step % 3 == 0; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("archetype");
  }
};
static_assert(zoadam::sync<archetype>);

struct answers_in_numbers : archetype {
  int due(zoadam::clock const&) const noexcept { return 1; }
};
static_assert(!zoadam::tells_due<answers_in_numbers> && !zoadam::sync<answers_in_numbers>);

struct may_throw : archetype {
  bool due(zoadam::clock const&) const { return true; }
};
static_assert(!zoadam::tells_due<may_throw> && !zoadam::sync<may_throw>);

struct has_a_memory : archetype {
  bool due(zoadam::clock const&) noexcept { return true; }
};
static_assert(!zoadam::tells_due<has_a_memory> && !zoadam::sync<has_a_memory>);

struct sets_the_clock : archetype {
  bool due(zoadam::clock& c) const noexcept { return ++c.step > 0; }
};
static_assert(!zoadam::tells_due<sets_the_clock> && !zoadam::sync<sets_the_clock>);

struct nameless {
  bool due(zoadam::clock const&) const noexcept { return true; }
};
static_assert(zoadam::tells_due<nameless> && !zoadam::sync<nameless>);

TEST_CASE("the archetype decides when an optimizer exchanges") {
  using namespace zoadam;
  std::vector<float> x(10, 1.0f), g(10, 0.5f);
  zero_one_adam<single_transport, cpu_backend, archetype> optimizer({{"x", {}, x, g}}, {}, single_transport{});
  for (int t = 1; t <= 9; ++t) {
    CHECK(optimizer.will_exchange() == (t % 3 == 0));
    CHECK(optimizer.step(0.1).exchanged == (t % 3 == 0));
  }
}

}  // namespace
