// SPDX-License-Identifier: Apache-2.0
// Running numbers of the host: the window since the last exchange.
#pragma once

#include <vector>

#include "zoadam/detail/describe.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/lane/f64.hpp"
#include "zoadam/layout/tensor.hpp"

namespace zoadam::detail {

/// Gamma = sum of learning rates and P = product of 1 - lr * weight_decay since the last exchange, per group.
class window {
 public:
  void start(std::size_t groups) { each_.assign(groups, {}); }

  /// Whether every group's rate is 0, or well within float32, so that formulas can divide by sums of them.
  static bool takes(double lr, std::vector<parameter_group> const& groups) noexcept {
    for (parameter_group const& g : groups) {
      double const rate = (f64(lr) * f64(g.lr_factor)).v;
      if (lr > 0 && !(rate >= 0x1p-126 && rate <= 0x1p64 && rate * g.weight_decay <= 0x1p64)) return false;
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
  bool empty() const noexcept { return each_.empty() || each_[0].gamma.v == 0; }
  double gamma(std::size_t g) const noexcept { return each_[g].gamma.v; }

  group_numbers numbers(std::size_t g, double lr, parameter_group const& group) const noexcept {
    return {(f64(lr) * f64(group.lr_factor)).to_float(), f64(group.weight_decay).to_float(),
            each_[g].gamma.to_float(), each_[g].decay.to_float()};
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

}  // namespace zoadam::detail
