// SPDX-License-Identifier: Apache-2.0
// Loops over one tile: tails, masks and bounds, on every lane of the target against plain code.
#include "zoadam/backend/cpu_kernels.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/error_feedback.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"
#include "zoadam/state/displacement.hpp"

namespace {

using zoadam::index;
using zoadam::lane_t;

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }
constexpr float sentinel = 12345.0f;

template <class F>
void for_every_set(F const& f) {
  f.template operator()<zoadam::isa::scalar>();
#if defined(ZOADAM_HAS_SSE2)
  f.template operator()<zoadam::isa::sse2>();
#endif
#if defined(ZOADAM_HAS_AVX2)
  f.template operator()<zoadam::isa::avx2>();
#endif
#if defined(ZOADAM_HAS_AVX512)
  f.template operator()<zoadam::isa::avx512>();
#endif
}

std::vector<float> values(index n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> result(nth(n));
  for (float& x : result) x = static_cast<float>(static_cast<std::int32_t>(random()) >> 8) * 0x1p-20f;
  return result;
}

TEST_CASE("for_lanes visits every element once, whole lanes first") {
  for_every_set([&]<class Isa>() {
    using lane = lane_t<Isa>;
    for (index n = 0; n <= 70; ++n) {
      index at = 0;
      zoadam::detail::for_lanes<lane>(n, [&](index i, auto count) {
        CHECK(i == at);
        CHECK((count == lane::width || i + count == n));
        at += count;
      });
      CHECK(at == n);
    }
  });
}

TEST_CASE("case 19: partial loads and stores touch nothing beyond their count, at any alignment") {
  auto const in = values(64, 1);
  for_every_set([&]<class Isa>() {
    using lane = lane_t<Isa>;
    for (int count = 1; count <= lane::width; ++count) {
      for (index offset = 0; offset < 16; ++offset) {
        std::vector<float> out(64, sentinel);
        auto const value = zoadam::detail::load<lane>(in.data() + offset, count);
        zoadam::detail::store(value, out.data() + offset, count);
        bool right = true;
        for (index i = 0; i < 64; ++i) {
          bool const inside = i >= offset && i < offset + count;
          right &= out[nth(i)] == (inside ? in[nth(i)] : sentinel);
        }
        CHECK(right);
      }
    }
  });
}

TEST_CASE("store_where changes marked elements alone") {
  for_every_set([&]<class Isa>() {
    using lane = lane_t<Isa>;
    for (std::uint32_t bits : {0u, 1u, 5u, 0xffffu, 0xa5a5u}) {
      bits &= (1u << lane::width) - 1;
      std::vector<float> out(16, sentinel);
      zoadam::detail::store_where(lane::mask::from_bits(bits), lane(1.0f), out.data(),
                                  std::integral_constant<int, lane::width>{});
      for (int i = 0; i < lane::width; ++i) CHECK(out[nth(i)] == ((bits >> i) % 2 == 1 ? 1.0f : sentinel));
    }
  });
}

TEST_CASE("clamp bounds magnitudes and keeps signs") {
  for_every_set([&]<class Isa>() {
    using lane = lane_t<Isa>;
    auto const clamped = [](float x, float limit) { return zoadam::detail::clamp(lane(x), lane(limit)).first(); };
    CHECK(clamped(3.0f, 2.0f) == 2.0f);
    CHECK(clamped(-3.0f, 2.0f) == -2.0f);
    CHECK(clamped(1.0f, 2.0f) == 1.0f);
    CHECK(clamped(-1.0f, 2.0f) == -1.0f);
    CHECK(clamped(5.0f, 0.0f) == 0.0f);
  });
}

using zoadam::detail::bounds;

// run_encode against encode, decode, clamp and a subtraction, each by itself.
template <class Isa, class Quantizer, bounds Bounds>
void check_encode(index n, bool in_place) {
  constexpr bool limited = Bounds != bounds::none;
  auto c = values(n, static_cast<std::uint32_t>(n));
  auto limit = values(n, 99);
  for (index i = 0; i < n; ++i) {
    float& l = limit[nth(i)];
    l = i % 4 == 3 ? 0.0f : std::abs(l) * 0.1f;
    if (limited && i % 4 == 3) c[nth(i)] = 0.0f;      // inactive
    if (limited && i % 8 == 5) c[nth(i)] = l = 0.5f;  // nothing stays
  }
  using scalar = lane_t<zoadam::isa::scalar>;
  float const scale = Quantizer::has_scale ? 0.7f : 0.0f;
  std::vector<std::byte> expected(nth(Quantizer::payload_bytes(n)));
  expected.insert(expected.end(), 8, std::byte{0xa5});
  auto payload = expected;
  Quantizer::template encode<scalar>(c.data(), n, scale, expected.data());
  std::vector<float> q(nth(n)), error(nth(n), sentinel);
  Quantizer::template decode<scalar>(expected.data(), 0, n, scale, q.data());
  error.insert(error.end(), 16, sentinel);
  if (in_place) std::copy(c.begin(), c.end(), error.begin());
  zoadam::detail::run_encode<Isa, Quantizer, Bounds>(in_place ? error.data() : c.data(), limit.data(), error.data(),
                                                     n, scale, payload.data());
  CHECK(payload == expected);
  bool right = true;
  for (index i = 0; i < n; ++i) {
    float const bound = limited ? limit[nth(i)] : 1e30f;
    float const kept = c[nth(i)] - std::max(std::min(q[nth(i)], bound), -bound);
    right &= error[nth(i)] == kept;
    // The sign of a zero is a mark.
    bool const marked = Bounds == bounds::marked_limit && bound > 0;
    if (kept == 0) right &= std::signbit(error[nth(i)]) == marked;
  }
  for (index i = n; i < n + 16; ++i) right &= error[nth(i)] == sentinel;
  CHECK(right);
}

TEST_CASE("run_encode writes the quantizer's payload and leaves c minus what was decoded, within its limit") {
  for_every_set([&]<class Isa>() {
    for (index const n : {1, 15, 16, 17, 31, 32, 33, 100, 300, 2048}) {
      for (bool const in_place : {false, true}) {
        CAPTURE(n);
        CAPTURE(in_place);
        auto const check = [&]<bounds Bounds>() {
          check_encode<Isa, zoadam::error_feedback<zoadam::sign_quantizer<>>, Bounds>(n, in_place);
          check_encode<Isa, zoadam::error_feedback<zoadam::cast_quantizer<zoadam::bfloat16>>, Bounds>(n, in_place);
          check_encode<Isa, zoadam::error_feedback<zoadam::identity_quantizer>, Bounds>(n, in_place);
        };
        check.template operator()<bounds::none>();
        check.template operator()<bounds::limit>();
        check.template operator()<bounds::marked_limit>();
      }
    }
  });
}

TEST_CASE("run_bounds counts active elements and bounds inactive ones by 0") {
  using form = zoadam::displacement<zoadam::power::zero>::replacing;
  zoadam::coefficients<float> k{};
  k.limit = 1.0f;
  k.gamma = 0.5f;
  k.per_gamma = 2.0f;
  k.correction2 = 1.0f;
  for_every_set([&]<class Isa>() {
    for (index const n : {1, 16, 33, 100}) {
      std::vector<float> v(nth(n)), limit(nth(n) + 16, sentinel);
      index expected = 0;
      for (index i = 0; i < n; ++i) expected += (v[nth(i)] = i % 3 == 0 ? 0.0f : 0.25f) > 0;
      zoadam::detail::pointers<form::bound_reads> p;
      p[zoadam::at::variance] = v.data();
      CHECK(zoadam::detail::run_bounds<Isa, form>(p, k, n, limit.data()) == expected);
      for (index i = 0; i < n; ++i) CHECK(limit[nth(i)] == (i % 3 == 0 ? 0.0f : 0.5f));
      CHECK(limit[nth(n)] == sentinel);
    }
  });
}

TEST_CASE("run_scaled_gradient scales, and finds NaN, Inf and magnitudes beyond 2^56 wherever they are") {
  float const bad[] = {std::bit_cast<float>(0x7fc00000u), std::bit_cast<float>(0xff800000u), 0x1p57f, -0x1.1p56f};
  for_every_set([&]<class Isa>() {
    for (index const n : {1, 16, 33, 100}) {
      auto g = values(n, 3);
      std::vector<float> out(nth(n));
      CHECK_FALSE(zoadam::detail::run_scaled_gradient<Isa>(g.data(), 0.5f, n, out.data()));
      for (index i = 0; i < n; ++i) CHECK(out[nth(i)] == 0.5f * g[nth(i)]);
      g[nth(n / 2)] = 0x1p56f;
      CHECK_FALSE(zoadam::detail::run_scaled_gradient<Isa>(g.data(), 1.0f, n, out.data()));
      CHECK(zoadam::detail::run_scaled_gradient<Isa>(g.data(), 4.0f, n, out.data()));
      for (float const b : bad) {
        for (index const at : {index{0}, n / 2, n - 1}) {
          auto h = values(n, 4);
          h[nth(at)] = b;
          CHECK(zoadam::detail::run_scaled_gradient<Isa>(h.data(), 1.0f, n, out.data()));
        }
      }
    }
  });
}

TEST_CASE("tile_sum pads with zeros: every set gives the bits of the scalar one") {
  for (index const n : {0, 1, 127, 128, 129, 300, 2047, 2048}) {
    auto const c = values(n, 5);
    std::vector<float> padded(2048);
    float const expected =
        zoadam::detail::tile_sum<zoadam::isa::scalar, zoadam::square_term>(c.data(), n, padded.data());
    double plain = 0;
    for (float x : c) plain += double(x) * double(x);
    CHECK(std::abs(double(expected) - plain) <= 1e-5 * plain);
    for_every_set([&]<class Isa>() {
      CHECK(zoadam::detail::tile_sum<Isa, zoadam::square_term>(c.data(), n, padded.data()) == expected);
    });
  }
}

TEST_CASE("tile_max is the largest, wherever it lies, and at least +0") {
  for_every_set([&]<class Isa>() { CHECK(zoadam::detail::tile_max<Isa>(nullptr, 0) == 0); });
  for (index n = 1; n <= 40; ++n) {
    for (index at = 0; at < n; ++at) {
      std::vector<float> c(static_cast<std::size_t>(n), 0.25f);
      c[static_cast<std::size_t>(at)] = 3;
      int wrong = 0;
      for_every_set([&]<class Isa>() { wrong += zoadam::detail::tile_max<Isa>(c.data(), n) != 3; });
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
