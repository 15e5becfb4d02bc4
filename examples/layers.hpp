// SPDX-License-Identifier: Apache-2.0
// The layers of a small transformer, forward and backward by hand, on one thread: OpenBLAS for the products, plain
// loops that compilers vectorise for the rest. Every sum has a fixed order, so equal inputs give equal bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <cblas.h>

#include "zoadam/config.hpp"

namespace example {

using zoadam::index;

/// A row-major matrix that somebody else owns; `stride` elements from one row to the next.
template <class Real>
struct matrix {
  Real* data;
  index rows, columns, stride;
  bool flipped = false;  // read as its transpose

  matrix(Real* first, index row_count, index column_count, index row_stride)
      : data(first), rows(row_count), columns(column_count), stride(row_stride) {}
  matrix(Real* first, index row_count, index column_count) : matrix(first, row_count, column_count, column_count) {}

  [[nodiscard]] Real* row(index i) const noexcept { return data + i * stride; }
  [[nodiscard]] matrix transposed() const noexcept {
    matrix other = *this;
    other.flipped = !flipped;
    return other;
  }
};

/// c <- alpha a b + beta c.
template <class Real>
void multiply(matrix<Real> const& a, matrix<Real> const& b, matrix<Real> const& c, Real beta = 0, Real alpha = 1) {
  auto const order = [](matrix<Real> const& x) { return x.flipped ? CblasTrans : CblasNoTrans; };
  auto const inner = static_cast<int>(a.flipped ? a.rows : a.columns);
  auto const rows = static_cast<int>(c.rows), columns = static_cast<int>(c.columns);
  auto const lda = static_cast<int>(a.stride), ldb = static_cast<int>(b.stride), ldc = static_cast<int>(c.stride);
  if constexpr (sizeof(Real) == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, order(a), order(b), rows, columns, inner, alpha, a.data, lda, b.data, ldb, beta,
                c.data, ldc);
  } else {
    cblas_dgemm(CblasRowMajor, order(a), order(b), rows, columns, inner, alpha, a.data, lda, b.data, ldb, beta,
                c.data, ldc);
  }
}

/// Sum of term(0), ..., term(n - 1) in 16 interleaved partial sums: vectorises without reassociation by the compiler.
template <class Real, class Term>
Real sum(index n, Term term) {
  constexpr index lanes = 16;
  Real partial[lanes] = {};
  index k = 0;
  for (; k + lanes <= n; k += lanes) {
    for (index lane = 0; lane < lanes; ++lane) partial[lane] += term(k + lane);
  }
  for (index lane = 0; k + lane < n; ++lane) partial[lane] += term(k + lane);
  for (index half = lanes / 2; half > 0; half /= 2) {
    for (index lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  return partial[0];
}

/// e^x. In single precision a branch-free polynomial that vectorises: relative error below 2e-7 on [-87, 88], clamped
/// to that range.
inline double exponential(double x) { return std::exp(x); }
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, found in the lowest bits
  float const shifted = x * 1.44269504f + shift;
  float const n = shifted - shift;
  float const r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127) << 23);
}

/// y <- x wᵀ + bias, or y <- y + x wᵀ + bias when `accumulate`: the residual connection.
template <class Real>
void linear(matrix<Real> const& x, matrix<Real> const& weight, Real const* bias, matrix<Real> const& y,
            bool accumulate = false) {
  for (index i = 0; i < y.rows; ++i) {
    Real* const row = y.row(i);
    if (accumulate) {
      for (index k = 0; k < y.columns; ++k) row[k] += bias[k];
    } else {
      for (index k = 0; k < y.columns; ++k) row[k] = bias[k];
    }
  }
  multiply(x, weight.transposed(), y, Real(1));
}

/// dx <- dy w, and the gradients of weight and bias are added to.
template <class Real>
void linear_backward(matrix<Real> const& x, matrix<Real> const& weight, matrix<Real> const& dy,
                     matrix<Real> const& dx, matrix<Real> const& dweight, Real* dbias) {
  multiply(dy, weight, dx);
  multiply(dy.transposed(), x, dweight, Real(1));
  for (index i = 0; i < dy.rows; ++i) {
    Real const* const row = dy.row(i);
    for (index k = 0; k < dy.columns; ++k) dbias[k] += row[k];
  }
}

/// Layer norm of every row: unit <- (x - mean) / deviation, y <- gain unit + bias; keeps 1 / deviation for the way
/// back.
template <class Real>
void layer_norm(matrix<Real> const& x, Real const* gain, Real const* bias, matrix<Real> const& unit, Real* inverse,
                matrix<Real> const& y) {
  index const width = x.columns;
  for (index i = 0; i < x.rows; ++i) {
    Real const* const in = x.row(i);
    Real* const u = unit.row(i);
    Real* const out = y.row(i);
    Real const mean = sum<Real>(width, [=](index k) { return in[k]; }) / Real(width);
    Real const variance = sum<Real>(width, [=](index k) { return (in[k] - mean) * (in[k] - mean); }) / Real(width);
    Real const scale = 1 / std::sqrt(variance + Real(1e-5));
    inverse[i] = scale;
    for (index k = 0; k < width; ++k) {
      u[k] = (in[k] - mean) * scale;
      out[k] = gain[k] * u[k] + bias[k];
    }
  }
}

/// dx <- dx + the gradient through the norm: dx already carries what flows along the residual connection.
template <class Real>
void layer_norm_backward(matrix<Real> const& unit, Real const* inverse, Real const* gain, matrix<Real> const& dy,
                         matrix<Real> const& dx, Real* dgain, Real* dbias) {
  index const width = unit.columns;
  for (index i = 0; i < unit.rows; ++i) {
    Real const* const u = unit.row(i);
    Real const* const d = dy.row(i);
    Real* const out = dx.row(i);
    Real const mean = sum<Real>(width, [=](index k) { return d[k] * gain[k]; }) / Real(width);
    Real const slope = sum<Real>(width, [=](index k) { return d[k] * gain[k] * u[k]; }) / Real(width);
    Real const scale = inverse[i];
    for (index k = 0; k < width; ++k) {
      out[k] += scale * (d[k] * gain[k] - mean - u[k] * slope);
      dgain[k] += d[k] * u[k];
      dbias[k] += d[k];
    }
  }
}

namespace detail {
// gelu(x) = x sigmoid(z(x)) with z(x) = 2 sqrt(2 / pi) (x + 0.044715 x^3): the tanh form.
template <class Real>
inline constexpr Real gelu_slope = Real(1.5957691216057308);
template <class Real>
inline constexpr Real gelu_cubic = Real(0.044715);

template <class Real>
Real gelu_gate(Real x) {
  return 1 / (1 + exponential(-gelu_slope<Real> * (x + gelu_cubic<Real> * x * x * x)));
}
}  // namespace detail

template <class Real>
void gelu(Real const* x, index n, Real* y) {
  for (index k = 0; k < n; ++k) y[k] = x[k] * detail::gelu_gate(x[k]);
}

/// dx <- dy gelu'(x); dx may be dy.
template <class Real>
void gelu_backward(Real const* x, Real const* dy, index n, Real* dx) {
  for (index k = 0; k < n; ++k) {
    Real const gate = detail::gelu_gate(x[k]);
    Real const slope = detail::gelu_slope<Real> * (1 + 3 * detail::gelu_cubic<Real> * x[k] * x[k]);
    dx[k] = dy[k] * gate * (1 + x[k] * (1 - gate) * slope);
  }
}

/// Softmax of x[0..n) in place. Returns the logarithm of the sum of exponentials.
template <class Real>
Real softmax(Real* x, index n) {
  Real largest = x[0];
  for (index k = 1; k < n; ++k) largest = x[k] > largest ? x[k] : largest;
  for (index k = 0; k < n; ++k) x[k] = exponential(x[k] - largest);
  Real const total = sum<Real>(n, [=](index k) { return x[k]; });
  Real const scale = 1 / total;
  for (index k = 0; k < n; ++k) x[k] *= scale;
  return largest + std::log(total);
}

/// One head of causal self-attention for one sequence: weights <- softmax(q kᵀ / sqrt(width)), y <- weights v.
template <class Real>
void attention(matrix<Real> const& q, matrix<Real> const& k, matrix<Real> const& v, matrix<Real> const& weights,
               matrix<Real> const& y) {
  multiply(q, k.transposed(), weights, Real(0), 1 / std::sqrt(Real(q.columns)));
  for (index i = 0; i < weights.rows; ++i) {
    Real* const row = weights.row(i);
    softmax(row, i + 1);
    for (index j = i + 1; j < weights.columns; ++j) row[j] = 0;
  }
  multiply(weights, v, y);
}

/// Gradients of one head; `dweights` is scratch of the size of `weights`.
template <class Real>
void attention_backward(matrix<Real> const& q, matrix<Real> const& k, matrix<Real> const& v,
                        matrix<Real> const& weights, matrix<Real> const& dy, matrix<Real> const& dweights,
                        matrix<Real> const& dq, matrix<Real> const& dk, matrix<Real> const& dv) {
  multiply(weights.transposed(), dy, dv);
  multiply(dy, v.transposed(), dweights);
  for (index i = 0; i < weights.rows; ++i) {
    Real const* const w = weights.row(i);
    Real* const d = dweights.row(i);
    Real const mean = sum<Real>(i + 1, [=](index j) { return w[j] * d[j]; });
    for (index j = 0; j < weights.columns; ++j) d[j] = w[j] * (d[j] - mean);  // w is 0 beyond the diagonal
  }
  Real const scale = 1 / std::sqrt(Real(q.columns));
  multiply(dweights, k, dq, Real(0), scale);
  multiply(dweights.transposed(), q, dk, Real(0), scale);
}

}  // namespace example
