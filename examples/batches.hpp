// SPDX-License-Identifier: Apache-2.0
// Which characters a model sees: random windows for training, all windows side by side for validation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "gpt.hpp"

namespace example {

/// splitmix64: a good hash of one number.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Sequences of a text, and the character that follows each of theirs.
class window_batch {
 public:
  window_batch(std::span<std::uint8_t const> text, index context)
      : text_(text), context_(static_cast<std::size_t>(context)) {
    if (text.size() <= context_) throw std::invalid_argument("the text is shorter than one sequence of --context");
  }

  /// Draws windows at places that depend on seed, step and rank alone: every optimizer sees the same data.
  void draw(std::uint64_t seed, index step, int rank, index sequences) {
    clear();
    std::uint64_t const stream =
        mix(mix(mix(seed) ^ static_cast<std::uint64_t>(step)) ^ static_cast<std::uint64_t>(rank));
    for (index i = 0; i < sequences; ++i) {
      append(mix(stream + static_cast<std::uint64_t>(i)) % (text_.size() - context_));
    }
  }
  void append(std::size_t first) {
    auto const at = text_.begin() + static_cast<std::ptrdiff_t>(first);
    auto const length = static_cast<std::ptrdiff_t>(context_);
    tokens_.insert(tokens_.end(), at, at + length);
    targets_.insert(targets_.end(), at + 1, at + length + 1);
  }
  void clear() {
    tokens_.clear();
    targets_.clear();
  }

  [[nodiscard]] std::span<std::uint8_t const> tokens() const { return tokens_; }
  [[nodiscard]] std::span<std::uint8_t const> targets() const { return targets_; }
  /// How many windows fit side by side; window i starts at i * context.
  [[nodiscard]] std::size_t side_by_side() const { return (text_.size() - 1) / context_; }

 private:
  std::span<std::uint8_t const> text_;
  std::size_t context_;
  std::vector<std::uint8_t> tokens_, targets_;
};

/// A second model that scores given parameters on a text.
class judge {
 public:
  struct score {
    double loss = 0;  // summed over the windows
    double windows = 0;
  };

  judge(std::span<std::uint8_t const> text, gpt_shape const& shape, index sequences)
      : model_(shape, sequences, 0), batch_(text, shape.context), sequences_(static_cast<std::size_t>(sequences)) {}

  /// Takes parameters tensor by tensor: of(i) is a span.
  template <class Tensors>
  void load(Tensors const& of) {
    index i = 0;
    for (tensor_info const& t : model_.tensors()) {
      std::span<float const> const values = of(i++);
      std::copy(values.begin(), values.end(), model_.parameters().begin() + t.offset);
    }
  }

  /// Windows first, first + stride, ...: the ranks share the work.
  [[nodiscard]] score evaluate(std::size_t first, std::size_t stride) {
    auto const context = static_cast<std::size_t>(model_.shape().context);
    score total;
    for (std::size_t window = first; window < batch_.side_by_side();) {
      batch_.clear();
      std::size_t count = 0;
      for (; count < sequences_ && window < batch_.side_by_side(); window += stride, ++count) {
        batch_.append(window * context);
      }
      total.loss += model_.loss(batch_.tokens(), batch_.targets()) * static_cast<double>(count);
      total.windows += static_cast<double>(count);
    }
    return total;
  }

  /// Mean loss of about `windows` windows spread over the text: for a look on the way.
  [[nodiscard]] double sample(std::size_t windows) {
    score const s = evaluate(0, 1 + (batch_.side_by_side() - 1) / windows);
    return s.loss / s.windows;
  }

 private:
  gpt<float> model_;
  window_batch batch_;
  std::size_t sequences_;
};

}  // namespace example
