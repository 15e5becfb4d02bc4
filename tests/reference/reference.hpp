// SPDX-License-Identifier: Apache-2.0
// Plain, slow references of zoadam's algorithms, written from the design text: the oracle of the property tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

// Every class holds all workers of a run and their state in public members. Real is double, or float to see what
// float32 state does (sums are accumulated in double all the same). Nothing here includes the library.
namespace reference {

using index = std::int64_t;
using flags = std::vector<bool>;
template <class Real>
using array = std::vector<Real>;
template <class Real>
using per_worker = std::vector<std::vector<Real>>;

/// An empty list of flags says yes everywhere.
inline bool is_set(flags const& list, std::size_t k) { return list.empty() || list[k]; }

// ---------------------------------------------------------------------------------------------------- geometry

enum class grouping { block, tensor, whole };
enum class norm { l1, l2 };

struct layout {
  int ranks = 1;
  std::vector<index> tensors;  // sizes, in order
  grouping groups = grouping::block;
  index block = 2048;
  norm scale = norm::l1;

  std::size_t elements() const {
    index sum = 0;
    for (auto const size : tensors) sum += size;
    return static_cast<std::size_t>(sum);
  }
};

struct range {
  index first;
  index end;
  bool operator==(range const&) const = default;
};

struct owned_range {
  int rank;
  index first;
  index end;
  bool operator==(owned_range const&) const = default;
};

/// The groups that share a scale on the worker side.
inline std::vector<range> worker_groups(layout const& l) {
  std::vector<range> result;
  index first = 0;
  if (l.groups == grouping::whole) {
    result.push_back({0, static_cast<index>(l.elements())});
  } else {
    for (auto const size : l.tensors) {
      index const length = l.groups == grouping::block ? l.block : size;
      for (index k = 0; k < size; k += length) result.push_back({first + k, first + std::min(size, k + length)});
      first += size;
    }
  }
  std::erase_if(result, [](range r) { return r.first == r.end; });
  return result;
}

/// The rank that owns each element.
inline std::vector<int> owners(layout const& l) {
  auto const ceil_div = [](index a, index b) { return (a + b - 1) / b; };
  std::vector<int> result;
  if (l.groups == grouping::block) {
    auto const blocks = worker_groups(l);
    auto const run = std::max<index>(1, ceil_div(static_cast<index>(blocks.size()), l.ranks));
    for (std::size_t b = 0; b < blocks.size(); ++b)
      for (index k = blocks[b].first; k < blocks[b].end; ++k)
        result.push_back(static_cast<int>(static_cast<index>(b) / run));
  } else {
    // Runs of whole units of 32 elements, over the whole buffer or over each tensor by itself.
    auto const sizes =
        l.groups == grouping::tensor ? l.tensors : std::vector<index>{static_cast<index>(l.elements())};
    for (auto const size : sizes) {
      auto const run = 32 * std::max<index>(1, ceil_div(ceil_div(size, 32), l.ranks));
      for (index k = 0; k < size; ++k) result.push_back(static_cast<int>(k / run));
    }
  }
  return result;
}

/// The groups that share a scale on the rank side: the worker's groups cut at chunk borders, in element order.
inline std::vector<owned_range> rank_groups(layout const& l) {
  auto const owner = owners(l);
  std::vector<owned_range> result;
  for (auto const& g : worker_groups(l))
    for (index k = g.first; k < g.end; ++k) {
      int const rank = owner[static_cast<std::size_t>(k)];
      if (k == g.first || rank != result.back().rank)
        result.push_back({rank, k, k + 1});
      else
        result.back().end = k + 1;
    }
  return result;
}

// --------------------------------------------------------------------------------------------------- schedules

struct every_step {
  bool due(index, index) const { return true; }
};

/// Steps at which the variance is updated.
struct doubling_interval {
  index kappa = 8;
  index stop = std::numeric_limits<index>::max();

  bool due(index t) const {
    index at = 1;
    for (index j = 0; at < t; ++j) at += index(1) << std::min<index>(j / kappa, 60);
    return at == t && t <= stop;
  }
};

inline index saturated_power(index exponent, index clip) {
  return exponent >= 62 ? clip : std::min(clip, index(1) << exponent);
}

/// Steps at which workers exchange, by the step; `last` is the step of the last exchange, 0 before the first.
struct local_steps {
  index start = 0;
  index period = 1;
  index clip = 16;

  index interval(index t) const { return t <= start ? 1 : saturated_power((t - start - 1) / period, clip); }
  bool due(index t, index last) const { return t - last >= interval(t); }
};

/// The same, by the learning rate.
struct learning_rate_interval {
  index start = 0;
  double peak = 1;
  index clip = 16;

  index interval(index t, double lr) const {
    if (t <= start) return 1;
    index power = 1;
    while (power < clip && static_cast<double>(2 * power) * lr <= peak) power *= 2;
    return std::min(power, clip);
  }
  bool due(index t, index last, double lr) const { return t - last >= interval(t, lr); }
};

/// The first step after `warmup` at which the variance has settled, 0 if none; norms[t] = |v_t|_1, norms[0] unused.
inline index freeze_step(std::vector<double> const& norms, double beta2, index warmup) {
  auto const delta = static_cast<std::size_t>(std::llround(1 / (1 - beta2)));
  for (std::size_t t = delta + 1; t < norms.size(); ++t)
    if (static_cast<index>(t) > warmup && norms[t] >= 0.96 * norms[t - delta]) return static_cast<index>(t);
  return 0;
}

// ----------------------------------------------------------------------------------------------- compressed mean

/// The mean of two phases, sign and scale on both, errors kept on both sides.
template <class Real>
struct compressed_mean {
  layout shape;
  per_worker<Real> worker_error;
  array<Real> server_error;                                 // each element's on its owner
  double margin = std::numeric_limits<double>::infinity();  // smallest |c| / scale met, exact zeros left out

  explicit compressed_mean(layout l)
      : shape(std::move(l)),
        worker_error(static_cast<std::size_t>(shape.ranks), array<Real>(shape.elements())),
        server_error(shape.elements()) {}

  /// `limit` bounds decoded magnitudes (empty: no limit); workers that do not contribute keep their error.
  array<Real> operator()(per_worker<Real> const& z, flags const& active = {}, array<Real> const& limit = {},
                         flags const& contributes = {}) {
    return rank_side(worker_side(z, active, limit, contributes), active, limit);
  }

  /// Phase one: the mean of the workers' quantized contributions, not quantized itself.
  array<Real> worker_side(per_worker<Real> const& z, flags const& active, array<Real> const& limit = {},
                          flags const& contributes = {}) {
    array<Real> sum(shape.elements());
    int count = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (!is_set(contributes, i)) continue;
      auto const q = quantize(z[i], worker_error[i], worker_groups(shape), active, limit);
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] = count == 0 ? q[k] : sum[k] + q[k];
      ++count;
    }
    if (count == 0) throw std::invalid_argument("compressed_mean: nobody contributes");
    for (auto& s : sum) s = s / static_cast<Real>(count);
    return sum;
  }

  /// Phase two: what every rank receives.
  array<Real> rank_side(array<Real> const& s, flags const& active, array<Real> const& limit = {}) {
    std::vector<range> groups;
    for (auto const& g : rank_groups(shape)) groups.push_back({g.first, g.end});
    return quantize(s, server_error, groups, active, limit);
  }

 private:
  array<Real> quantize(array<Real> const& input, array<Real>& error, std::vector<range> const& groups,
                       flags const& active, array<Real> const& limit) {
    array<Real> q(input.size());
    for (auto const& g : groups) {
      double sum = 0;
      index count = 0;
      for (auto k = static_cast<std::size_t>(g.first); k < static_cast<std::size_t>(g.end); ++k) {
        if (!is_set(active, k)) continue;
        auto const c = static_cast<double>(input[k] + error[k]);
        sum += shape.scale == norm::l1 ? std::abs(c) : c * c;
        ++count;
      }
      auto scale = count == 0 ? Real(0) : static_cast<Real>(sum / static_cast<double>(count));
      if (shape.scale == norm::l2) scale = std::sqrt(scale);
      for (auto k = static_cast<std::size_t>(g.first); k < static_cast<std::size_t>(g.end); ++k) {
        if (!is_set(active, k)) {
          error[k] = 0;
          continue;
        }
        Real const c = input[k] + error[k];
        Real const magnitude = limit.empty() ? scale : std::min(scale, limit[k]);
        q[k] = c < 0 ? -magnitude : magnitude;
        error[k] = c - q[k];
        if (c != 0) margin = std::min(margin, static_cast<double>(std::abs(c) / scale));
      }
    }
    return q;
  }
};

/// The full-precision mean, in rank order, over the workers that have a gradient; empty if none has.
template <class Real>
array<Real> exact_mean(per_worker<Real> const& g, flags const& missing = {}) {
  array<Real> sum;
  int count = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (!missing.empty() && missing[i]) continue;
    if (count == 0)
      sum = g[i];
    else
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] = sum[k] + g[i][k];
    ++count;
  }
  for (auto& s : sum) s = s / static_cast<Real>(count);
  return sum;
}

// ---------------------------------------------------------------------------------------------------- optimizers

struct adam_options {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool epsilon_inside = false;
  bool variance_bias_correction = true;
};

/// m <- beta1 m + (1 - beta1) g
template <class Real>
void update_momentum(array<Real>& m, array<Real> const& g, double beta1) {
  for (std::size_t k = 0; k < m.size(); ++k)
    m[k] = static_cast<Real>(beta1) * m[k] + static_cast<Real>(1 - beta1) * g[k];
}

/// v and the count of its updates.
template <class Real>
struct variance {
  adam_options options;
  array<Real> v;
  index count = 0;
  double power = 1;  // beta2^count

  variance(adam_options o, std::size_t elements) : options(o), v(elements) {}

  void update(array<Real> const& mean) {
    for (std::size_t k = 0; k < v.size(); ++k)
      v[k] = static_cast<Real>(options.beta2) * v[k] + static_cast<Real>(1 - options.beta2) * (mean[k] * mean[k]);
    ++count;
    power *= options.beta2;
  }

  flags active() const {
    flags result(v.size());
    for (std::size_t k = 0; k < v.size(); ++k) result[k] = v[k] > 0;
    return result;
  }

  /// D
  array<Real> denominator() const {
    bool const corrected = options.variance_bias_correction && count > 0;
    auto const epsilon = static_cast<Real>(options.epsilon);
    array<Real> result(v.size());
    for (std::size_t k = 0; k < v.size(); ++k) {
      Real const hat = corrected ? v[k] / static_cast<Real>(1 - power) : v[k];
      result[k] = options.epsilon_inside ? std::sqrt(hat + epsilon) : std::sqrt(hat) + epsilon;
    }
    return result;
  }
};

/// x <- x - lr (r + lambda x); inactive elements only decay.
template <class Real>
void move(array<Real>& x, array<Real> const& r, flags const& active, double lr, double weight_decay) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    Real const decay = static_cast<Real>(weight_decay) * x[k];
    x[k] = x[k] - static_cast<Real>(lr) * (is_set(active, k) ? r[k] + decay : decay);
  }
}

template <class Real>
array<Real> quotient(array<Real> const& a, array<Real> const& b) {
  array<Real> result(a.size());
  for (std::size_t k = 0; k < a.size(); ++k) result[k] = a[k] / b[k];
  return result;
}

enum class exchange_space { displacement, momentum_sum };
enum class momentum_rule { correct, replace };

struct zero_one_options : adam_options {
  exchange_space space = exchange_space::displacement;
  double weight_power = 1;  // p: 0, 0.5 or 1
  momentum_rule rule = momentum_rule::correct;
  double limit = 1;  // tau, of the displacement space; 0 = off
};

/// 0/1 Adam. The caller asks the schedules. `missing` marks workers whose gradient is bad at this step.
template <class Real>
struct zero_one_adam {
  zero_one_options options;
  compressed_mean<Real> mean;
  variance<Real> second;
  per_worker<Real> x;
  per_worker<Real> m;
  per_worker<Real> u;  // momentum_sum only
  array<Real> anchor;
  double lr_sum = 0;         // Gamma
  double decay_product = 1;  // P
  index window = 0;          // steps since the last exchange

  zero_one_adam(layout const& l, zero_one_options o, array<Real> const& x0)
      : options(o),
        mean(l),
        second(o, x0.size()),
        x(static_cast<std::size_t>(l.ranks), x0),
        m(x.size(), array<Real>(x0.size())),
        u(m),
        anchor(x0) {}

  void step(per_worker<Real> const& g, double lr, bool update_variance, bool exchange_now,
            flags const& missing = {}) {
    if (update_variance) {
      auto const average = exact_mean(g, missing);
      if (!average.empty()) second.update(average);
    }
    auto const d = second.denominator();
    auto const active = second.active();
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (missing.empty() || !missing[i]) update_momentum(m[i], g[i], options.beta1);
      move(x[i], quotient(m[i], d), active, lr, options.weight_decay);
      if (options.space == exchange_space::momentum_sum)
        for (std::size_t k = 0; k < anchor.size(); ++k)
          if (active[k]) u[i][k] = u[i][k] + static_cast<Real>(lr) * m[i][k];
    }
    lr_sum += lr;
    decay_product *= 1 - lr * options.weight_decay;
    ++window;
    if (exchange_now) exchange();
  }

  /// w of worker i: the way from the (decayed) anchor that it has not yet shared.
  array<Real> displacement(std::size_t i) const {
    array<Real> w(anchor.size());
    for (std::size_t k = 0; k < w.size(); ++k) w[k] = static_cast<Real>(decay_product) * anchor[k] - x[i][k];
    return w;
  }

  void exchange() {
    if (lr_sum != 0) {
      if (options.space == exchange_space::displacement)
        exchange_displacement();
      else
        exchange_momentum_sum();
      for (auto& worker : x) worker = anchor;
    }
    for (auto& worker : u) worker.assign(anchor.size(), Real(0));
    lr_sum = 0;
    decay_product = 1;
    window = 0;
  }

 private:
  bool replaces() const { return options.rule == momentum_rule::replace || window == 1; }

  void exchange_displacement() {
    auto const d = second.denominator();
    auto const active = second.active();
    auto const gamma = static_cast<Real>(lr_sum);
    array<Real> weight(d.size(), Real(1));
    array<Real> limit;
    for (std::size_t k = 0; k < d.size(); ++k) {
      if (options.weight_power == 0.5) weight[k] = std::sqrt(d[k]);
      if (options.weight_power == 1) weight[k] = d[k];
      if (options.limit != 0) limit.push_back(static_cast<Real>(options.limit) * gamma * weight[k]);
    }
    per_worker<Real> w;
    for (std::size_t i = 0; i < x.size(); ++i) w.push_back(displacement(i));
    per_worker<Real> z = w;
    for (auto& worker : z)
      for (std::size_t k = 0; k < d.size(); ++k) worker[k] = weight[k] * worker[k];
    auto const shared = quotient(mean(z, active, limit), weight);
    for (std::size_t k = 0; k < d.size(); ++k) {
      anchor[k] = static_cast<Real>(decay_product) * anchor[k] - shared[k];
      for (std::size_t i = 0; i < x.size(); ++i)
        if (active[k])
          m[i][k] = replaces() ? shared[k] * d[k] / gamma : m[i][k] + (shared[k] - w[i][k]) * d[k] / gamma;
    }
  }

  void exchange_momentum_sum() {
    auto const d = second.denominator();
    auto const active = second.active();
    auto const gamma = static_cast<Real>(lr_sum);
    auto const shared = mean(u, active);
    for (std::size_t k = 0; k < d.size(); ++k) {
      anchor[k] = static_cast<Real>(decay_product) * anchor[k] - shared[k] / d[k];
      for (std::size_t i = 0; i < x.size(); ++i)
        if (active[k]) m[i][k] = replaces() ? shared[k] / gamma : m[i][k] + (shared[k] - u[i][k]) / gamma;
    }
  }
};

/// 1-bit Adam; x and m are equal on all workers.
template <class Real>
struct onebit_adam {
  adam_options options;
  index freeze;  // the last full-precision step
  compressed_mean<Real> mean;
  variance<Real> second;
  array<Real> x;
  array<Real> m;
  index t = 0;

  onebit_adam(layout const& l, adam_options o, index freeze_at, array<Real> const& x0)
      : options(o), freeze(freeze_at), mean(l), second(o, x0.size()), x(x0), m(x0.size()) {}

  void step(per_worker<Real> const& g, double lr, flags const& missing = {}) {
    if (++t <= freeze) {
      auto const average = exact_mean(g, missing);
      if (!average.empty()) {
        second.update(average);
        update_momentum(m, average, options.beta1);
      }
    } else {
      auto const active = second.active();
      per_worker<Real> local(g.size(), m);
      for (std::size_t i = 0; i < g.size(); ++i)
        if (missing.empty() || !missing[i]) update_momentum(local[i], g[i], options.beta1);
      auto const shared = mean(local, active);
      for (std::size_t k = 0; k < m.size(); ++k)
        if (active[k]) m[k] = shared[k];
    }
    move(x, quotient(m, second.denominator()), second.active(), lr, options.weight_decay);
  }
};

/// The flat shard with the sign quantizer: gradients up, updates down.
template <class Real>
struct sharded_onebit_adam {
  adam_options options;
  index freeze;
  compressed_mean<Real> mean;
  variance<Real> second;
  array<Real> x;
  array<Real> m;
  index t = 0;

  sharded_onebit_adam(layout const& l, adam_options o, index freeze_at, array<Real> const& x0)
      : options(o), freeze(freeze_at), mean(l), second(o, x0.size()), x(x0), m(x0.size()) {}

  void step(per_worker<Real> const& g, double lr, flags const& missing = {}) {
    bool const anyone = missing.empty() || std::find(missing.begin(), missing.end(), false) != missing.end();
    array<Real> update;
    if (++t <= freeze) {
      if (anyone) {
        auto const average = exact_mean(g, missing);
        second.update(average);
        update_momentum(m, average, options.beta1);
      }
      update = quotient(m, second.denominator());
    } else {
      auto const active = second.active();
      flags contributes = missing;
      contributes.flip();
      if (anyone) {
        auto const average = mean.worker_side(g, active, {}, contributes);
        auto const before = m;
        update_momentum(m, average, options.beta1);
        for (std::size_t k = 0; k < m.size(); ++k)
          if (!active[k]) m[k] = before[k];
      }
      update = mean.rank_side(quotient(m, second.denominator()), active);
    }
    move(x, update, second.active(), lr, options.weight_decay);
  }
};

/// AdamW with both bias corrections on the full-precision mean.
template <class Real>
struct adam {
  adam_options options;
  variance<Real> second;
  array<Real> x;
  array<Real> m;
  double power = 1;  // beta1^count

  adam(adam_options o, array<Real> const& x0) : options(o), second(o, x0.size()), x(x0), m(x0.size()) {}

  void step(per_worker<Real> const& g, double lr, flags const& missing = {}) {
    auto const average = exact_mean(g, missing);
    if (!average.empty()) {
      second.update(average);
      update_momentum(m, average, options.beta1);
      power *= options.beta1;
    }
    auto hat = m;
    if (power != 1)
      for (auto& value : hat) value = value / static_cast<Real>(1 - power);
    move(x, quotient(hat, second.denominator()), second.active(), lr, options.weight_decay);
  }
};

// --------------------------------------------------------------------------- the published Python implementations
// No bias correction, no inactive elements, first gradient at step 2.

struct deepspeed_zero_one_options : adam_options {
  double lr = 0.001;
  index var_freeze_step = 0;
  index var_update_scaler = 1;
  index local_step_scaler = 1;
  index local_step_clipper = 16;
};

template <class Real>
struct deepspeed_zero_one_adam {
  deepspeed_zero_one_options options;
  compressed_mean<Real> mean;
  variance<Real> second;
  per_worker<Real> x;
  per_worker<Real> m;
  per_worker<Real> u;
  array<Real> anchor;
  double lr_sum = 0;
  index t = 1;
  bool frozen = false;
  index interval = 1;  // of variance updates, then of exchanges
  index counter = 0;

  deepspeed_zero_one_adam(layout const& l, deepspeed_zero_one_options o, array<Real> const& x0)
      : options(o),
        mean(l),
        second(o, x0.size()),
        x(static_cast<std::size_t>(l.ranks), x0),
        m(x.size(), array<Real>(x0.size())),
        u(m),
        anchor(x0) {
    second.options.variance_bias_correction = false;
  }

  void step(per_worker<Real> const& g) {
    ++t;
    if (frozen)
      local_step(g);
    else
      warmup_step(g);
  }

 private:
  void warmup_step(per_worker<Real> const& g) {
    bool const variance_step = t % interval == 0;
    auto const average = variance_step ? exact_mean(g) : mean(g);
    if (variance_step) second.update(average);
    for (std::size_t i = 0; i < x.size(); ++i) {
      update_momentum(m[i], average, options.beta1);
      move(x[i], quotient(m[i], second.denominator()), {}, options.lr, options.weight_decay);
    }
    if (variance_step && ++counter == options.var_update_scaler) {
      counter = 0;
      interval *= 2;
    }
    if (t > options.var_freeze_step) {
      frozen = true;
      mean = compressed_mean<Real>(mean.shape);
      anchor = x[0];
      interval = 1;
      counter = 0;
    }
  }

  void local_step(per_worker<Real> const& g) {
    auto const d = second.denominator();
    auto const lr = static_cast<Real>(options.lr);
    lr_sum += options.lr;
    for (std::size_t i = 0; i < x.size(); ++i) {
      update_momentum(m[i], g[i], options.beta1);
      for (std::size_t k = 0; k < d.size(); ++k) {
        Real const step = lr * (m[i][k] / d[k] + static_cast<Real>(options.weight_decay) * x[i][k]);
        u[i][k] = u[i][k] + step;
        x[i][k] = x[i][k] - step;
      }
    }
    if (t % interval == 0) {
      auto z = u;
      for (auto& worker : z)
        for (std::size_t k = 0; k < d.size(); ++k) worker[k] = worker[k] * d[k];
      auto const y = mean(z);
      for (std::size_t k = 0; k < d.size(); ++k) {
        anchor[k] = anchor[k] - y[k] / d[k];
        for (auto& worker : m) worker[k] = y[k] / static_cast<Real>(lr_sum);
      }
      for (auto& worker : x) worker = anchor;
      for (auto& worker : u) worker.assign(d.size(), Real(0));
      lr_sum = 0;
    }
    if (++counter == options.local_step_scaler) {
      counter = 0;
      interval = std::min(options.local_step_clipper, 2 * interval);
    }
  }
};

template <class Real>
struct deepspeed_onebit_adam {
  adam_options options;
  double lr;
  index freeze;
  compressed_mean<Real> mean;
  variance<Real> second;
  array<Real> x;
  array<Real> m;
  index t = 1;

  deepspeed_onebit_adam(layout const& l, adam_options o, double rate, index freeze_at, array<Real> const& x0)
      : options(o), lr(rate), freeze(freeze_at), mean(l), second(o, x0.size()), x(x0), m(x0.size()) {
    second.options.variance_bias_correction = false;
  }

  void step(per_worker<Real> const& g) {
    if (++t <= freeze) {
      auto const average = exact_mean(g);
      second.update(average);
      update_momentum(m, average, options.beta1);
    } else {
      per_worker<Real> local(g.size(), m);
      for (std::size_t i = 0; i < g.size(); ++i) update_momentum(local[i], g[i], options.beta1);
      m = mean(local);
    }
    move(x, quotient(m, second.denominator()), {}, lr, options.weight_decay);
  }
};

}  // namespace reference
