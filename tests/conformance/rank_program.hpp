// SPDX-License-Identifier: Apache-2.0
// The body of run_rank: metadata to composition, and the tape through the optimizer. One translation unit for each
// grouping includes it.
#pragma once

#include "rank.hpp"
#include "suite/placed.hpp"
#if ZOADAM_SUITE_DEVICE
#include "simt/has_case.hpp"
#endif

#include <zoadam/state/mean.hpp>
#include <zoadam/state/published.hpp>
#include <zoadam/state/zero_shard.hpp>
#include <zoadam/zoadam.hpp>

#include <algorithm>
#include <concepts>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace conformance {

template <class Quantizer, class Sync, class State>
using optimizer_of = suite::placed<zoadam::optimizer<Quantizer, Sync, State, zoadam::cpu_backend, any_transport>>;

inline std::vector<zoadam::tensor> tensors_of(test_case const& c, std::span<float> x, std::span<float const> g) {
  std::vector<zoadam::tensor> result;
  std::size_t first = 0;
  for (auto const& shape : c.shapes) {
    index product = 1;
    for (index n : shape) product *= n;
    result.push_back({"tensor" + std::to_string(result.size()), shape, x.subspan(first, size(product)),
                      g.subspan(first, size(product)), 0});
    first += size(product);
  }
  return result;
}

inline std::vector<float> copy(std::span<float const> values) { return {values.begin(), values.end()}; }

/// The tape through one composition; What: the exchange whose errors the case holds, void if none.
template <class Optimizer, class What>
record run_optimizer(test_case const& c, any_transport link, typename Optimizer::options_type options) {
  using at_tags = typename Optimizer::fields::tags;
  auto const d = size(c.elements);
  int const me = link.rank(), ranks = link.size();
  std::vector<float> x = c.start, g(d);
  auto const tensors = tensors_of(c, x, g);
  Optimizer optimizer(tensors, std::move(options), std::move(link));

  record r;
  auto& path = r.values[c.algorithm == "onebit_allreduce" ? "output" : "params"];
  double gamma = 0, decay = 1;  // since the last exchange
  for (index t = 0; t < c.steps; ++t) {
    auto const from = c.gradients.begin() + (t * c.workers + me) * c.elements;
    std::copy(from, from + c.elements, g.begin());
    double const lr = c.lr[size(t)];
    bool const due = optimizer.will_exchange(lr);
    gamma += lr;
    decay *= 1 - lr * c.weight_decay;
    zoadam::step_report const report = optimizer.step(lr);
    if (gamma > 0 && report.exchanged != due) throw std::logic_error("will_exchange() and the step report disagree");
    if (due) gamma = 0, decay = 1;
    r.values["synced"].push_back(due ? 1.0f : 0.0f);
    r.values["variance_updated"].push_back(report.variance_updated ? 1.0f : 0.0f);
    path.insert(path.end(), x.begin(), x.end());
  }

  [[maybe_unused]] zoadam::partition<typename Optimizer::quantizer_type> const cut(zoadam::layout(tensors, 1), ranks);
  // Values of the own chunk at their place, zeros elsewhere.
  auto const spread = [&](std::span<float const> own) {
    std::vector<float> all(d);
    for (index k = 0; k < cut.owned(me); ++k) {
      auto const p = cut.owned(me, k);
      std::copy_n(own.begin() + p.own, p.last - p.first, all.begin() + p.first);
    }
    return all;
  };
  auto const keep = [&]<class Tag>(char const* name, Tag tag) {
    if constexpr (zoadam::detail::contains<zoadam::detail::at_home<typename Optimizer::fields, zoadam::home::owner>,
                                           Tag>)
      r.values[name] = spread(optimizer.values(tag));
    else if constexpr (zoadam::detail::contains<at_tags, Tag>)
      r.values[name] = copy(optimizer.values(tag));
  };
  keep("m", zoadam::at::momentum);
  keep("v", zoadam::at::variance);
  if constexpr (zoadam::detail::contains<at_tags, zoadam::at::momentum_sum_t>) {
    r.values["u"] = copy(optimizer.values(zoadam::at::momentum_sum));
  } else if constexpr (zoadam::detail::contains<at_tags, zoadam::at::anchor_t>) {
    // The displacement is derived: w = P a - x.
    auto const a = optimizer.values(zoadam::at::anchor);
    for (std::size_t k = 0; k < d; ++k)
      r.values["u"].push_back(static_cast<float>(decay * static_cast<double>(a[k]) - static_cast<double>(x[k])));
  }
  if constexpr (!std::is_void_v<What>) {
    r.values["worker_error"] = copy(optimizer.values(zoadam::at::worker_error_t<What>{}));
    keep("server_error", zoadam::at::owner_error_t<What>{});
    for (index k = 0; k < cut.pieces(); ++k) {
      auto const p = cut[k];
      if (p.first != p.last) r.rank_groups.push_back({p.owner, p.first, p.last});
    }
  }
  return r;
}

template <class Optimizer, class What>
record run_tape(test_case const& c, any_transport link, typename Optimizer::options_type options) {
#if ZOADAM_SUITE_DEVICE
  if constexpr (!suite::has_case<typename Optimizer::quantizer_type, typename Optimizer::state_type>())
    throw unsupported_case("this composition is not built for devices: see tests/simt/has_case.hpp");
  else
#endif
    return run_optimizer<Optimizer, What>(c, std::move(link), std::move(options));
}

template <class Optimizer>
typename Optimizer::options_type options_of(test_case const& c) {
  typename Optimizer::options_type o;
  if (c.algorithm == "onebit_allreduce") return o;
  o.beta1 = c.beta1;
  o.beta2 = c.beta2;
  o.epsilon = c.epsilon;
  o.bias_correction = c.bias_correction;
  o.weight_decay = c.weight_decay;
  o.limit = c.limit;
  return o;
}

template <class Quantizer, class Space>
record run_zero_one_adam(test_case const& c, any_transport link) {
  using optimizer = optimizer_of<Quantizer, zoadam::local_steps, zoadam::frozen_variance_state<Space>>;
  auto o = options_of<optimizer>(c);
  o.sync = {c.sync_start, c.sync_period, c.sync_clip};
  o.state.variance_schedule = {c.kappa, c.stop};
  return run_tape<optimizer, Space>(c, std::move(link), o);
}

template <class Quantizer, zoadam::momentum_rule Rule>
record run_space(test_case const& c, any_transport link) {
  using zoadam::displacement;
  using zoadam::power;
  if (c.space == exchange_space::momentum_sum)
    return run_zero_one_adam<Quantizer, zoadam::momentum_sum<Rule>>(c, std::move(link));
  if (c.weight_power == 0) return run_zero_one_adam<Quantizer, displacement<power::zero, Rule>>(c, std::move(link));
  if (c.weight_power == 0.5) return run_zero_one_adam<Quantizer, displacement<power::half, Rule>>(c, std::move(link));
  if (c.weight_power == 1) return run_zero_one_adam<Quantizer, displacement<power::one, Rule>>(c, std::move(link));
  throw unsupported_case("no such composition: weight_power is none of 0, 0.5, 1");
}

template <class Quantizer>
record run_quantizer(test_case const& c, any_transport link) {
  using zoadam::every_step;
  if (c.algorithm == "onebit_allreduce") {
    using optimizer = optimizer_of<Quantizer, every_step, zoadam::mean_state>;
    return run_tape<optimizer, zoadam::gradient_mean>(c, std::move(link), options_of<optimizer>(c));
  }
  if (c.algorithm == "zero_one_adam") {
    return c.rule == momentum_rule::correct
               ? run_space<Quantizer, zoadam::momentum_rule::correct>(c, std::move(link))
               : run_space<Quantizer, zoadam::momentum_rule::replace>(c, std::move(link));
  }
  if (c.algorithm == "onebit_adam") {
    using optimizer = optimizer_of<Quantizer, every_step, zoadam::onebit_adam_state<>>;
    auto o = options_of<optimizer>(c);
    o.state.freeze.step = c.freeze_step;
    return run_tape<optimizer, zoadam::momentum_average<>>(c, std::move(link), o);
  }
  if (c.algorithm == "sharded_onebit_adam") {
    using optimizer = optimizer_of<Quantizer, every_step, zoadam::zero_shard<zoadam::onebit_adam_state<>>>;
    auto o = options_of<optimizer>(c);
    o.state.freeze.step = c.freeze_step;
    return run_tape<optimizer, zoadam::shard_direction>(c, std::move(link), o);
  }
  // The published Adams scale each tensor.
  if constexpr (std::same_as<typename Quantizer::groups, zoadam::per_tensor>) {
    if (c.algorithm == "deepspeed_zero_one_adam") {
      using optimizer = optimizer_of<Quantizer, zoadam::aligned_local_steps, zoadam::published_zero_one_adam_state>;
      auto o = options_of<optimizer>(c);
      o.sync = {c.sync_period, c.sync_clip};
      o.state.variance_freeze_step = c.freeze_step;
      o.state.variance_scaler = c.kappa;
      return run_tape<optimizer, void>(c, std::move(link), o);
    }
    if (c.algorithm == "deepspeed_onebit_adam") {
      using optimizer = optimizer_of<Quantizer, every_step, zoadam::published_onebit_adam_state>;
      auto o = options_of<optimizer>(c);
      o.state.freeze.step = c.freeze_step;
      return run_tape<optimizer, void>(c, std::move(link), o);
    }
  }
  // The published LAMB scales its fused buffer.
  if constexpr (std::same_as<typename Quantizer::groups, zoadam::whole>) {
    if (c.algorithm == "deepspeed_onebit_lamb") {
      using optimizer = optimizer_of<Quantizer, every_step, zoadam::published_onebit_lamb_state>;
      auto o = options_of<optimizer>(c);
      o.state.freeze.step = c.freeze_step;
      return run_tape<optimizer, void>(c, std::move(link), o);
    }
  }
  throw unsupported_case("no such composition: algorithm \"" + c.algorithm + "\" with these groups");
}

template <class Groups>
record run_rank(test_case const& c, any_transport link) {
  using zoadam::error_feedback;
  using zoadam::sign_quantizer;
  return c.norm == scale_norm::l1
             ? run_quantizer<error_feedback<sign_quantizer<Groups, zoadam::l1>>>(c, std::move(link))
             : run_quantizer<error_feedback<sign_quantizer<Groups, zoadam::l2>>>(c, std::move(link));
}

}  // namespace conformance
