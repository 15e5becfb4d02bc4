// SPDX-License-Identifier: Apache-2.0
// A perceptron on a device: layers relu(x w + b), the last one without relu and under a softmax. Matrices lie row by
// row, an image per row. The matrix product is the caller's; everything else is one of the small kernels here.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device.hpp"
#include "zoadam/layout/tensor.hpp"

namespace example {

/// Images of bytes and what they show, on a device.
struct device_images {
  device_array<std::uint8_t> images;  // count x pixels
  device_array<std::uint8_t> labels;
};

namespace kernels {

__device__ inline int thread_number() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

/// w = uniform in [-bound, bound), by a hash of the seed and the place: the same on every rank.
static __global__ void start(float* w, int n, float bound, std::uint64_t seed) {
  int const i = thread_number();
  if (i >= n) return;
  std::uint64_t h = (seed + static_cast<std::uint64_t>(i)) * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
  w[i] = bound * (static_cast<float>(h >> 40) * 0x1p-23f - 1.0f);
}

/// Row i of x = image order[i], in [0, 1].
static __global__ void gather(std::uint8_t const* images, int const* order, int n, int pixels, float* x) {
  int const i = thread_number();
  if (i >= n) return;
  std::size_t const first = static_cast<std::size_t>(order[i / pixels]) * static_cast<std::size_t>(pixels);
  x[i] = static_cast<float>(images[first + static_cast<std::size_t>(i % pixels)]) / 255.0f;
}

static __global__ void add_bias(float* y, float const* b, int n, int columns, bool relu) {
  int const i = thread_number();
  if (i >= n) return;
  float const sum = y[i] + b[i % columns];
  y[i] = relu && sum < 0 ? 0.0f : sum;
}

/// dy = 0 where relu gave y = 0.
static __global__ void relu_gradient(float* dy, float const* y, int n) {
  int const i = thread_number();
  if (i < n && !(y[i] > 0)) dy[i] = 0;
}

/// A thread per column adds its rows in order, so that the bits do not depend on the schedule.
static __global__ void sum_columns(float const* x, int rows, int columns, float* sums) {
  int const column = thread_number();
  if (column >= columns) return;
  float sum = 0;
  for (int row = 0; row < rows; ++row) sum += x[row * columns + column];
  sums[column] = sum;
}

/// A thread per row: (cross entropy, 1 if the largest logit is the label's) into score, and the gradient of the mean
/// cross entropy by the logits.
static __global__ void softmax(float const* logits, std::uint8_t const* labels, int const* order, int rows,
                               int classes, float* gradient, float* score) {
  int const row = thread_number();
  if (row >= rows) return;
  float const* const z = logits + row * classes;
  int const label = labels[order[row]];
  int best = 0;
  for (int k = 1; k < classes; ++k) best = z[k] > z[best] ? k : best;
  float sum = 0;
  for (int k = 0; k < classes; ++k) sum += expf(z[k] - z[best]);
  for (int k = 0; k < classes; ++k) {
    float const probability = expf(z[k] - z[best]) / sum;
    gradient[row * classes + k] = (probability - (k == label ? 1.0f : 0.0f)) / static_cast<float>(rows);
  }
  score[2 * row] = logf(sum) + z[best] - z[label];
  score[2 * row + 1] = best == label ? 1.0f : 0.0f;
}

}  // namespace kernels

/// Gemm(transpose_a, transpose_b, m, n, k, a, b, c) enqueues c = a b into the same stream: c is m x n; a is m x k, or
/// k x m if it is to be transposed; so with b.
template <class Gemm>
class mlp {
 public:
  /// @param widths  pixels, hidden units of each layer, classes
  /// @param rows    the most images at a time
  mlp(std::vector<int> const& widths, int rows, std::uint64_t seed, cudaStream_t stream, Gemm gemm)
      : stream_(stream), gemm_(std::move(gemm)), x_(rows * widths[0]), score_(rows * 2) {
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
      layers_.emplace_back(widths[l], widths[l + 1], rows);
      layer const& each = layers_.back();
      float const bound = std::sqrt(6.0f / static_cast<float>(each.in));
      enqueue(kernels::start, each.w.size(), stream_, each.w.data(), each.w.size(), bound, (seed << 40) + (l << 32));
      enqueue(kernels::start, each.b.size(), stream_, each.b.data(), each.b.size(), 0.0f, seed);
    }
  }

  /// What an optimizer takes: parameters and their gradients.
  std::vector<zoadam::tensor> tensors() const {
    std::vector<zoadam::tensor> all;
    for (layer const& each : layers_) {
      std::string const number = std::to_string(all.size() / 2);
      all.push_back({"w" + number, {each.in, each.out}, each.w.span(), each.dw.span()});
      all.push_back({"b" + number, {each.out}, each.b.span(), each.db.span()});
    }
    return all;
  }

  /// sums[0] = cross entropy, sums[1] = right answers, over images order[0], ..., order[rows - 1].
  void score(device_images const& data, int const* order, int rows, float* sums) {
    enqueue(kernels::gather, rows * layers_[0].in, stream_, data.images.data(), order, rows * layers_[0].in,
            layers_[0].in, x_.data());
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      layer const& each = layers_[l];
      gemm_(false, false, rows, each.out, each.in, input(l), each.w.data(), each.y.data());
      enqueue(kernels::add_bias, rows * each.out, stream_, each.y.data(), each.b.data(), rows * each.out, each.out,
              l + 1 < layers_.size());
    }
    layer const& last = layers_.back();
    enqueue(kernels::softmax, rows, stream_, last.y.data(), data.labels.data(), order, rows, last.out, last.dy.data(),
            score_.data());
    enqueue(kernels::sum_columns, 2, stream_, score_.data(), rows, 2, sums);
  }

  /// score(), and the gradients of the mean cross entropy of these images.
  void score_and_gradients(device_images const& data, int const* order, int rows, float* sums) {
    score(data, order, rows, sums);
    for (std::size_t l = layers_.size(); l-- > 0;) {
      layer const& each = layers_[l];
      gemm_(true, false, each.in, each.out, rows, input(l), each.dy.data(), each.dw.data());
      enqueue(kernels::sum_columns, each.out, stream_, each.dy.data(), rows, each.out, each.db.data());
      if (l == 0) break;
      layer const& below = layers_[l - 1];
      gemm_(false, true, rows, each.in, each.out, each.dy.data(), each.w.data(), below.dy.data());
      enqueue(kernels::relu_gradient, rows * below.out, stream_, below.dy.data(), below.y.data(), rows * below.out);
    }
  }

 private:
  struct layer {
    layer(int inputs, int outputs, int rows)
        : in(inputs), out(outputs), w(in * out), b(out), dw(in * out), db(out), y(rows * out), dy(rows * out) {}
    int in, out;
    device_array<float> w, b, dw, db, y, dy;
  };
  float const* input(std::size_t l) const { return l == 0 ? x_.data() : layers_[l - 1].y.data(); }

  cudaStream_t stream_;
  Gemm gemm_;
  device_array<float> x_, score_;
  std::vector<layer> layers_;
};

}  // namespace example
