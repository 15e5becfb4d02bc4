// SPDX-License-Identifier: Apache-2.0
// Running numbers of the host: the window since the last exchange, and the count of variance updates.
#pragma once

#include <limits>
#include <vector>

#include "zoadam/detail/describe.hpp"
#include "zoadam/lane/f64.hpp"
#include "zoadam/layout/tensor.hpp"
#include "zoadam/state/coefficients.hpp"

namespace zoadam::detail {

/// Gamma = sum of learning rates and P = product of 1 - lr * weight_decay since the last exchange, per group.
class window {
 public:
  void start(std::size_t groups) { each_.assign(groups, {}); }

  /// Whether every group's rate is 0, or well within float32, so that formulas can divide by sums of them.
  static bool takes(double lr, std::vector<parameter_group> const& groups) noexcept {
    for (parameter_group const& g : groups) {
      double const rate = (f64(lr) * f64(g.lr_factor)).v;
      if (lr > 0 && !(rate >= 0x1p-126 && rate <= 0x1p64)) return false;
    }
    return true;
  }
  void add(double lr, std::vector<parameter_group> const& groups) noexcept {
    for (std::size_t g = 0; g < each_.size(); ++g) {
      f64 const rate = f64(lr) * f64(groups[g].lr_factor);
      each_[g].gamma = each_[g].gamma + rate;
      each_[g].decay = each_[g].decay * (f64(1.0) - rate * f64(groups[g].weight_decay));
    }
    ++steps_;
  }
  void close() noexcept {
    for (per_group& e : each_) e = {};
    steps_ = 0;
  }

  /// Steps since the last exchange.
  index steps() const noexcept { return steps_; }
  /// Whether all of them had learning rate 0.
  bool empty() const noexcept { return each_[0].gamma.v == 0; }
  double gamma(std::size_t g) const noexcept { return each_[g].gamma.v; }

  void fill(coefficients<float>& k, std::size_t g, double lr, parameter_group const& group) const noexcept {
    k.lr = (f64(lr) * f64(group.lr_factor)).to_float();
    k.weight_decay = static_cast<float>(group.weight_decay);
    k.gamma = each_[g].gamma.to_float();
    k.decay = each_[g].decay.to_float();
  }
  std::uint64_t hash(double lr) const noexcept {
    hasher sink;
    sink("window", lr, steps_);
    for (per_group const& e : each_) sink("", e.gamma.v, e.decay.v);
    return sink.value();
  }

 private:
  struct per_group {
    f64 gamma = f64(0.0), decay = f64(1.0);
  };
  std::vector<per_group> each_;
  index steps_ = 0;
};

/// k and the running products beta1^k, beta2^k.
class moment_count {
 public:
  index count() const noexcept { return count_; }

  template <class Options>
  void advance(Options const& o) noexcept {
    ++count_;
    power1_ = power1_ * f64(o.beta1);
    power2_ = power2_ * f64(o.beta2);
  }

  /// missing: this worker has no gradient, so moments of its own stay as they are.
  template <class Options>
  void fill(coefficients<float>& k, Options const& o, bool missing) const noexcept {
    f64 const one(1.0);
    k.beta1 = static_cast<float>(o.beta1);
    k.one_minus_beta1 = (one - f64(o.beta1)).to_float();
    k.beta2 = static_cast<float>(o.beta2);
    k.one_minus_beta2 = (one - f64(o.beta2)).to_float();
    k.own_beta1 = missing ? 1.0f : k.beta1;
    k.own_one_minus_beta1 = missing ? 0.0f : k.one_minus_beta1;
    k.own_beta2 = missing ? 1.0f : k.beta2;
    k.own_one_minus_beta2 = missing ? 0.0f : k.one_minus_beta2;
    k.bias1 = count_ > 0 ? (one - power1_).to_float() : 1.0f;
    k.bias2 = count_ > 0 && o.bias_correction ? (one - power2_).to_float() : 1.0f;
    k.epsilon_inside = o.epsilon_inside ? static_cast<float>(o.epsilon) : 0.0f;
    k.epsilon = o.epsilon_inside ? 0.0f : static_cast<float>(o.epsilon);
    k.limit = static_cast<float>(o.limit);
    k.unlimited = o.limit > 0 ? 0.0f : std::numeric_limits<float>::max();
  }

 private:
  index count_ = 0;
  f64 power1_ = f64(1.0), power2_ = f64(1.0);
};

}  // namespace zoadam::detail
