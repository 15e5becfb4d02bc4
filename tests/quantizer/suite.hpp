// SPDX-License-Identifier: Apache-2.0
// What every quantizer must do with a payload, on every lane of the target.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "zoadam/concepts/quantizer.hpp"

namespace quantizer_suite {

using zoadam::index;

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }

/// n values of both signs and of magnitudes from 2^-10 to 2^10, an exact zero and a negative zero among them.
inline std::vector<float> values(index n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> result(nth(n));
  for (float& x : result) {
    std::uint32_t const word = static_cast<std::uint32_t>(random());
    x = std::bit_cast<float>((word & 0x807fffffu) | ((117u + word / 4096u % 20u) << 23));
  }
  if (n > 5) result[3] = 0.0f, result[5] = -0.0f;
  return result;
}

/// The scale that the quantizer defines for one group, summed plainly.
template <class Quantizer>
float scale_of(std::vector<float> const& c) {
  if constexpr (Quantizer::has_scale) {
    double sum = 0;
    for (float x : c) sum += static_cast<double>(typename Quantizer::norm::term{}(zoadam::f32(x)).v);
    return Quantizer::norm::scale(sum, static_cast<index>(c.size()));
  } else {
    return 0;
  }
}

inline bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

constexpr std::byte guard{0xa5};

/// The payload of c; nothing beyond payload_bytes(n) may be written.
template <class Quantizer, class Lane>
ZOADAM_NOINLINE std::vector<std::byte> encoded(std::vector<float> const& c, float scale) {
  auto const n = static_cast<index>(c.size());
  std::vector<std::byte> payload(nth(Quantizer::payload_bytes(n)), guard);
  payload.insert(payload.end(), 64, guard);
  Quantizer::template encode<Lane>(c.data(), n, scale, payload.data());
  bool untouched = true;
  for (std::size_t i = nth(Quantizer::payload_bytes(n)); i < payload.size(); ++i) untouched &= payload[i] == guard;
  CHECK(untouched);
  payload.resize(nth(Quantizer::payload_bytes(n)));
  return payload;
}

template <class Quantizer, class Lane>
ZOADAM_NOINLINE std::vector<float> decoded(std::vector<std::byte> const& payload, index skip, index n, float scale) {
  constexpr float sentinel = 12345.0f;
  std::vector<float> out(nth(n) + 32, sentinel);
  Quantizer::template decode<Lane>(payload.data(), skip, n, scale, out.data());
  bool untouched = true;
  for (std::size_t i = nth(n); i < out.size(); ++i) untouched &= out[i] == sentinel;
  CHECK(untouched);
  out.resize(nth(n));
  return out;
}

/// f<Lane>() for every lane of the target.
template <class F>
void for_every_lane(F const& f) {
  f.template operator()<zoadam::lane_t<zoadam::isa::scalar>>();
#if defined(ZOADAM_HAS_SSE2)
  f.template operator()<zoadam::lane_t<zoadam::isa::sse2>>();
#endif
#if defined(ZOADAM_HAS_AVX2)
  f.template operator()<zoadam::lane_t<zoadam::isa::avx2>>();
#endif
#if defined(ZOADAM_HAS_AVX512)
  f.template operator()<zoadam::lane_t<zoadam::isa::avx512>>();
#endif
}

/// Sizes on both sides of words, lanes and tiles.
inline std::vector<index> const sizes{0,  1,  2,  7,   15,  16,  17,  31,   32,   33,
                                      63, 64, 65, 127, 255, 257, 300, 2047, 2048, 2049};

TEST_CASE_TEMPLATE_DEFINE("case 19: every lane writes the same payload and decodes any part of it", Quantizer,
                          every_lane) {
  for (index const n : sizes) {
    CAPTURE(n);
    auto const c = values(n, static_cast<std::uint32_t>(n) + 1);
    float const scale = scale_of<Quantizer>(c);
    using scalar = zoadam::lane_t<zoadam::isa::scalar>;
    auto const payload = encoded<Quantizer, scalar>(c, scale);
    auto const expected = decoded<Quantizer, scalar>(payload, 0, n, scale);
    for_every_lane([&]<class Lane>() {
      CHECK(encoded<Quantizer, Lane>(c, scale) == payload);
      for (index const skip : {index{0}, index{1}, index{5}, index{16}, index{31}, index{32}, index{40}, n / 2, n}) {
        for (index const part : {index{0}, index{1}, index{3}, index{17}, n - skip}) {
          if (skip > n || part < 0 || skip + part > n) continue;
          auto const some = decoded<Quantizer, Lane>(payload, skip, part, scale);
          bool equal = true;
          for (index i = 0; i < part; ++i) equal &= same_bits(some[nth(i)], expected[nth(skip + i)]);
          CAPTURE(skip);
          CAPTURE(part);
          CHECK(equal);
        }
      }
    });
  }
}

TEST_CASE_TEMPLATE_DEFINE("payloads of multiples of 32 elements add up", Quantizer, additive) {
  for (index const whole : {index{0}, index{32}, index{2048}, index{1} << 40}) {
    for (index n = 0; n <= 100; ++n) {
      CHECK(Quantizer::payload_bytes(whole + n) == Quantizer::payload_bytes(whole) + Quantizer::payload_bytes(n));
    }
  }
  auto const c = values(100, 9);
  float const scale = scale_of<Quantizer>(c);
  using lane = zoadam::lane_t<zoadam::isa::native>;
  auto payload = encoded<Quantizer, lane>({c.begin(), c.begin() + 64}, scale);
  auto const tail = encoded<Quantizer, lane>({c.begin() + 64, c.end()}, scale);
  payload.insert(payload.end(), tail.begin(), tail.end());
  CHECK(payload == encoded<Quantizer, lane>(c, scale));
}

TEST_CASE_TEMPLATE_DEFINE("zeros decode to exact zeros", Quantizer, zeros) {
  for (index const n : {index{1}, index{33}, index{2048}}) {
    std::vector<float> const c(nth(n), 0.0f);
    float const scale = scale_of<Quantizer>(c);
    for_every_lane([&]<class Lane>() {
      auto const out = decoded<Quantizer, Lane>(encoded<Quantizer, Lane>(c, scale), 0, n, scale);
      bool zero = true;
      for (float x : out) zero &= x == 0.0f;
      CHECK(zero);
    });
  }
}

TEST_CASE_TEMPLATE_DEFINE("a quantizer that keeps zero decodes it to zero among others", Quantizer, keeping_zero) {
  auto const c = values(100, 3);
  float const scale = scale_of<Quantizer>(c);
  using lane = zoadam::lane_t<zoadam::isa::native>;
  auto const out = decoded<Quantizer, lane>(encoded<Quantizer, lane>(c, scale), 0, 100, scale);
  CHECK((out[3] == 0.0f) == zoadam::keeps_zero<Quantizer>);
  CHECK((out[5] == 0.0f) == zoadam::keeps_zero<Quantizer>);
}

}  // namespace quantizer_suite
