// SPDX-License-Identifier: Apache-2.0
// A few elements of each block, at two magnitudes.
#include "zoadam/quantizer/top_k.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "quantizer/suite.hpp"
#include "zoadam/backend/cpu_kernels.hpp"

namespace {

using namespace quantizer_suite;
using zoadam::block;
using zoadam::index;
using zoadam::top_k_quantizer;

template <class Quantizer>
struct message {
  std::vector<std::byte> payload;
  typename Quantizer::picks picks;
};

template <class Quantizer, class Isa = zoadam::isa::native>
ZOADAM_NOINLINE message<Quantizer> encoded_block(std::vector<float> const& c) {
  auto const n = static_cast<index>(c.size());
  message<Quantizer> m{};
  m.payload.assign(nth(Quantizer::payload_bytes(n)) + 64, guard);
  Quantizer::encode(zoadam::detail::lone_thread<Isa>{}, c.data(), static_cast<int>(n), m.payload.data(), m.picks);
  CHECK(std::all_of(m.payload.end() - 64, m.payload.end(), [](std::byte b) { return b == guard; }));
  m.payload.resize(nth(Quantizer::payload_bytes(n)));
  return m;
}
template <class Quantizer>
std::vector<float> decoded_block(std::vector<std::byte> const& payload, std::size_t n) {
  std::vector<float> out(n, 0.0f);
  for (int j = 0; j < Quantizer::room(static_cast<index>(n)); ++j) {
    auto const each = Quantizer::decode(payload.data(), j);
    if (each.position < static_cast<int>(n)) out[static_cast<std::size_t>(each.position)] = each.value;
  }
  return out;
}
template <class Quantizer>
std::vector<float> there_and_back(std::vector<float> const& c) {
  return decoded_block<Quantizer>(encoded_block<Quantizer>(c).payload, c.size());
}

double energy(std::vector<float> const& a) {
  double sum = 0;
  for (float const x : a) sum += double(x) * double(x);
  return sum;
}

// What the definition says, in float64: the order of magnitudes by sorting.
template <class Quantizer>
std::vector<double> plain(std::vector<float> const& c) {
  std::vector<std::size_t> order(c.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(c[a]) > std::abs(c[b]); });
  order.resize(static_cast<std::size_t>(Quantizer::room(static_cast<index>(c.size()))));
  std::erase_if(order, [&](std::size_t k) { return std::abs(c[k]) <= 0; });
  auto const mean = [&](auto const& member) {
    double sum = 0, count = 0;
    for (std::size_t const k : order) {
      if (member(k)) sum += std::abs(double(c[k])), ++count;
    }
    return count > 0 ? sum / count : 0.0;
  };
  double const middle = mean([](std::size_t) { return true; });
  auto const larger = [&](std::size_t k) { return std::abs(double(c[k])) > middle; };
  double const high = mean(larger), low = mean([&](std::size_t k) { return !larger(k); });
  std::vector<double> out(c.size());
  for (std::size_t const k : order) out[k] = std::copysign(larger(k) ? high : low, double(c[k]));
  return out;
}

using usual = top_k_quantizer<>;
using small = top_k_quantizer<block<64>, 5>;
using odd = top_k_quantizer<block<96>, 7>;
using everything = top_k_quantizer<block<32>, 32>;
using wide = top_k_quantizer<block<65536>, 300>;

TEST_CASE_TEMPLATE("what is decoded is what the definition says", Quantizer, usual, small, odd, everything, wide) {
  for (index n : {1, 2, 31, 32, 33, 64, 95, 96, 1000, 4095, 4096, 65535}) {
    n = std::min(n, zoadam::detail::block_size<typename Quantizer::groups>);
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      CAPTURE(n);
      auto const c = values(n, 11 * seed + static_cast<std::uint32_t>(n));
      auto const got = there_and_back<Quantizer>(c);
      auto const want = plain<Quantizer>(c);
      int wrong = 0;
      for (std::size_t k = 0; k < c.size(); ++k)
        wrong += !(std::abs(double(got[k]) - want[k]) <= 1e-7 * std::abs(want[k]));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE_TEMPLATE("case 19: every instruction set writes the same payload", Quantizer, usual, odd, wide) {
  for (index const n : {1, 17, 33, 95, 96}) {
    auto const c = values(n, static_cast<std::uint32_t>(n));
    auto const expected = encoded_block<Quantizer, zoadam::isa::scalar>(c);
    for_every_lane([&]<class Lane>() {
      auto const got = encoded_block<Quantizer, typename Lane::isa>(c);
      CHECK(got.payload == expected.payload);
      CHECK(got.picks.count == expected.picks.count);
    });
  }
}

TEST_CASE("the payload, bit by bit") {
  // 5 of 64: w = 6 + 2.
  std::vector<float> c(64, 0.0f);
  c[3] = 8.0f, c[10] = -1.0f, c[63] = -4.0f, c[40] = 1.0f, c[41] = 1.0f, c[50] = -1.0f;  // 50 comes too late
  auto const m = encoded_block<small>(c);
  REQUIRE(m.payload.size() == 16);
  float magnitude[2];
  std::memcpy(magnitude, m.payload.data(), 8);
  CHECK(magnitude[0] == 6.0f);  // the mean of all five is 3
  CHECK(magnitude[1] == 1.0f);
  std::uint8_t const codes[8] = {3 + 128, 10 + 64, 40, 41, 63 + 64 + 128, 0, 0, 0};
  CHECK(std::memcmp(m.payload.data() + 8, codes, 8) == 0);
  CHECK(m.picks.count == 5);
  CHECK(m.picks.position[4] == 63);
  CHECK(m.picks.value[4] == -4.0f);
  CHECK(m.picks.decoded[4] == -6.0f);
}

TEST_CASE("of equal magnitudes those in front are sent") {
  std::vector<float> c(64);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = i % 2 == 0 ? 2.0f : -2.0f;
  c[30] = 3.0f;
  auto const out = there_and_back<small>(c);
  for (std::size_t i = 0; i < c.size(); ++i) CHECK((std::abs(out[i]) > 0) == (i < 4 || i == 30));
}

TEST_CASE("zeros are never sent, and where there is too much room the first element is repeated") {
  std::vector<float> c(64, 0.0f);
  c[1] = -0.0f;
  auto m = encoded_block<small>(c);
  CHECK(m.picks.count == 0);
  CHECK(std::all_of(m.payload.begin(), m.payload.end(), [](std::byte b) { return b == std::byte{0}; }));
  c[7] = -2.0f;
  c[9] = 0x1p-149f;
  m = encoded_block<small>(c);
  CHECK(m.picks.count == 2);
  CHECK(std::to_integer<int>(m.payload[8]) == 7 + 64 + 128);
  CHECK(std::to_integer<int>(m.payload[9]) == 9);
  CHECK(m.payload[10] == m.payload[8]);
  CHECK(m.payload[12] == m.payload[8]);
  CHECK(decoded_block<small>(m.payload, 64) == c);
}

// Besides random blocks, those whose two magnitudes fit worst: a spike and others around the mean of what is sent.
TEST_CASE_TEMPLATE("the energy of what stays is at most 1 - K / N of the input's", Quantizer, usual, small,
                   top_k_quantizer<block<2048>, 64>, top_k_quantizer<block<256>, 32>) {
  constexpr index size = zoadam::detail::block_size<typename Quantizer::groups>;
  double const share = 1 - double(Quantizer::room(size)) / double(size);
  auto const check = [&](std::vector<float> const& c) {
    auto const out = there_and_back<Quantizer>(c);
    std::vector<float> left(c.size());
    for (std::size_t k = 0; k < c.size(); ++k) left[k] = c[k] - out[k];
    CHECK(energy(left) <= share * energy(c) * (1 + 1e-6));
  };
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    for (index const n : {size, size / 2 + 1, index{3}}) check(values(n, seed));
  }
  std::vector<float> c(nth(size));
  for (double const ratio : {1.0, 0.999, 0.9, 0.5}) {
    for (std::size_t k = 0; k < c.size(); ++k) c[k] = static_cast<float>(std::pow(ratio, double(k)));
    check(c);
  }
  for (double const exponent : {0.5, 1.0, 2.0}) {
    for (std::size_t k = 0; k < c.size(); ++k) c[k] = static_cast<float>(std::pow(double(k) + 1, -exponent));
    check(c);
  }
  int const most = Quantizer::room(size);
  for (int members = 1; members < most; ++members) {
    for (double const below : {0.0, 1e-3, 0.1, 0.5, 0.9}) {
      double const mean = (1 + below) / double(most - members);
      for (std::size_t k = 0; k < c.size(); ++k) {
        c[k] = static_cast<float>(k == 0 ? 1 : static_cast<int>(k) < members ? 1.01 * mean : below * mean);
      }
      check(c);
    }
  }
}

TEST_CASE_TEMPLATE("what has been decoded comes back as it is", Quantizer, usual, small, everything, wide) {
  index const n = std::min<index>(zoadam::detail::block_size<typename Quantizer::groups>, 5000);
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    auto const once = there_and_back<Quantizer>(values(n, seed));
    CHECK(there_and_back<Quantizer>(once) == once);
  }
  // Two magnitudes that are neighbours, one of them rare.
  std::vector<float> c(nth(n), 0.0f);
  for (int k = 0; k < Quantizer::room(n); ++k)
    c[static_cast<std::size_t>(k)] = k == 1 ? std::nextafter(3.0f, 0.0f) : -3.0f;
  CHECK(there_and_back<Quantizer>(c) == c);
}

// Elements [skip, skip + n) of a block, as loops fetch them.
template <class Quantizer>
std::vector<float> part(std::vector<std::byte> const& payload, index length, index skip, index n) {
  std::vector<float> out(nth(n) + 8, 7.0f);
  zoadam::detail::run_scatter<zoadam::isa::native, Quantizer>(payload.data(), length, skip, n, out.data());
  CHECK(std::all_of(out.end() - 8, out.end(), [](float x) { return x == 7.0f; }));
  out.resize(nth(n));
  return out;
}

TEST_CASE_TEMPLATE("any part of a block is decoded by itself", Quantizer, usual, odd) {
  for (index const n : {1, 33, 96}) {
    auto const payload = encoded_block<Quantizer>(values(n, 5)).payload;
    auto const all = decoded_block<Quantizer>(payload, nth(n));
    for (index skip = 0; skip <= n; ++skip) {
      for (index const m : {index{0}, index{1}, (n - skip) / 2, n - skip}) {
        if (skip + m > n) continue;
        CHECK(part<Quantizer>(payload, n, skip, m) == std::vector<float>(all.begin() + skip, all.begin() + skip + m));
      }
    }
  }
}

TEST_CASE("a payload that nobody has encoded writes nothing beyond its block") {
  for (index const n : {1, 50, 96}) {
    std::vector<std::byte> hostile(nth(odd::payload_bytes(n)), std::byte{0xff});
    for (float const x : part<odd>(hostile, n, 0, n)) CHECK(same_bits(x, 0.0f));  // position 127 is in no block
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
      std::mt19937 random(seed);
      for (std::byte& b : hostile) b = static_cast<std::byte>(random());
      (void)part<odd>(hostile, n, n / 3, n - n / 3);
    }
  }
}

TEST_CASE("sizes") {
  CHECK(usual::room(4096) == 64);
  CHECK(usual::payload_bytes(4096) == 8 + 64 * 14 / 8);
  CHECK(usual::room(1) == 1);
  CHECK(usual::payload_bytes(1) == 12);
  CHECK(usual::payload_bytes(0) == 0);
  CHECK(usual::room(65) == 2);
  CHECK(wide::payload_bytes(65536) == 8 + (300 * 18 + 31) / 32 * 4);
  zoadam::detail::namer name;
  usual{}.describe(name);
  CHECK(name.text() == "top_k(64) block(4096)");
}

}  // namespace
