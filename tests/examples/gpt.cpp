// SPDX-License-Identifier: Apache-2.0
// The example GPT: its hand-written gradient against finite differences, its single precision against double.
#include "../../examples/gpt.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

namespace {

using example::index;

constexpr example::gpt_shape small{.vocabulary = 13, .context = 19, .width = 24, .layers = 2, .heads = 3};
constexpr index sequences = 2;

struct batch {
  std::vector<std::uint8_t> tokens, targets;
};

batch some_batch(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  batch b;
  for (index i = 0; i < sequences * small.context; ++i) {
    b.tokens.push_back(static_cast<std::uint8_t>(generator() % 13));
    b.targets.push_back(static_cast<std::uint8_t>(generator() % 13));
  }
  return b;
}

// The initial weights are so small that attention is nearly uniform: larger ones make every term count.
template <class Real>
example::gpt<Real> some_model() {
  example::gpt<Real> model(small, sequences, 7);
  std::mt19937_64 generator(5);
  std::uniform_real_distribution<double> uniform(-0.3, 0.3);
  for (Real& p : model.parameters()) p += static_cast<Real>(static_cast<float>(uniform(generator)));
  return model;
}

}  // namespace

TEST_CASE("the gradient of every tensor agrees with finite differences") {
  auto model = some_model<double>();
  batch const b = some_batch(1);
  model.loss_and_gradient(b.tokens, b.targets);
  std::vector<double> const gradient = model.gradients();
  double constexpr h = 1e-5;
  for (example::tensor_info const& t : model.tensors()) {
    CAPTURE(t.name);
    double largest = 0, worst = 0;
    for (index k = 0; k < t.size; k += std::max<index>(1, t.size / 37)) {
      auto const place = static_cast<std::size_t>(t.offset + k);
      double& p = model.parameters()[place];
      double const kept = p;
      p = kept + h;
      double const above = model.loss(b.tokens, b.targets);
      p = kept - h;
      double const below = model.loss(b.tokens, b.targets);
      p = kept;
      double const numeric = (above - below) / (2 * h);
      largest = std::max(largest, std::abs(numeric));
      worst = std::max(worst, std::abs(numeric - gradient[place]));
    }
    CHECK(largest > 1e-5);  // else the tensor would not have been tested
    CHECK(worst < 1e-9 + 1e-6 * largest);
  }
}

TEST_CASE("single precision agrees with double") {
  auto wide = some_model<double>();
  auto narrow = some_model<float>();
  for (std::size_t i = 0; i < wide.parameters().size(); ++i) wide.parameters()[i] = narrow.parameters()[i];
  batch const b = some_batch(2);
  double const expected = wide.loss_and_gradient(b.tokens, b.targets);
  CHECK(narrow.loss_and_gradient(b.tokens, b.targets) == doctest::Approx(expected).epsilon(1e-6));
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < wide.gradients().size(); ++i) {
    double const d = static_cast<double>(narrow.gradients()[i]) - wide.gradients()[i];
    difference += d * d;
    size += wide.gradients()[i] * wide.gradients()[i];
  }
  CHECK(std::sqrt(difference) < 3e-6 * std::sqrt(size));
}

TEST_CASE("causal: a position does not see later characters") {
  auto model = some_model<double>();
  batch b = some_batch(3);
  model.loss_and_gradient(b.tokens, b.targets);
  auto const loss_of_first = [&] {
    // The loss of position 0 alone: what changes when only its target changes.
    double const one = model.loss(b.tokens, b.targets);
    auto other = b.targets;
    other[0] = static_cast<std::uint8_t>((other[0] + 1) % 13);
    return model.loss(b.tokens, other) - one;
  };
  double const before = loss_of_first();
  for (std::size_t i = 1; i < b.tokens.size(); ++i) b.tokens[i] = static_cast<std::uint8_t>((b.tokens[i] + 5) % 13);
  CHECK(loss_of_first() == doctest::Approx(before).epsilon(1e-9));
  b.tokens[0] = static_cast<std::uint8_t>((b.tokens[0] + 5) % 13);
  CHECK(std::abs(loss_of_first() - before) > 1e-3);
}

TEST_CASE("equal seeds give equal bits, other seeds other parameters") {
  batch const b = some_batch(4);
  example::gpt<float> one(small, sequences, 11), two(small, sequences, 11), other(small, sequences, 12);
  CHECK(one.parameters() == two.parameters());
  CHECK(one.parameters() != other.parameters());
  CHECK(one.loss_and_gradient(b.tokens, b.targets) == two.loss_and_gradient(b.tokens, b.targets));
  CHECK(one.gradients() == two.gradients());
  one.loss_and_gradient(b.tokens, b.targets);  // nothing of an earlier step remains
  CHECK(one.gradients() == two.gradients());
}

TEST_CASE("the fast exponential is accurate and clamped") {
  double worst = 0;
  for (int i = -86999; i < 88000; ++i) {
    float const x = static_cast<float>(i) * 1e-3f;
    double const exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(example::exponential(x)) - exact) / exact);
  }
  CHECK(worst < 2e-7);
  CHECK(example::exponential(0.0f) == 1.0f);
  CHECK(example::exponential(-1e30f) == example::exponential(-87.0f));
  CHECK(example::exponential(1e30f) == example::exponential(88.0f));
}

TEST_CASE("wrong shapes and batches are refused") {
  CHECK_THROWS_WITH(example::gpt<float>({.vocabulary = 5, .context = 4, .width = 10, .layers = 1, .heads = 4}, 1, 0),
                    doctest::Contains("multiple of heads"));
  CHECK_THROWS_WITH(example::gpt<float>({.vocabulary = 0}, 1, 0), doctest::Contains("vocabulary"));
  CHECK_THROWS_WITH(example::gpt<float>({.vocabulary = 5, .layers = 0}, 1, 0), doctest::Contains("positive"));
  auto model = some_model<float>();
  std::vector<std::uint8_t> const tokens(static_cast<std::size_t>(small.context + 1), 0);
  CHECK_THROWS_WITH(model.loss(tokens, tokens), doctest::Contains("whole sequences"));
}
