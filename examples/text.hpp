// SPDX-License-Identifier: Apache-2.0
// The text to learn: the King James Bible or any file, split into training and validation, and a trigram baseline.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace example {

/// A text as numbers below alphabet.size(): character alphabet[k] is k.
struct corpus {
  std::string alphabet;
  std::vector<std::uint8_t> training, validation;
  std::string held_out;  // what the validation text is, for people
};

/// Books kept out of the training text, as the `bible` program abbreviates them: from both testaments, long and
/// short, narrative, wisdom, prophecy, gospel and epistles; 7 % of the text.
inline constexpr std::string_view held_out_books[] = {"Josh", "Ruth", "Eccl", "Dan", "Jonah", "Mark", "Gal", "Jas"};

namespace detail {

/// The book of a line "1Sm3:4 text" ("1Sm"), and where its text starts; empty if the line is not of that form.
struct verse_tag {
  std::string_view book;
  std::size_t text;
};

inline verse_tag find_tag(std::string_view line) {
  constexpr std::string_view digits = "0123456789";
  std::size_t const colon = line.find(':');
  std::size_t const space = line.find(' ');
  if (colon == std::string_view::npos || space == std::string_view::npos || space < colon + 2) return {};
  if (line.substr(colon + 1, space - colon - 1).find_first_not_of(digits) != std::string_view::npos) return {};
  std::size_t const last = line.substr(0, colon).find_last_not_of(digits);
  if (last == std::string_view::npos || last + 1 == colon) return {};
  for (char const c : line.substr(0, last + 1)) {
    bool const letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && digits.find(c) == std::string_view::npos) return {};
  }
  return {line.substr(0, last + 1), space + 1};
}

}  // namespace detail

/// Splits a text. If every line carries a verse reference ("Ge1:1 In the beginning ..."), the references are dropped
/// and the held-out books become the validation text; any other text is validated on its last tenth.
inline corpus split_text(std::string_view raw) {
  std::string training, validation;
  corpus c;
  bool tagged = !raw.empty();
  for (std::size_t at = 0; tagged && at < raw.size();) {
    std::size_t const end = std::min(raw.find('\n', at), raw.size());
    std::string_view const line = raw.substr(at, end - at);
    detail::verse_tag const tag = detail::find_tag(line);
    tagged = !tag.book.empty();
    bool held_out = false;
    for (std::string_view const book : held_out_books) held_out = held_out || book == tag.book;
    if (tagged) (held_out ? validation : training).append(line.substr(tag.text)).push_back('\n');
    at = end + 1;
  }
  if (tagged && !training.empty() && !validation.empty()) {
    c.held_out = "books";
    for (std::string_view const book : held_out_books) c.held_out.append(" ").append(book);
  } else {
    training = raw.substr(0, raw.size() - raw.size() / 10);
    validation = raw.substr(training.size());
    c.held_out = "the last tenth";
  }

  bool seen[256] = {};
  std::uint8_t number[256] = {};
  for (char const letter : training) seen[static_cast<unsigned char>(letter)] = true;
  for (char const letter : validation) seen[static_cast<unsigned char>(letter)] = true;
  for (int k = 0; k < 256; ++k) {
    if (!seen[k]) continue;
    number[k] = static_cast<std::uint8_t>(c.alphabet.size());
    c.alphabet.push_back(static_cast<char>(k));
  }
  for (char const letter : training) c.training.push_back(number[static_cast<unsigned char>(letter)]);
  for (char const letter : validation) c.validation.push_back(number[static_cast<unsigned char>(letter)]);
  return c;
}

/// The output of a command; throws if it fails.
inline std::string output_of(std::string const& command) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) throw std::runtime_error("cannot run: " + command);
  std::string text;
  char buffer[1 << 16];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe.get())) > 0;) text.append(buffer, n);
  if (pclose(pipe.release()) != 0) throw std::runtime_error("failed: " + command);
  return text;
}

/// The King James Bible, one tagged verse per line, from the `bible` program.
inline std::string king_james() {
  try {
    return output_of("bible -f gen1:1-rev22:21 </dev/null 2>/dev/null");
  } catch (std::runtime_error const&) {
    throw std::runtime_error("no text: install the `bible` program (apt-get install bible-kjv) or give --text FILE");
  }
}

inline std::string read_file(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) throw std::runtime_error("cannot read the text file '" + path + "'");
  return text;
}

/// Character trigrams, interpolated with bigrams and single characters: every order adds `strength` imagined counts
/// spread as the order below it predicts, and the lowest adds one to every character.
class trigram_model {
 public:
  explicit trigram_model(std::span<std::uint8_t const> text, std::size_t alphabet, double strength = 8)
      : alphabet_(alphabet),
        strength_(strength),
        one_(alphabet),
        two_(alphabet * alphabet),
        three_(alphabet * alphabet * alphabet),
        after_one_(alphabet),
        after_two_(alphabet * alphabet) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      total_ += 1;
      one_[text[i]] += 1;
      if (i < 1) continue;
      two_[pair(text[i - 1], text[i])] += 1;
      after_one_[text[i - 1]] += 1;
      if (i < 2) continue;
      three_[pair(text[i - 2], text[i - 1]) * alphabet_ + text[i]] += 1;
      after_two_[pair(text[i - 2], text[i - 1])] += 1;
    }
  }

  /// Probability of `next` after `before` and `last`.
  [[nodiscard]] double probability(std::uint8_t before, std::uint8_t last, std::uint8_t next) const {
    double p = (one_[next] + 1.0) / (total_ + static_cast<double>(alphabet_));
    p = (two_[pair(last, next)] + strength_ * p) / (after_one_[last] + strength_);
    return (three_[pair(before, last) * alphabet_ + next] + strength_ * p) /
           (after_two_[pair(before, last)] + strength_);
  }

  /// Mean over the characters of `text` from the third on, in nats.
  [[nodiscard]] double cross_entropy(std::span<std::uint8_t const> text) const {
    if (text.size() < 3) throw std::invalid_argument("trigram: a text of at least three characters is needed");
    double sum = 0;
    for (std::size_t i = 2; i < text.size(); ++i) sum -= std::log(probability(text[i - 2], text[i - 1], text[i]));
    return sum / static_cast<double>(text.size() - 2);
  }

 private:
  [[nodiscard]] std::size_t pair(std::uint8_t a, std::uint8_t b) const { return a * alphabet_ + b; }

  std::size_t alphabet_;
  double strength_;
  double total_ = 0;
  std::vector<double> one_, two_, three_, after_one_, after_two_;
};

}  // namespace example
