// SPDX-License-Identifier: Apache-2.0
// The example's text: the split by books, the split of plain text, and the trigram baseline against hand counts.
#include "../../examples/text.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

std::string spell(example::corpus const& c, std::vector<std::uint8_t> const& text) {
  std::string letters;
  for (std::uint8_t const k : text) letters.push_back(c.alphabet[k]);
  return letters;
}

}  // namespace

TEST_CASE("tagged verses are split by whole books and lose their references") {
  example::corpus const c = example::split_text(
      "Ge1:1 In the: beginning\n"
      "Ruth1:1 Now it came\n"
      "Ruth4:22 And Obed\n"
      "1Sm1:1 Now there was\n"
      "Jas5:20 Let him know\n"
      "Rev22:21 Amen.\n");
  CHECK(spell(c, c.training) == "In the: beginning\nNow there was\nAmen.\n");
  CHECK(spell(c, c.validation) == "Now it came\nAnd Obed\nLet him know\n");
  CHECK(c.held_out.starts_with("books "));
}

TEST_CASE("other text is validated on its last tenth") {
  for (std::string const text : {"0123456789abcdefghij", "Ge1:1 one\nno tag\n\n\n\n", "Ge1:1 only\nGe1:2 one\n---"}) {
    CAPTURE(text);
    example::corpus const c = example::split_text(text);
    CHECK(c.held_out == "the last tenth");
    CHECK(c.validation.size() == 2);
    CHECK(spell(c, c.training) + spell(c, c.validation) == text);
  }
  // Tagged, but without a held-out book: the references stay too.
  example::corpus const c = example::split_text("Ge1:1 a\nGe1:2 b\n");
  CHECK(spell(c, c.training) + spell(c, c.validation) == "Ge1:1 a\nGe1:2 b\n");
}

TEST_CASE("the alphabet is the sorted set of characters of both parts") {
  example::corpus const c = example::split_text(
      "bbbbaaaa\xff"
      "aaaaaaaaaz");
  CHECK(c.alphabet == "abz\xff");
  CHECK(example::split_text("").alphabet.empty());
}

TEST_CASE("trigram probabilities: hand counts, and they sum to one") {
  std::vector<std::uint8_t> const text = {0, 1, 2, 0, 1, 2, 0, 1, 0};
  example::trigram_model const model(text, 4, 2.0);
  // After (0, 1): seen 3 times, followed by 2 twice. After 1: seen 3 times, by 2 twice. 2 itself: 2 of 9.
  double const one = (2 + 1.0) / (9 + 4), two = (2 + 2 * one) / (3 + 2), three = (2 + 2 * two) / (3 + 2);
  CHECK(model.probability(0, 1, 2) == doctest::Approx(three).epsilon(1e-14));
  for (std::uint8_t a = 0; a < 4; ++a) {
    for (std::uint8_t b = 0; b < 4; ++b) {
      double total = 0;
      for (std::uint8_t c = 0; c < 4; ++c) total += model.probability(a, b, c);
      CHECK(total == doctest::Approx(1).epsilon(1e-14));
    }
  }
  std::vector<std::uint8_t> const probe = {0, 1, 2, 3};
  double const expected = -(std::log(three) + std::log(model.probability(1, 2, 3))) / 2;
  CHECK(model.cross_entropy(probe) == doctest::Approx(expected).epsilon(1e-14));
  CHECK_THROWS_WITH(static_cast<void>(model.cross_entropy(std::vector<std::uint8_t>{0, 1})),
                    doctest::Contains("three characters"));
}

TEST_CASE("missing sources are one clear sentence") {
  CHECK_THROWS_WITH(example::read_file("/nonexistent/text"), "cannot read the text file '/nonexistent/text'");
  CHECK_THROWS_WITH(example::output_of("exit 3"), doctest::Contains("exit 3"));
  CHECK(example::output_of("printf 'a b'") == "a b");
}
