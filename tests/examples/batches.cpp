// SPDX-License-Identifier: Apache-2.0
// The example's batches: data order, alignment of targets, and the sharing of the validation text by the ranks.
#include "../../examples/batches.hpp"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

namespace {

std::vector<std::uint8_t> counting(std::size_t n) {
  std::vector<std::uint8_t> text(n);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  return text;
}

std::vector<std::uint8_t> drawn(example::window_batch& batch, std::uint64_t seed, int step, int rank) {
  batch.draw(seed, step, rank, 6);
  return {batch.tokens().begin(), batch.tokens().end()};
}

}  // namespace

TEST_CASE("targets are the next characters, and draws depend on seed, step and rank alone") {
  auto const text = counting(100);
  example::window_batch batch(text, 5), again(text, 5);
  std::set<std::vector<std::uint8_t>> seen;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (int step = 1; step < 5; ++step) {
      for (int rank = 0; rank < 4; ++rank) {
        auto const tokens = drawn(batch, seed, step, rank);
        REQUIRE(tokens.size() == 30);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          CHECK(batch.targets()[i] == tokens[i] + 1);
          if (i % 5 > 0) CHECK(tokens[i] == tokens[i - 1] + 1);
        }
        CHECK(tokens == drawn(again, seed, step, rank));
        seen.insert(tokens);
      }
    }
  }
  CHECK(seen.size() == 3 * 4 * 4);
}

TEST_CASE("every place of the text is drawn, the last one too") {
  auto const text = counting(12);  // starts 0 ... 6: the target of the last one is the last character
  example::window_batch batch(text, 5);
  std::set<int> starts;
  for (int step = 0; step < 100; ++step) starts.insert(drawn(batch, 1, step, 0)[0]);
  CHECK(starts == std::set<int>{0, 1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH(example::window_batch(counting(5), 5), doctest::Contains("--context"));
}

TEST_CASE("ranks share the validation text without gaps or repeats") {
  std::vector<std::uint8_t> text(8 * 23 + 5);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(example::mix(i) % 7);
  example::gpt_shape const shape{.vocabulary = 7, .context = 8, .width = 8, .layers = 1, .heads = 2};
  example::gpt<float> source(shape, 1, 3);
  for (float& p : source.parameters()) p *= 20;  // away from the uniform guess

  example::judge judge(text, shape, 3);
  judge.load([&](example::index i) {
    example::tensor_info const& t = source.tensors()[static_cast<std::size_t>(i)];
    return std::span<float const>(source.parameters())
        .subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size));
  });
  double expected = 0;
  for (std::size_t w = 0; w < 23; ++w) {
    expected += source.loss(std::span(text).subspan(w * 8, 8), std::span(text).subspan(w * 8 + 1, 8));
  }
  for (std::size_t const ranks : {1u, 2u, 3u, 5u, 30u}) {
    example::judge::score total;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto const part = judge.evaluate(rank, ranks);
      total.loss += part.loss;
      total.windows += part.windows;
    }
    CHECK(total.windows == 23);
    CHECK(total.loss == doctest::Approx(expected).epsilon(1e-6));
  }
  CHECK(judge.sample(1000) == doctest::Approx(expected / 23).epsilon(1e-6));
  CHECK(std::abs(expected / 23 - std::log(7.0)) > 0.01);
}
