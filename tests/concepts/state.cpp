// SPDX-License-Identifier: Apache-2.0
// The concept of a state: an archetype, and archetypes with one defect each.
#include "zoadam/concepts/state.hpp"

#include <doctest/doctest.h>

#include "zoadam/aliases.hpp"

namespace {

template <int Defect = 0>
struct archetype {
  using fields = std::conditional_t<Defect == 1, int, zoadam::fields<>>;
  void start(zoadam::clock&) const noexcept(Defect != 2) {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync) const requires(Defect != 3) {
    if constexpr (Defect == 4) {
      return 0;
    } else {
      return std::tuple<>{};
    }
  }
  template <class Sink>
  void describe(Sink& sink) const requires(Defect != 5) {
    sink("archetype");
  }
};
template <int Defect = 0>
struct naming : archetype<Defect> {
  using agreed = zoadam::at::parameter_t;
};

template <class State>
inline constexpr bool runs = zoadam::has_program<State, zoadam::identity_quantizer, zoadam::every_step>;

static_assert(zoadam::state<naming<>> && runs<naming<>>);
static_assert(!zoadam::names_agreed_parameters<archetype<>> && !zoadam::state<archetype<>>);
static_assert(!zoadam::declares_fields<naming<1>> && !zoadam::state<naming<1>>);
static_assert(!zoadam::starts_clock<naming<2>> && !zoadam::state<naming<2>>);
static_assert(zoadam::state<naming<3>> && !runs<naming<3>>);
static_assert(zoadam::state<naming<4>> && !runs<naming<4>>);
static_assert(!zoadam::describes_itself<naming<5>> && !zoadam::state<naming<5>>);

TEST_CASE("the archetype runs: an empty program changes nothing") {
  using namespace zoadam;
  std::vector<float> x(5, 2.0f), g(5, 1.0f);
  optimizer<identity_quantizer, every_step, naming<>, cpu_backend, single_transport> optimizer({{"x", {}, x, g}}, {},
                                                                                               single_transport{});
  CHECK(optimizer.step(1.0).step == 1);
  CHECK(x == std::vector<float>(5, 2.0f));
  CHECK(optimizer.name() == "identity every_step archetype");
}

}  // namespace
