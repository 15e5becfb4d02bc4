// SPDX-License-Identifier: Apache-2.0
// A small GPT over characters: parameters and gradients in two flat vectors, as a data-parallel trainer wants them.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "layers.hpp"

namespace example {

struct gpt_shape {
  index vocabulary = 0;
  index context = 64;
  index width = 128;
  index layers = 4;
  index heads = 4;
};

/// A named piece of the flat parameter and gradient vectors.
struct tensor_info {
  std::string name;
  std::vector<index> shape;
  index offset;
  index size;
};

/// Pre-norm transformer with learned positions; the token embedding serves as the output matrix too.
/// Holds one set of parameters and the activations of up to `batch` sequences. No allocation after construction.
template <class Real>
class gpt {
 public:
  using token = std::uint8_t;

  gpt(gpt_shape const& shape, index batch, std::uint64_t seed) : shape_(shape), batch_(batch) {
    if (shape.vocabulary < 1 || shape.vocabulary > 256) throw std::invalid_argument("gpt: vocabulary not in 1..256");
    if (shape.context < 1 || shape.width < 1 || shape.layers < 1 || shape.heads < 1 || batch < 1) {
      throw std::invalid_argument("gpt: context, width, layers, heads and batch must be positive");
    }
    if (shape.width % shape.heads != 0) throw std::invalid_argument("gpt: width is not a multiple of heads");
    declare_parameters();
    initialize(seed);
    allocate_activations();
  }

  [[nodiscard]] std::vector<tensor_info> const& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::vector<Real>& parameters() noexcept { return parameters_; }
  [[nodiscard]] std::vector<Real> const& gradients() const noexcept { return gradients_; }
  [[nodiscard]] gpt_shape const& shape() const noexcept { return shape_; }

  /// Mean cross entropy, in nats, of `targets` given `tokens`: whole sequences of `context` characters each.
  double loss(std::span<token const> tokens, std::span<token const> targets) {
    forward(tokens);
    double total = 0;
    for (index i = 0; i < rows_; ++i) total += row_loss(i, targets);
    return total / static_cast<double>(rows_);
  }

  /// The same, and its gradient with respect to every parameter in gradients().
  double loss_and_gradient(std::span<token const> tokens, std::span<token const> targets) {
    double const value = loss(tokens, targets);
    backward(tokens, targets);
    return value;
  }

 private:
  /// Where a layer's tensors lie in the flat vectors.
  struct layer_offsets {
    index norm1_gain, norm1_bias, qkv, qkv_bias, project, project_bias;
    index norm2_gain, norm2_bias, up, up_bias, down, down_bias;
  };

  /// What a norm keeps for the way back.
  struct norm_activations {
    std::vector<Real> unit, inverse, y;
    norm_activations(index rows, index width)
        : unit(room(rows * width)), inverse(room(rows)), y(room(rows * width)) {}
  };

  struct layer_activations {
    norm_activations norm1, norm2;
    std::vector<Real> qkv, weights, mixed, up, hidden;
  };

  static std::size_t room(index n) { return static_cast<std::size_t>(n); }

  index declare(std::string name, std::vector<index> shape) {
    index size = 1;
    for (index const extent : shape) size *= extent;
    index const offset = tensors_.empty() ? 0 : tensors_.back().offset + tensors_.back().size;
    tensors_.push_back({std::move(name), std::move(shape), offset, size});
    return offset;
  }

  void declare_parameters() {
    index const c = shape_.width;
    embedding_ = declare("token_embedding", {shape_.vocabulary, c});
    position_ = declare("position_embedding", {shape_.context, c});
    for (index l = 0; l < shape_.layers; ++l) {
      std::string const at = "layer" + std::to_string(l) + ".";
      layer_offsets o{};
      o.norm1_gain = declare(at + "norm1.gain", {c});
      o.norm1_bias = declare(at + "norm1.bias", {c});
      o.qkv = declare(at + "qkv.weight", {3 * c, c});
      o.qkv_bias = declare(at + "qkv.bias", {3 * c});
      o.project = declare(at + "project.weight", {c, c});
      o.project_bias = declare(at + "project.bias", {c});
      o.norm2_gain = declare(at + "norm2.gain", {c});
      o.norm2_bias = declare(at + "norm2.bias", {c});
      o.up = declare(at + "up.weight", {4 * c, c});
      o.up_bias = declare(at + "up.bias", {4 * c});
      o.down = declare(at + "down.weight", {c, 4 * c});
      o.down_bias = declare(at + "down.bias", {c});
      layers_.push_back(o);
    }
    norm_gain_ = declare("norm.gain", {c});
    norm_bias_ = declare("norm.bias", {c});
  }

  /// As in GPT-2: N(0, 0.02), smaller where a matrix writes to the residual stream; gains 1, biases 0.
  void initialize(std::uint64_t seed) {
    std::size_t const total = room(tensors_.back().offset + tensors_.back().size);
    parameters_.assign(total, Real(0));
    gradients_.assign(total, Real(0));
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal;
    double const residual = 1 / std::sqrt(2 * static_cast<double>(shape_.layers));
    for (tensor_info const& t : tensors_) {
      bool const writes_residual = t.name.ends_with("project.weight") || t.name.ends_with("down.weight");
      double const deviation = 0.02 * (writes_residual ? residual : 1.0);
      for (index k = 0; k < t.size; ++k) {
        Real& value = *at(t.offset + k);
        if (t.shape.size() > 1) value = static_cast<Real>(deviation * normal(generator));
        if (t.name.ends_with("gain")) value = 1;
      }
    }
  }

  void allocate_activations() {
    index const rows = batch_ * shape_.context, c = shape_.width;
    for (index l = 0; l < shape_.layers; ++l) {
      activations_.push_back({norm_activations(rows, c), norm_activations(rows, c),
                              std::vector<Real>(room(rows * 3 * c)),
                              std::vector<Real>(room(batch_ * shape_.heads * shape_.context * shape_.context)),
                              std::vector<Real>(room(rows * c)), std::vector<Real>(room(rows * 4 * c)),
                              std::vector<Real>(room(rows * 4 * c))});
    }
    stream_.resize(room(rows * c));
    logits_.resize(room(rows * shape_.vocabulary));
    dstream_.resize(room(rows * c));
    dnarrow_.resize(room(rows * c));
    dwide_.resize(room(rows * 4 * c));
    dweights_.resize(room(shape_.context * shape_.context));
  }

  Real* at(index offset) noexcept { return parameters_.data() + offset; }
  Real* slope(index offset) noexcept { return gradients_.data() + offset; }
  matrix<Real> weight(index offset, index rows, index columns) noexcept { return {at(offset), rows, columns}; }
  matrix<Real> dweight(index offset, index rows, index columns) noexcept { return {slope(offset), rows, columns}; }
  matrix<Real> view(std::vector<Real>& x, index columns) noexcept { return {x.data(), rows_, columns}; }

  /// One head's columns of one sequence: part 0, 1, 2 of a qkv matrix, or part 0 of a plain one.
  matrix<Real> head(std::vector<Real>& x, index columns, index sequence, index part, index h) noexcept {
    index const size = shape_.width / shape_.heads;
    return {x.data() + sequence * shape_.context * columns + part * shape_.width + h * size, shape_.context, size,
            columns};
  }
  matrix<Real> head_weights(layer_activations& a, index sequence, index h) noexcept {
    index const t = shape_.context;
    return {a.weights.data() + (sequence * shape_.heads + h) * t * t, t, t};
  }

  void norm(norm_activations& n, index gain, index bias) {
    index const c = shape_.width;
    layer_norm(view(stream_, c), at(gain), at(bias), view(n.unit, c), n.inverse.data(), view(n.y, c));
  }
  void norm_backward(norm_activations& n, index gain, index bias) {
    index const c = shape_.width;
    layer_norm_backward(view(n.unit, c), n.inverse.data(), at(gain), view(dnarrow_, c), view(dstream_, c),
                        slope(gain), slope(bias));
  }

  void forward(std::span<token const> tokens) {
    index const c = shape_.width, t = shape_.context;
    rows_ = static_cast<index>(tokens.size());
    if (rows_ == 0 || rows_ % t != 0 || rows_ > batch_ * t) {
      throw std::invalid_argument("gpt: tokens must be 1 to `batch` whole sequences of `context` characters");
    }
    for (index i = 0; i < rows_; ++i) {
      Real const* const word = at(embedding_ + tokens[room(i)] * c);
      Real const* const place = at(position_ + i % t * c);
      Real* const out = stream_.data() + i * c;
      for (index k = 0; k < c; ++k) out[k] = word[k] + place[k];
    }
    for (index l = 0; l < shape_.layers; ++l) {
      layer_offsets const& o = layers_[room(l)];
      layer_activations& a = activations_[room(l)];
      norm(a.norm1, o.norm1_gain, o.norm1_bias);
      linear(view(a.norm1.y, c), weight(o.qkv, 3 * c, c), at(o.qkv_bias), view(a.qkv, 3 * c));
      for (index s = 0; s < rows_ / t; ++s) {
        for (index h = 0; h < shape_.heads; ++h) {
          attention(head(a.qkv, 3 * c, s, 0, h), head(a.qkv, 3 * c, s, 1, h), head(a.qkv, 3 * c, s, 2, h),
                    head_weights(a, s, h), head(a.mixed, c, s, 0, h));
        }
      }
      linear(view(a.mixed, c), weight(o.project, c, c), at(o.project_bias), view(stream_, c), true);
      norm(a.norm2, o.norm2_gain, o.norm2_bias);
      linear(view(a.norm2.y, c), weight(o.up, 4 * c, c), at(o.up_bias), view(a.up, 4 * c));
      gelu(a.up.data(), rows_ * 4 * c, a.hidden.data());
      linear(view(a.hidden, 4 * c), weight(o.down, c, 4 * c), at(o.down_bias), view(stream_, c), true);
    }
    norm(last_norm_, norm_gain_, norm_bias_);
    multiply(view(last_norm_.y, c), weight(embedding_, shape_.vocabulary, c).transposed(),
             view(logits_, shape_.vocabulary));
  }

  /// Cross entropy of one position; its logits become probabilities.
  double row_loss(index i, std::span<token const> targets) {
    Real* const row = logits_.data() + i * shape_.vocabulary;
    Real const logit = row[targets[room(i)]];
    return static_cast<double>(softmax(row, shape_.vocabulary) - logit);
  }

  void backward(std::span<token const> tokens, std::span<token const> targets) {
    index const c = shape_.width, t = shape_.context, words = shape_.vocabulary;
    gradients_.assign(gradients_.size(), Real(0));

    Real const share = 1 / static_cast<Real>(rows_);
    for (index i = 0; i < rows_; ++i) {
      Real* const row = logits_.data() + i * words;  // probabilities become the gradient of the logits
      row[targets[room(i)]] -= 1;
      for (index k = 0; k < words; ++k) row[k] *= share;
    }
    multiply(view(logits_, words), weight(embedding_, words, c), view(dnarrow_, c));
    multiply(view(logits_, words).transposed(), view(last_norm_.y, c), dweight(embedding_, words, c), Real(1));
    dstream_.assign(dstream_.size(), Real(0));
    norm_backward(last_norm_, norm_gain_, norm_bias_);

    for (index l = shape_.layers; l-- > 0;) {
      layer_offsets const& o = layers_[room(l)];
      layer_activations& a = activations_[room(l)];
      linear_backward(view(a.hidden, 4 * c), weight(o.down, c, 4 * c), view(dstream_, c), view(dwide_, 4 * c),
                      dweight(o.down, c, 4 * c), slope(o.down_bias));
      gelu_backward(a.up.data(), dwide_.data(), rows_ * 4 * c, dwide_.data());
      linear_backward(view(a.norm2.y, c), weight(o.up, 4 * c, c), view(dwide_, 4 * c), view(dnarrow_, c),
                      dweight(o.up, 4 * c, c), slope(o.up_bias));
      norm_backward(a.norm2, o.norm2_gain, o.norm2_bias);

      linear_backward(view(a.mixed, c), weight(o.project, c, c), view(dstream_, c), view(dnarrow_, c),
                      dweight(o.project, c, c), slope(o.project_bias));
      for (index s = 0; s < rows_ / t; ++s) {
        for (index h = 0; h < shape_.heads; ++h) {
          attention_backward(head(a.qkv, 3 * c, s, 0, h), head(a.qkv, 3 * c, s, 1, h), head(a.qkv, 3 * c, s, 2, h),
                             head_weights(a, s, h), head(dnarrow_, c, s, 0, h), {dweights_.data(), t, t},
                             head(dwide_, 3 * c, s, 0, h), head(dwide_, 3 * c, s, 1, h),
                             head(dwide_, 3 * c, s, 2, h));
        }
      }
      linear_backward(view(a.norm1.y, c), weight(o.qkv, 3 * c, c), view(dwide_, 3 * c), view(dnarrow_, c),
                      dweight(o.qkv, 3 * c, c), slope(o.qkv_bias));
      norm_backward(a.norm1, o.norm1_gain, o.norm1_bias);
    }

    for (index i = 0; i < rows_; ++i) {
      Real const* const d = dstream_.data() + i * c;
      Real* const word = slope(embedding_ + tokens[room(i)] * c);
      Real* const place = slope(position_ + i % t * c);
      for (index k = 0; k < c; ++k) {
        word[k] += d[k];
        place[k] += d[k];
      }
    }
  }

  gpt_shape shape_;
  index batch_;
  index rows_ = 0;  // positions of the batch at hand
  std::vector<tensor_info> tensors_;
  std::vector<Real> parameters_, gradients_;
  index embedding_ = 0, position_ = 0, norm_gain_ = 0, norm_bias_ = 0;
  std::vector<layer_offsets> layers_;

  std::vector<layer_activations> activations_;
  norm_activations last_norm_{batch_ * shape_.context, shape_.width};
  std::vector<Real> stream_, logits_;                       // the residual stream, updated in place
  std::vector<Real> dstream_, dnarrow_, dwide_, dweights_;  // gradients on the way back
};

}  // namespace example
