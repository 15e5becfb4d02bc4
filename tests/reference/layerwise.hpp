// SPDX-License-Identifier: Apache-2.0
// Plain, slow references of the optimizers whose steps are scaled on each tensor.
#pragma once

#include "reference.hpp"

namespace reference {

template <class Real>
double norm_of(array<Real> const& a, range r) {
  double sum = 0;
  for (index k = r.first; k < r.end; ++k) sum += static_cast<double>(a[std::size_t(k)]) * double(a[std::size_t(k)]);
  return std::sqrt(sum);
}
inline std::vector<range> tensors_of(layout const& l) {
  std::vector<range> result;
  index first = 0;
  for (index const n : l.tensors) result.push_back({first, first + n}), first += n;
  return result;
}

struct lamb_options : adam_options {
  index freeze = std::numeric_limits<index>::max();  // never: LAMB
  bool published = false;                            // no corrections, no inactive elements, first gradient at step 2
  double least = 0, most = std::numeric_limits<double>::infinity(), beta = 0.9;
  double least_factor = 0.5, most_factor = 4, factor_step = 0.1;
};

/// LAMB, and 1-bit LAMB where it freezes; everything is equal on all workers.
template <class Real>
struct lamb {
  lamb_options options;
  compressed_mean<Real> mean;
  variance<Real> second;
  array<Real> x, m, fresh;
  std::vector<double> average, scale, factor;  // of each tensor
  double power = 1;                            // beta1^count
  index t;

  lamb(layout const& l, lamb_options o, array<Real> const& x0)
      : options(o),
        mean(l),
        second(o, x0.size()),
        x(x0),
        m(x0.size()),
        average(l.tensors.size()),
        factor(l.tensors.size(), 1.0),
        t(o.published ? 1 : 0) {
    if (o.published) second.options.variance_bias_correction = false;
  }

  void step(per_worker<Real> const& g, double lr, flags const& missing = {}) {
    if (++t <= options.freeze) {
      auto const mean_gradient = exact_mean(g, missing);
      if (!mean_gradient.empty()) {
        second.update(mean_gradient);
        update_momentum(m, mean_gradient, options.beta1);
        power *= options.beta1;
      }
      fresh = second.v;
    } else {
      exchange(g, missing);
    }
    auto const tensors = tensors_of(mean.shape);
    auto const prelim = direction();
    auto update = prelim;
    for (std::size_t k = 0; k < x.size(); ++k) update[k] = update[k] + static_cast<Real>(options.weight_decay) * x[k];
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      double const ratio = t <= options.freeze ? warmup_ratio(i, tensors[i], update)
                                               : average[i] * next_factor(i, tensors[i], update, prelim);
      for (auto k = std::size_t(tensors[i].first); k < std::size_t(tensors[i].end); ++k)
        x[k] = x[k] - static_cast<Real>(lr * ratio) * update[k];
    }
  }

 private:
  flags active() const { return options.published ? flags(x.size(), true) : second.active(); }

  array<Real> direction() const {
    auto u = quotient(m, second.denominator());
    auto const counts = active();
    for (std::size_t k = 0; k < u.size(); ++k) {
      if (!options.published && power != 1) u[k] = u[k] / static_cast<Real>(1 - power);
      if (!counts[k]) u[k] = 0;
    }
    return u;
  }

  double warmup_ratio(std::size_t i, range r, array<Real> const& update) {
    double const weight = norm_of(x, r), length = norm_of(update, r);
    if (weight == 0 || length == 0) return 1;
    double const ratio = std::min(std::max(weight / length, options.least), options.most);
    average[i] = options.beta * average[i] + (1 - options.beta) * ratio;
    return ratio;
  }

  double next_factor(std::size_t i, range r, array<Real> const& update, array<Real> const& prelim) {
    auto other = second;
    other.v = fresh;
    auto const d = second.denominator(), d_fresh = other.denominator();
    auto const counts = active();
    double f = 0;
    for (auto k = std::size_t(r.first); k < std::size_t(r.end); ++k)
      if (counts[k]) f = std::max(f, double(d[k]) / double(d_fresh[k]));
    double const length = norm_of(update, r), without = norm_of(prelim, r);
    double const share = length == 0 || without == 0 ? 1 : std::min(1.0, without / length);
    f = f * share + (1 - share);
    f = std::min(std::max(f, options.least_factor), options.most_factor);
    f = std::min(std::max(f, factor[i] * (1 - options.factor_step)), factor[i] * (1 + options.factor_step));
    return factor[i] = f;
  }

  void exchange(per_worker<Real> const& g, flags const& missing) {
    auto const tensors = tensors_of(mean.shape);
    if (scale.empty()) {
      double sum = 0;
      int filled = 0;
      for (auto const& r : tensors) {
        double const rms = r.end > r.first ? norm_of(m, r) / std::sqrt(double(r.end - r.first)) : 0;
        scale.push_back(rms);
        sum += rms;
        filled += r.end > r.first;
      }
      for (double& s : scale) s = s > 0 ? sum / filled / s : 1;
    }
    per_worker<Real> local(g.size(), m);
    for (std::size_t i = 0; i < g.size(); ++i) {
      if (missing.empty() || !missing[i]) update_momentum(local[i], g[i], options.beta1);
      scaled(local[i], tensors, false);
    }
    auto const counts = active();
    auto shared = mean(local, counts);
    scaled(shared, tensors, true);
    auto const beta1 = static_cast<Real>(options.beta1), beta2 = static_cast<Real>(options.beta2);
    for (std::size_t k = 0; k < m.size(); ++k) {
      if (!counts[k]) continue;
      Real const gradient = (shared[k] - beta1 * m[k]) / (1 - beta1);
      fresh[k] = beta2 * fresh[k] + (1 - beta2) * (gradient * gradient);
      m[k] = shared[k];
    }
  }
  void scaled(array<Real>& a, std::vector<range> const& tensors, bool back) const {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      for (auto k = std::size_t(tensors[i].first); k < std::size_t(tensors[i].end); ++k)
        a[k] = static_cast<Real>(back ? double(a[k]) / scale[i] : double(a[k]) * scale[i]);
  }
};

/// LARS as in its paper; the ratio is 1 where a norm is 0.
template <class Real>
struct lars {
  layout shape;
  double momentum, weight_decay, trust;
  array<Real> x, m;

  lars(layout l, double beta, double decay, double trust_coefficient, array<Real> const& x0)
      : shape(std::move(l)), momentum(beta), weight_decay(decay), trust(trust_coefficient), x(x0), m(x0.size()) {}

  void step(per_worker<Real> const& g, double lr, flags const& missing = {}) {
    auto const mean = exact_mean(g, missing);
    for (auto const& r : tensors_of(shape)) {
      double const weight = norm_of(x, r), length = mean.empty() ? 0 : norm_of(mean, r);
      double const ratio = weight > 0 && length > 0 ? trust * weight / (length + weight_decay * weight) : 1;
      for (auto k = std::size_t(r.first); k < std::size_t(r.end); ++k) {
        if (!mean.empty())
          m[k] = static_cast<Real>(momentum * double(m[k]) +
                                   lr * ratio * (double(mean[k]) + weight_decay * double(x[k])));
        x[k] = x[k] - m[k];
      }
    }
  }
};

}  // namespace reference
