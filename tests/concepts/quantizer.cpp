// SPDX-License-Identifier: Apache-2.0
// The concept of a quantizer: an archetype, and archetypes with one defect each.
#include "zoadam/concepts/quantizer.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "zoadam/backend/cpu.hpp"
#include "zoadam/optimizer.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/sync/every_step.hpp"
#include "zoadam/transport/single.hpp"

namespace {

using zoadam::index;

struct archetype {
  using groups = zoadam::whole;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  static constexpr index payload_bytes(index n) noexcept { return 4 * n; }
  template <class Lane>
  static void encode(float const* c, index n, float, std::byte* payload) noexcept {
    std::memcpy(payload, c, static_cast<std::size_t>(4 * n));
  }
  template <class Lane>
  static void decode(std::byte const* payload, index skip, index n, float, float* out) noexcept {
    std::memcpy(out, payload + 4 * skip, static_cast<std::size_t>(4 * n));
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("archetype");
  }
};
static_assert(zoadam::quantizer<archetype>);
static_assert(!zoadam::keeps_zero<archetype>);

struct zero_archetype : archetype {
  static constexpr bool keeps_zero = true;
};
static_assert(zoadam::keeps_zero<zero_archetype>);
struct zero_denied : archetype {
  static constexpr bool keeps_zero = false;
};
static_assert(!zoadam::keeps_zero<zero_denied>);

struct other_groups : archetype {
  using groups = int;
};
static_assert(!zoadam::has_groups<other_groups> && !zoadam::quantizer<other_groups>);

struct payload_may_throw : archetype {
  static constexpr index payload_bytes(index n) { return 4 * n; }
};
static_assert(!zoadam::sizes_payload<payload_may_throw> && !zoadam::quantizer<payload_may_throw>);

struct payload_in_int : archetype {
  static constexpr int payload_bytes(index n) noexcept { return static_cast<int>(4 * n); }
};
static_assert(!zoadam::sizes_payload<payload_in_int> && !zoadam::quantizer<payload_in_int>);

struct scale_without_norm : archetype {
  static constexpr bool has_scale = true;
};
static_assert(!zoadam::says_scale<scale_without_norm> && !zoadam::quantizer<scale_without_norm>);

struct mean_norm {
  using term = zoadam::abs_term;
  static float scale(double sum, index count) noexcept { return zoadam::group_scale_l1(sum, count); }
};
struct scaled_archetype : scale_without_norm {
  using norm = mean_norm;
};
static_assert(zoadam::quantizer<scaled_archetype>);

struct scale_may_throw : scale_without_norm {
  struct norm {
    using term = zoadam::abs_term;
    static float scale(double, index) { return 1; }
  };
};
static_assert(!zoadam::says_scale<scale_may_throw> && !zoadam::quantizer<scale_may_throw>);

struct encode_may_throw : archetype {
  template <class Lane>
  static void encode(float const*, index, float, std::byte*) {}
};
static_assert(!zoadam::encodes<encode_may_throw> && !zoadam::quantizer<encode_may_throw>);

struct decode_without_skip : archetype {
  template <class Lane>
  static void decode(std::byte const*, index, float, float*) noexcept {}
};
static_assert(!zoadam::decodes<decode_without_skip> && !zoadam::quantizer<decode_without_skip>);

// Everything but whether it is compensated.
struct compensated_unsaid {
  using groups = zoadam::whole;
  static constexpr bool has_scale = false;
  static constexpr index payload_bytes(index n) noexcept { return 4 * n; }
  template <class Lane>
  static void encode(float const*, index, float, std::byte*) noexcept {}
  template <class Lane>
  static void decode(std::byte const*, index, index, float, float*) noexcept {}
  template <class Sink>
  void describe(Sink& sink) const {
    sink("unsaid");
  }
};
static_assert(!zoadam::says_compensated<compensated_unsaid> && !zoadam::quantizer<compensated_unsaid>);

// The first element of each block, as it is.
struct sparse_archetype {
  using groups = zoadam::block<32>;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  struct picks {
    int count, position[1];
    float value[1], decoded[1];
  };
  static constexpr index payload_bytes(index n) noexcept { return n > 0 ? 4 : 0; }
  static constexpr int room(index) noexcept { return 1; }
  template <class Team>
  static void encode(Team const&, float const* c, int, std::byte* payload, picks& p) noexcept {
    p = {1, {0}, {c[0]}, {c[0]}};
    std::memcpy(payload, c, 4);
  }
  static zoadam::sparse_element decode(std::byte const* payload, int) noexcept {
    zoadam::sparse_element e{};
    std::memcpy(&e.value, payload, 4);
    return e;
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("first");
  }
};
static_assert(zoadam::sparse<sparse_archetype> && zoadam::quantizer<sparse_archetype>);
static_assert(!zoadam::sparse<archetype> && !zoadam::sparse<void>);

struct sparse_without_blocks : sparse_archetype {
  using groups = zoadam::whole;
};
static_assert(!zoadam::sparse<sparse_without_blocks> && !zoadam::quantizer<sparse_without_blocks>);
struct sparse_encode_may_throw : sparse_archetype {
  template <class Team>
  static void encode(Team const&, float const*, int, std::byte*, picks&) {}
};
static_assert(!zoadam::sparse<sparse_encode_may_throw> && !zoadam::quantizer<sparse_encode_may_throw>);
struct sparse_without_room : sparse_archetype {
  static constexpr index room(index) noexcept = delete;
};
static_assert(!zoadam::sparse<sparse_without_room> && !zoadam::quantizer<sparse_without_room>);

TEST_CASE("the sparse archetype sends what it picks, and zeros") {
  using namespace zoadam;
  std::vector<float> x(70), g(70, 3.0f);
  optimizer<sparse_archetype, every_step, mean_state, cpu_backend, single_transport> mean({{"x", {}, x, g}}, {},
                                                                                          single_transport{});
  auto const report = mean.step(1.0);
  CHECK(report.payload_bytes == 12);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(x[i] == (i % 32 == 0 ? 3.0f : 0.0f));
}

TEST_CASE("the archetype is all that an optimizer needs") {
  using namespace zoadam;
  std::vector<float> x(100), g(100);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(i) - 50.0f;
  optimizer<archetype, every_step, mean_state, cpu_backend, single_transport> mean({{"x", {}, x, g}}, {},
                                                                                   single_transport{});
  (void)mean.step(1.0);
  CHECK(x == g);
}

TEST_CASE("so is the archetype with a scale, here always decoding to its input") {
  using namespace zoadam;
  std::vector<float> x(100), g(100, 3.0f);
  optimizer<scaled_archetype, every_step, mean_state, cpu_backend, single_transport> mean({{"x", {}, x, g}}, {},
                                                                                          single_transport{});
  auto const report = mean.step(1.0);
  CHECK(x == g);
  CHECK(report.payload_bytes == 404);
}

}  // namespace
