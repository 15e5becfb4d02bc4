// SPDX-License-Identifier: Apache-2.0
// Tests of the order of sums.
#include "zoadam/lane/sum.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace {

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }

// The contract's words as a loop; each sum goes through memory.
template <class T>
T plain_sum(std::vector<T> const& terms) {
  T volatile p[128] = {};
  for (std::size_t k = 0; k < terms.size(); ++k) p[k % 128] = p[k % 128] + terms[k];
  for (std::size_t stride = 1; stride <= 64; stride *= 2) {
    for (std::size_t i = 0; i + stride < 128; i += 2 * stride) p[i] = p[i] + p[i + stride];
  }
  return p[0];
}

std::vector<float> random_values(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> near(-3.0f, 3.0f);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = near(random) * std::exp2(near(random) * 4);
  return x;
}

// Keeps signs, so that cancellation makes the order visible.
struct plain_term {
  template <class L>
  L operator()(L x) const noexcept {
    return x;
  }
};

template <class L>
void check_block_sums() {
  auto const x = random_values(2048, 11);
  long wrong = 0;
  for (int n = 1; n <= 2048; ++n) {
    std::size_t const size = static_cast<std::size_t>(n);
    // one element further than the alignment of any lane; allocated to the padding's end exactly
    std::vector<float> tile(1 + (size + 127) / 128 * 128);
    std::vector<float> magnitudes(size), squares(size), plain(size);
    for (std::size_t k = 0; k < size; ++k) {
      tile[1 + k] = plain[k] = x[k];
      magnitudes[k] = std::fabs(x[k]);
      float const volatile square = x[k] * x[k];
      squares[k] = square;
    }
    wrong += bits_of(zoadam::block_sum<L>(tile.data() + 1, n, zoadam::abs_term{})) != bits_of(plain_sum(magnitudes));
    wrong += bits_of(zoadam::block_sum<L>(tile.data() + 1, n, zoadam::square_term{})) != bits_of(plain_sum(squares));
    wrong += bits_of(zoadam::block_sum<L>(tile.data() + 1, n, plain_term{})) != bits_of(plain_sum(plain));
  }
  CHECK(wrong == 0);
  // zeros of either sign sum to +0
  std::vector<float> const zeros(128, -0.0f);
  CHECK(bits_of(zoadam::block_sum<L>(zeros.data(), 128, plain_term{})) == 0);
}

}  // namespace

TEST_CASE("block_sum: n = 1 to 2048 against the plain loop, every lane") {
  SUBCASE("scalar") { check_block_sums<zoadam::f32>(); }
#if defined(ZOADAM_HAS_SSE2)
  SUBCASE("sse2") { check_block_sums<zoadam::f32x4>(); }
#endif
#if defined(ZOADAM_HAS_AVX2)
  SUBCASE("avx2") { check_block_sums<zoadam::f32x8>(); }
#endif
#if defined(ZOADAM_HAS_AVX512)
  SUBCASE("avx512") { check_block_sums<zoadam::f32x16>(); }
#endif
}

TEST_CASE("pairwise_sum: the same order in float64") {
  long wrong = 0;
  for (int n : {0, 1, 2, 3, 64, 127, 128, 129, 255, 256, 257, 1000, 5000}) {
    auto const x = random_values(n, 5);
    wrong +=
        bits_of(zoadam::pairwise_sum(x.data(), n)) != bits_of(plain_sum(std::vector<double>(x.begin(), x.end())));
  }
  CHECK(wrong == 0);
  // the order matters for these values, else the comparison would say nothing
  auto const x = random_values(5000, 5);
  double volatile forward = 0;
  for (float v : x) forward = forward + v;
  CHECK(bits_of(double(forward)) != bits_of(zoadam::pairwise_sum(x.data(), 5000)));
}

TEST_CASE("group scales: one rounding of the mean, then of the root; empty groups have scale 0") {
  CHECK(zoadam::group_scale_l1(0.0, 0) == 0.0f);
  CHECK(zoadam::group_scale_l1(5.0, 0) == 0.0f);
  CHECK(zoadam::group_scale_l1(0.0, 7) == 0.0f);
  CHECK(zoadam::group_scale_l2(0.0, 7) == 0.0f);
  CHECK(zoadam::group_scale_l2(5.0, 0) == 0.0f);
  CHECK(zoadam::group_scale_l1(3.0, 3) == 1.0f);
  CHECK(zoadam::group_scale_l2(12.0, 3) == 2.0f);
  std::mt19937 random(9);
  std::uniform_real_distribution<double> sums(1e-6, 1e6);
  long wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    double const sum = sums(random);
    auto const count = static_cast<zoadam::index>(random() % 100000 + 1);
    double const volatile mean = sum / static_cast<double>(count);
    float const volatile scale = static_cast<float>(mean);
    wrong += bits_of(zoadam::group_scale_l1(sum, count)) != bits_of(float(scale));
    double const volatile root = std::sqrt(double(scale));
    wrong += bits_of(zoadam::group_scale_l2(sum, count)) != bits_of(static_cast<float>(root));
  }
  CHECK(wrong == 0);
}
