// SPDX-License-Identifier: Apache-2.0
// The plain references against every conformance case: they are the oracle of other tests, so check them.
#include "layerwise.hpp"

#include "../conformance/safetensors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#ifndef ZOADAM_CONFORMANCE_DIR
#error "define ZOADAM_CONFORMANCE_DIR as the folder of the conformance cases"
#endif

namespace {

using reference::array;
using reference::index;
using reference::layout;
using reference::per_worker;
using safetensors::file;
using numbers = std::vector<double>;

/// The cases whose names begin with `prefix`, in order; at least `expected` of them must be there.
std::vector<file> cases(std::string const& prefix, std::size_t expected) {
  char const* const folder = std::getenv("ZOADAM_CONFORMANCE_DIR");
  std::vector<std::string> paths;
  for (auto const& entry : std::filesystem::directory_iterator(folder != nullptr ? folder : ZOADAM_CONFORMANCE_DIR))
    if (entry.path().extension() == ".safetensors" && entry.path().filename().string().rfind(prefix, 0) == 0)
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() >= expected);
  std::vector<file> result;
  for (auto const& path : paths) result.push_back(file::read(path));
  return result;
}

bool is_true(file const& f, std::string const& key) { return f.value<bool>(key); }

layout layout_of(file const& f) {
  layout l;
  l.ranks = f.value<int>("workers");
  l.tensors = {f.value<index>("elements")};
  if (f.has_metadata("tensors")) l.tensors = f.value<std::vector<index>>("tensors");
  if (f.has_metadata("shapes")) {
    l.tensors.clear();
    for (auto const& shape : f.value<std::vector<std::vector<index>>>("shapes")) {
      index size = 1;
      for (auto const extent : shape) size *= extent;
      l.tensors.push_back(size);
    }
  }
  // Cases that name no groups scale whole buffers; the published implementation says it in words.
  bool const by_tensor = f.has_metadata("scale") && f.text("scale") == "per tensor";
  auto const groups = f.has_metadata("groups") ? f.text("groups") : by_tensor ? "tensor" : "whole";
  REQUIRE((groups == "whole" || groups == "tensor" || groups == "block"));
  l.groups = groups == "whole"    ? reference::grouping::whole
             : groups == "tensor" ? reference::grouping::tensor
                                  : reference::grouping::block;
  l.block = f.has_metadata("block") ? f.value<index>("block") : 0;
  REQUIRE((f.text("norm") == "l1" || f.text("norm") == "l2"));
  l.scale = f.text("norm") == "l1" ? reference::norm::l1 : reference::norm::l2;
  REQUIRE(l.elements() == f.value<std::size_t>("elements"));
  return l;
}

void read_adam(file const& f, reference::adam_options& o) {
  if (f.has_metadata("betas")) {
    auto const betas = f.value<numbers>("betas");
    REQUIRE(betas.size() == 2);
    o.beta1 = betas[0];
    o.beta2 = betas[1];
  } else {
    o.beta1 = f.value<double>("beta1");
    o.beta2 = f.value<double>("beta2");
  }
  o.epsilon = f.value<double>("eps");
  o.weight_decay = f.value<double>("weight_decay");
  o.variance_bias_correction = f.has_metadata("variance_bias_correction") && is_true(f, "variance_bias_correction");
}

/// Row `row` of a matrix of d columns.
template <class Real>
array<Real> row(numbers const& values, std::size_t r, std::size_t d) {
  array<Real> result(d);
  for (std::size_t k = 0; k < d; ++k) result[k] = static_cast<Real>(values[r * d + k]);
  return result;
}

/// Gradients (or inputs) of one step, [n, d] out of [T, n, d].
template <class Real>
per_worker<Real> rows(numbers const& values, std::size_t t, std::size_t n, std::size_t d) {
  per_worker<Real> result;
  for (std::size_t i = 0; i < n; ++i) result.push_back(row<Real>(values, t * n + i, d));
  return result;
}

template <class Real>
void append(numbers& to, array<Real> const& values) {
  for (auto const value : values) to.push_back(static_cast<double>(value));
}

template <class Real>
void append(numbers& to, per_worker<Real> const& values) {
  for (auto const& worker : values) append(to, worker);
}

template <class Values>
numbers flat(Values const& values) {
  numbers result;
  append(result, values);
  return result;
}

/// Compares with tensors of one case and prints the worst errors.
template <class Real>
class comparison {
 public:
  comparison(file const& f, index n, index d) : file_(f), n_(n), d_(d) {
    std::printf("%-6s %-66s", sizeof(Real) == 8 ? "double" : "float", f.text("case").c_str());
  }
  ~comparison() { std::printf("\n"); }
  comparison(comparison const&) = delete;
  comparison& operator=(comparison const&) = delete;

  void check(std::string const& name, numbers const& actual, std::vector<index> const& shape) const {
    auto const expected = file_.numbers(name, shape);
    REQUIRE(actual.size() == expected.size());
    bool const loose = name == "u" || name == "worker_error" || name == "server_error";
    double largest = 0;
    double worst = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      largest = std::max(largest, std::abs(expected[k]));
      auto const error = std::abs(actual[k] - expected[k]);
      worst = error <= worst ? worst : error;  // keeps a NaN
    }
    auto const relative = largest > 0 ? worst / largest : worst;
    std::printf(" %s %.1e", name.c_str(), relative);
    INFO(file_.name() << ": " << name);
    CHECK(relative <= (largest == 0 ? 1e-7 : loose ? 1e-4 : 1e-5));
  }

  void check_errors(reference::compressed_mean<Real> const& mean) const {
    check("worker_error", flat(mean.worker_error), {n_, d_});
    check("server_error", flat(mean.server_error), {d_});
  }

  /// The file states how near the reference run came to another sign; in float64 ours came as near.
  void check_margin(double margin) const {
    auto const expected = file_.value<double>("margin");
    std::printf(" margin %.2e/%.2e", margin, expected);
    INFO(file_.name());
    if (sizeof(Real) == 8) CHECK(margin >= expected * (1 - 1e-6));
  }

 private:
  file const& file_;
  index n_;
  index d_;
};

template <class Real>
void run_allreduce(file const& f) {
  REQUIRE(f.text("algorithm") == "onebit_allreduce");
  auto const l = layout_of(f);
  std::vector<reference::owned_range> groups;
  for (auto const& g : f.value<std::vector<std::vector<index>>>("rank_groups")) {
    REQUIRE(g.size() == 3);
    groups.push_back({static_cast<int>(g[0]), g[1], g[2]});
  }
  INFO(f.name());
  CHECK(reference::rank_groups(l) == groups);

  auto const rounds = f.value<index>("rounds");
  auto const n = static_cast<index>(l.ranks);
  auto const d = static_cast<index>(l.elements());
  auto const input = f.numbers("input", {rounds, n, d});
  reference::compressed_mean<Real> mean(l);
  numbers output;
  for (index t = 0; t < rounds; ++t)
    append(output, mean(rows<Real>(input, std::size_t(t), std::size_t(n), std::size_t(d))));
  comparison<Real> const compare(f, n, d);
  compare.check("output", output, {rounds, d});
  compare.check_errors(mean);
  compare.check_margin(mean.margin);
}

template <class Real>
void run_zero_one_adam(file const& f) {
  REQUIRE(f.text("algorithm") == "zero_one_adam");
  auto const l = layout_of(f);
  reference::zero_one_options o;
  read_adam(f, o);
  REQUIRE((f.text("exchange") == "displacement" || f.text("exchange") == "momentum_sum"));
  o.space = f.text("exchange") == "displacement" ? reference::exchange_space::displacement
                                                 : reference::exchange_space::momentum_sum;
  o.weight_power = f.value<double>("weight_power");
  REQUIRE((f.text("momentum_rule") == "correct" || f.text("momentum_rule") == "replace"));
  o.rule =
      f.text("momentum_rule") == "correct" ? reference::momentum_rule::correct : reference::momentum_rule::replace;
  o.limit = f.value<double>("cap");
  reference::doubling_interval const variance_steps{f.value<index>("variance_kappa"),
                                                    f.value<index>("variance_stop")};
  reference::local_steps const exchange_steps{f.value<index>("sync_start"), f.value<index>("sync_period"),
                                              f.value<index>("sync_clip")};

  auto const steps = f.value<index>("steps");
  auto const n = static_cast<index>(l.ranks);
  auto const d = static_cast<index>(l.elements());
  auto const grads = f.numbers("grads", {steps, n, d});
  auto const lr = f.numbers("lr", {steps});
  reference::zero_one_adam<Real> adam(l, o, row<Real>(f.numbers("params0", {d}), 0, std::size_t(d)));
  numbers params;
  std::vector<bool> synced;
  std::vector<bool> updated;
  index last = 0;
  for (index t = 1; t <= steps; ++t) {
    updated.push_back(variance_steps.due(t));
    synced.push_back(exchange_steps.due(t, last));
    if (synced.back()) last = t;
    adam.step(rows<Real>(grads, std::size_t(t - 1), std::size_t(n), std::size_t(d)), lr[std::size_t(t - 1)],
              updated.back(), synced.back());
    append(params, adam.x);
    if (synced.back())
      for (auto const& x : adam.x) CHECK(x == adam.anchor);
  }
  INFO(f.name());
  CHECK(synced == f.booleans("synced", {steps}));
  CHECK(updated == f.booleans("variance_updated", {steps}));

  numbers open;
  for (std::size_t i = 0; i < adam.x.size(); ++i)
    append(open, o.space == reference::exchange_space::displacement ? adam.displacement(i) : adam.u[i]);
  comparison<Real> const compare(f, n, d);
  compare.check("params", params, {steps, n, d});
  compare.check("m", flat(adam.m), {n, d});
  compare.check("v", flat(adam.second.v), {d});
  compare.check("u", open, {n, d});
  compare.check_errors(adam.mean);
  compare.check_margin(adam.mean.margin);
}

/// 1-bit Adam and its sharded form.
template <class Real, template <class> class Optimizer>
void run_onebit(file const& f, std::string const& algorithm) {
  REQUIRE(f.text("algorithm") == algorithm);
  auto const l = layout_of(f);
  reference::adam_options o;
  read_adam(f, o);
  auto const steps = f.value<index>("steps");
  auto const n = static_cast<index>(l.ranks);
  auto const d = static_cast<index>(l.elements());
  auto const grads = f.numbers("grads", {steps, n, d});
  auto const lr = f.numbers("lr", {steps});
  Optimizer<Real> adam(l, o, f.value<index>("freeze_step"), row<Real>(f.numbers("params0", {d}), 0, std::size_t(d)));
  numbers params;
  for (std::size_t t = 0; t < std::size_t(steps); ++t) {
    adam.step(rows<Real>(grads, t, std::size_t(n), std::size_t(d)), lr[t]);
    append(params, adam.x);
  }
  comparison<Real> const compare(f, n, d);
  compare.check("params", params, {steps, d});
  compare.check("m", flat(adam.m), {d});
  compare.check("v", flat(adam.second.v), {d});
  compare.check_errors(adam.mean);
  compare.check_margin(adam.mean.margin);
}

/// A value that is equal on all workers, once per worker.
template <class Real>
per_worker<Real> spread(array<Real> const& value, index n) {
  return per_worker<Real>(static_cast<std::size_t>(n), value);
}

template <class Real>
void run_deepspeed_zero_one_adam(file const& f) {
  REQUIRE(f.text("algorithm") == "deepspeed_zero_one_adam");
  REQUIRE(f.value<int>("first_step") == 2);
  auto const l = layout_of(f);
  reference::deepspeed_zero_one_options o;
  read_adam(f, o);
  o.lr = f.value<double>("lr");
  o.var_freeze_step = f.value<index>("var_freeze_step");
  o.var_update_scaler = f.value<index>("var_update_scaler");
  o.local_step_scaler = f.value<index>("local_step_scaler");
  o.local_step_clipper = f.value<index>("local_step_clipper");
  auto const steps = f.value<index>("steps");
  auto const n = static_cast<index>(l.ranks);
  auto const d = static_cast<index>(l.elements());
  auto const grads = f.numbers("grads", {steps, n, d});
  reference::deepspeed_zero_one_adam<Real> adam(l, o, row<Real>(f.numbers("params0", {d}), 0, std::size_t(d)));
  numbers params;
  for (std::size_t t = 0; t < std::size_t(steps); ++t) {
    adam.step(rows<Real>(grads, t, std::size_t(n), std::size_t(d)));
    append(params, adam.x);
  }
  comparison<Real> const compare(f, n, d);
  compare.check("params", params, {steps, n, d});
  compare.check("m", flat(adam.m), {n, d});
  compare.check("v", flat(spread(adam.second.v, n)), {n, d});
}

template <class Real>
void run_deepspeed_onebit_adam(file const& f) {
  REQUIRE(f.text("algorithm") == "deepspeed_onebit_adam");
  REQUIRE(f.value<int>("first_step") == 2);
  auto const l = layout_of(f);
  reference::adam_options o;
  read_adam(f, o);
  auto const steps = f.value<index>("steps");
  auto const n = static_cast<index>(l.ranks);
  auto const d = static_cast<index>(l.elements());
  auto const grads = f.numbers("grads", {steps, n, d});
  reference::deepspeed_onebit_adam<Real> adam(l, o, f.value<double>("lr"), f.value<index>("freeze_step"),
                                              row<Real>(f.numbers("params0", {d}), 0, std::size_t(d)));
  numbers params;
  for (std::size_t t = 0; t < std::size_t(steps); ++t) {
    adam.step(rows<Real>(grads, t, std::size_t(n), std::size_t(d)));
    append(params, spread(adam.x, n));
  }
  comparison<Real> const compare(f, n, d);
  compare.check("params", params, {steps, n, d});
  compare.check("m", flat(spread(adam.m, n)), {n, d});
  compare.check("v", flat(spread(adam.second.v, n)), {n, d});
  compare.check_margin(adam.mean.margin);
}

template <class Real>
void run_deepspeed_onebit_lamb(file const& f) {
  REQUIRE(f.text("algorithm") == "deepspeed_onebit_lamb");
  REQUIRE(f.value<int>("first_step") == 2);
  auto const l = layout_of(f);
  reference::lamb_options o;
  read_adam(f, o);
  o.published = true;
  o.freeze = f.value<index>("freeze_step");
  o.least = 0.01;
  o.most = 10;
  auto const steps = f.value<index>("steps");
  auto const n = static_cast<index>(l.ranks);
  auto const d = static_cast<index>(l.elements());
  auto const grads = f.numbers("grads", {steps, n, d});
  reference::lamb<Real> lamb(l, o, row<Real>(f.numbers("params0", {d}), 0, std::size_t(d)));
  numbers params;
  for (std::size_t t = 0; t < std::size_t(steps); ++t) {
    lamb.step(rows<Real>(grads, t, std::size_t(n), std::size_t(d)), f.value<double>("lr"));
    append(params, spread(lamb.x, n));
  }
  comparison<Real> const compare(f, n, d);
  compare.check("params", params, {steps, n, d});
  compare.check("m", flat(spread(lamb.m, n)), {n, d});
  compare.check("v", flat(spread(lamb.second.v, n)), {n, d});
  compare.check_margin(lamb.mean.margin);
}

// The cases are made so that float32 takes the same decisions: the references run them in both precisions.

TEST_CASE_TEMPLATE("reference: compressed mean", Real, double, float) {
  for (auto const& f : cases("allreduce_", 13)) run_allreduce<Real>(f);
}

TEST_CASE_TEMPLATE("reference: 0/1 Adam, displacement", Real, double, float) {
  for (auto const& f : cases("zero_one_adam_displacement_", 8)) run_zero_one_adam<Real>(f);
}

TEST_CASE_TEMPLATE("reference: 0/1 Adam, momentum sum", Real, double, float) {
  for (auto const& f : cases("zero_one_adam_momentum_sum_", 7)) run_zero_one_adam<Real>(f);
}

TEST_CASE_TEMPLATE("reference: 1-bit Adam", Real, double, float) {
  for (auto const& f : cases("onebit_adam_", 2)) run_onebit<Real, reference::onebit_adam>(f, "onebit_adam");
}

TEST_CASE_TEMPLATE("reference: sharded 1-bit Adam", Real, double, float) {
  for (auto const& f : cases("sharded_onebit_adam_", 2))
    run_onebit<Real, reference::sharded_onebit_adam>(f, "sharded_onebit_adam");
}

TEST_CASE_TEMPLATE("reference: published 0/1 Adam", Real, double, float) {
  for (auto const& f : cases("deepspeed_zero_one_adam_", 2)) run_deepspeed_zero_one_adam<Real>(f);
}

TEST_CASE_TEMPLATE("reference: published 1-bit Adam", Real, double, float) {
  for (auto const& f : cases("deepspeed_onebit_adam_", 2)) run_deepspeed_onebit_adam<Real>(f);
}

TEST_CASE_TEMPLATE("reference: published 1-bit LAMB", Real, double, float) {
  for (auto const& f : cases("deepspeed_onebit_lamb_", 2)) run_deepspeed_onebit_lamb<Real>(f);
}

// What no case holds, on numbers worked out by hand.

TEST_CASE("reference: schedules") {
  reference::doubling_interval const variance{2, 12};
  std::vector<index> due;
  for (index t = 1; t <= 40; ++t)
    if (variance.due(t)) due.push_back(t);
  CHECK(due == std::vector<index>{1, 2, 3, 5, 7, 11});  // gaps 1 1 2 2 4; the next, 15, is beyond the stop
  CHECK(reference::doubling_interval{2, 11}.due(11));
  CHECK_FALSE(reference::doubling_interval{2, 10}.due(11));

  reference::local_steps const local{4, 3, 6};
  std::vector<index> intervals;
  for (index t = 3; t <= 15; ++t) intervals.push_back(local.interval(t));
  CHECK(intervals == std::vector<index>{1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 6, 6});
  CHECK(local.interval(1000000) == 6);
  CHECK(local.due(9, 7));
  CHECK_FALSE(local.due(8, 7));

  reference::learning_rate_interval const by_rate{10, 1.0, 12};
  CHECK(by_rate.interval(10, 0.01) == 1);
  CHECK(by_rate.interval(11, 1.0) == 1);
  CHECK(by_rate.interval(11, 0.51) == 1);
  CHECK(by_rate.interval(11, 0.5) == 2);
  CHECK(by_rate.interval(11, 0.2) == 4);
  CHECK(by_rate.interval(11, 0.1) == 8);
  CHECK(by_rate.interval(11, 0.01) == 12);
  CHECK(by_rate.interval(11, 0.0) == 12);
  CHECK(by_rate.interval(11, 2.0) == 1);

  // beta2 = 0.5: compared with two steps before.
  CHECK(reference::freeze_step({0, 8, 8, 4, 4, 3.9, 3.9}, 0.5, 2) == 5);
  CHECK(reference::freeze_step({0, 8, 8, 4, 4, 3.9, 3.7}, 0.5, 5) == 0);
}

TEST_CASE("reference: AdamW's first step goes by the sign of the gradient") {
  reference::adam_options o;
  o.weight_decay = 0.1;
  reference::adam<double> adam(o, {1, 2, 3});
  adam.step({{1, -4, 1}, {3, -2, -1}}, 0.01);
  CHECK(adam.x[0] == doctest::Approx(1 - 0.01 * (1 + 0.1)).epsilon(1e-8));
  CHECK(adam.x[1] == doctest::Approx(2 - 0.01 * (-1 + 0.2)).epsilon(1e-8));
  CHECK(adam.x[2] == doctest::Approx(3 - 0.01 * 0.3).epsilon(1e-8));  // inactive: it decays only
  adam.step({{0, 0, 0}, {0, 0, 0}}, 0.01);
  CHECK(adam.x[2] == doctest::Approx((3 - 0.01 * 0.3) * 0.999).epsilon(1e-12));
}

TEST_CASE("reference: the compressed mean loses nothing, limited and masked or not") {
  reference::compressed_mean<double> mean({3, {70, 33, 0, 5}, reference::grouping::block, 32, reference::norm::l1});
  std::size_t const d = 108;
  reference::flags active(d);
  array<double> limit(d);
  for (std::size_t k = 0; k < d; ++k) {
    active[k] = k % 7 != 3 && (k < 32 || k >= 64);  // the second block has no active element
    limit[k] = 0.2 + 0.01 * double(k % 5);
  }
  array<double> total(d);
  array<double> output(d);
  for (int round = 0; round < 20; ++round) {
    per_worker<double> z(3, array<double>(d));
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < d; ++k) z[i][k] = std::sin(double(k * 3 + i) * 0.7 + round);
    auto const out = mean(z, active, limit);
    for (std::size_t k = 0; k < d; ++k) {
      CHECK(std::abs(out[k]) <= limit[k]);
      if (!active[k]) CHECK(out[k] == 0);
      total[k] += (z[0][k] + z[1][k] + z[2][k]) / 3;
      output[k] += out[k];
    }
  }
  for (std::size_t k = 0; k < d; ++k) {
    double const kept = (mean.worker_error[0][k] + mean.worker_error[1][k] + mean.worker_error[2][k]) / 3;
    double const seen = output[k] + kept + mean.server_error[k];
    CHECK(seen == doctest::Approx(active[k] ? total[k] : 0.0).epsilon(1e-12));
  }
}

TEST_CASE("reference: a worker that does not contribute keeps its error") {
  reference::compressed_mean<double> mean({3, {4}, reference::grouping::whole, 0, reference::norm::l1});
  per_worker<double> const z{{1, 2, 3, 4}, {-1, 1, -1, 1}, {9, 9, 9, 9}};
  auto const s = mean.worker_side(z, {}, {}, {true, true, false});
  CHECK(s == array<double>{0.75, 1.75, 0.75, 1.75});  // (2.5 + -1) / 2 and (2.5 + 1) / 2
  CHECK(mean.worker_error[0] == array<double>{-1.5, -0.5, 0.5, 1.5});
  CHECK(mean.worker_error[2] == array<double>{0, 0, 0, 0});
  CHECK_THROWS(mean.worker_side(z, {}, {}, {false, false, false}));
}

TEST_CASE("reference: 0/1 Adam with missing gradients, and with learning rate 0") {
  reference::zero_one_options o;
  o.variance_bias_correction = false;
  o.epsilon = 0;
  reference::zero_one_adam<double> adam({2, {2}, reference::grouping::whole, 0, reference::norm::l1}, o, {0, 0});
  per_worker<double> const g{{1, 2}, {3, 4}};
  adam.step(g, 0.1, true, false, {true, false});
  CHECK(adam.m[0] == array<double>{0, 0});
  CHECK(adam.x[0] == array<double>{0, 0});
  CHECK(adam.m[1][0] == doctest::Approx(0.3));
  CHECK(adam.second.v[1] == doctest::Approx(0.016));
  CHECK(adam.second.count == 1);
  adam.step(g, 0.1, true, true, {true, true});
  CHECK(adam.second.count == 1);
  CHECK(adam.x[0] == adam.x[1]);
  CHECK(adam.x[0][0] != 0);

  auto const before = adam;
  adam.step(g, 0, false, true);
  CHECK(adam.x == before.x);
  CHECK(adam.mean.worker_error == before.mean.worker_error);
  CHECK(adam.mean.server_error == before.mean.server_error);
  CHECK(adam.m[0][0] == doctest::Approx(0.9 * before.m[0][0] + 0.1));
  CHECK(adam.window == 0);
}

}  // namespace
