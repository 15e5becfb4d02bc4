// SPDX-License-Identifier: Apache-2.0
// The loss scale: when it moves, that it moves on all ranks at once, and that gradients in float16 survive by it.
#include "zoadam/loss_scaler.hpp"

#include <limits>

#include "suite/job.hpp"
#include "zoadam/lane/half.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

step_report exchange_at(index step, int skipped = 0) {
  step_report r;
  r.step = step;
  r.exchanged = true;
  r.skipped_since = skipped;
  return r;
}

TEST_CASE("loss_scaler: grows after so many good steps, backs off at once, stays within bounds") {
  loss_scaler scaler({.initial = 8, .growth = 4, .backoff = 0.25, .interval = 10, .smallest = 2, .largest = 64});
  CHECK(scaler.scale() == 8);
  CHECK(scaler.grad_scale() == 0.125);
  for (index t = 1; t <= 9; ++t) scaler.update(exchange_at(t));
  CHECK(scaler.scale() == 8);
  scaler.update(exchange_at(10));
  CHECK(scaler.scale() == 32);
  scaler.update(exchange_at(30));  // local steps in between count, too
  CHECK(scaler.scale() == 64);
  scaler.update(exchange_at(31, 1));
  CHECK(scaler.scale() == 16);
  step_report local;
  local.step = 32;
  local.skipped_here = true;
  scaler.update(local);  // nobody else knows yet
  CHECK(scaler.scale() == 16);
  for (index t = 33; t <= 36; ++t) scaler.update(exchange_at(t, 2));
  CHECK(scaler.scale() == 2);
  for (index t = 37; t <= 46; ++t) scaler.update(exchange_at(t));
  CHECK(scaler.scale() == 8);
}

TEST_CASE("loss_scaler: goes on from what a checkpoint kept") {
  loss_scaler a({.interval = 5}), b({.interval = 5});
  for (index t = 1; t <= 8; ++t) a.update(exchange_at(t, t == 2));
  b.restore(a.now());
  for (index t = 9; t <= 30; ++t) {
    a.update(exchange_at(t, t == 20));
    b.update(exchange_at(t, t == 20));
    CHECK(a.scale() == b.scale());
  }
}

TEST_CASE("loss_scaler: rules and states out of range are refused by name") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  auto const refused = [](loss_scaling const& rule, char const* what) {
    ending const e = ending_of([&] { loss_scaler const s(rule); });
    CHECK(e.what == outcome::argument);
    CHECK_MESSAGE(e.text.find(what) != std::string::npos, e.text);
  };
  for (double const bad : {nan, inf, 0.0, -1.0, 0x1p65}) {
    refused({.initial = bad}, "initial");
    refused({.smallest = bad}, "smallest");
    refused({.largest = bad}, "largest");
  }
  for (double const bad : {nan, inf, 1.0, 0.5, -2.0}) refused({.growth = bad}, "growth");
  for (double const bad : {nan, inf, 1.0, 0.0, -0.5}) refused({.backoff = bad}, "backoff");
  for (index const bad : {0, -1}) refused({.interval = bad}, "interval");
  loss_scaler s;
  for (double const bad : {nan, 0.0, 0x1p30}) {
    CHECK(ending_of([&] { s.restore({bad, 0, 0}); }).what == outcome::argument);
  }
  CHECK(ending_of([&] { s.restore({2, -1, 0}); }).what == outcome::argument);
  CHECK(s.scale() == 0x1p16);
}

/// Trains x towards 3 on three workers with gradients in float16; worker 1's overflow unless the scale is small.
template <class Optimizer>
void train(typename Optimizer::options_type const& settings) {
  constexpr int ranks = 3, steps = 120;
  std::vector<std::vector<double>> scales(ranks);
  std::vector<flat> all(ranks);
  on_all_ranks(ranks, [&](thread_transport link) {
    auto const me = nth(link.rank());
    flat x(100);
    std::vector<float16> g(x.size());
    std::span<float16 const> const gradient(g);
    Optimizer o({{"x", {}, x, gradient}}, settings, std::move(link));
    loss_scaler scaler({.initial = 0x1p20, .interval = 20});
    for (int t = 1; t <= steps; ++t) {
      for (std::size_t k = 0; k < x.size(); ++k) {
        double const loss_gradient = (double(x[k]) - 3) * (me == 1 && t % 2 == 0 ? 4 : 1) * scaler.scale();
        // As a trainer's kernels would: beyond its range a float16 is Inf.
        g[k] = std::abs(loss_gradient) > 65504 ? float16{0x7c00} : to_float16(static_cast<float>(loss_gradient));
      }
      step_report const r = o.step(0.1, scaler.grad_scale());
      CHECK(r.skipped_since >= r.skipped_workers);
      if (!r.exchanged) CHECK(r.skipped_since == 0);
      scaler.update(r);
      scales[me].push_back(scaler.scale());
    }
    (void)o.synchronize();
    all[me] = x;
  });
  for (int j = 1; j < ranks; ++j) CHECK(scales[nth(j)] == scales[0]);
  bool grew = false, fell = false;
  for (std::size_t t = 1; t < scales[0].size(); ++t) {
    grew |= scales[0][t] > scales[0][t - 1];
    fell |= scales[0][t] < scales[0][t - 1];
  }
  CHECK((grew && fell));
  for (flat const& x : all)
    for (float const each : x) CHECK(std::abs(each - 3) < 0.2);
}

TEST_CASE("loss_scaler: the same decisions on all ranks, at every step and with local steps") {
  train<adam<thread_transport>>({});
  using local = zero_one_adam<thread_transport>;
  local::options_type settings;
  settings.sync = {10, 20, 4};
  train<local>(settings);
}

}  // namespace
