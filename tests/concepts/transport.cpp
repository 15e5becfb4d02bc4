// SPDX-License-Identifier: Apache-2.0
// The concept of a transport: an archetype, and archetypes with one defect each.
#include "zoadam/concepts/transport.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "zoadam/aliases.hpp"

namespace {

using zoadam::index;

// One rank, by hand.
template <int Defect = 0>
struct archetype {
  archetype() = default;
  archetype(archetype&&) = default;
  archetype& operator=(archetype&&) = default;
  archetype(archetype const&) requires(Defect == 1) = default;
  archetype& operator=(archetype const&) requires(Defect == 1) = default;

  int rank() const noexcept requires(Defect != 2) { return 0; }
  int size() const noexcept(Defect != 3) { return 1; }
  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    if (offsets[1] > offsets[0])
      std::memcpy(receive, send + offsets[0], static_cast<std::size_t>(offsets[1] - offsets[0]));
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) requires(Defect != 4) {
    if (offsets[1] > offsets[0])
      std::memcpy(receive + offsets[0], send, static_cast<std::size_t>(offsets[1] - offsets[0]));
  }
  void abort() noexcept(Defect != 5) {}
  std::conditional_t<Defect == 6, int, index> bytes_sent() const noexcept { return 0; }
};
static_assert(zoadam::transport<archetype<>>);
static_assert(!zoadam::transport<archetype<1>>, "copyable");
static_assert(!zoadam::has_ranks<archetype<2>> && !zoadam::transport<archetype<2>>);
static_assert(!zoadam::has_ranks<archetype<3>> && !zoadam::transport<archetype<3>>);
static_assert(!zoadam::has_collectives<archetype<4>> && !zoadam::transport<archetype<4>>);
static_assert(!zoadam::can_abort<archetype<5>> && !zoadam::transport<archetype<5>>);
static_assert(!zoadam::counts_bytes<archetype<6>> && !zoadam::transport<archetype<6>>);

struct immovable : archetype<> {
  immovable(immovable&&) = delete;
};
static_assert(!zoadam::transport<immovable>);

TEST_CASE("the archetype carries an optimizer, with the bits of single_transport") {
  auto const run = []<class Transport>(Transport link) {
    std::vector<float> x(100, 1.0f), g(100);
    zoadam::zero_one_adam<Transport> optimizer({{"x", {}, x, g}}, {}, std::move(link));
    for (int t = 0; t < 20; ++t) {
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = x[i] * static_cast<float>(i % 7);
      (void)optimizer.step(0.01);
    }
    return optimizer.replica_hash();
  };
  CHECK(run(archetype<>{}) == run(zoadam::single_transport{}));
}

}  // namespace
