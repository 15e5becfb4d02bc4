// SPDX-License-Identifier: Apache-2.0
// The example's trainer: every optimizer learns a small text over threads, with equal replicas and honest counts.
#include "../../examples/results.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include "zoadam/zoadam.hpp"

namespace {

using threads = zoadam::thread_transport;

example::corpus nursery_rhyme() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the house that jack built, and the rat that ate the malt. ";
  return example::split_text(text);
}

example::settings small_run() {
  example::settings s;
  s.workers = 3;
  s.steps = 60;
  s.eval_every = 25;
  s.batch = 2;
  s.model = {.vocabulary = 0, .context = 12, .width = 16, .layers = 1, .heads = 2};
  s.lr = 1e-2;
  s.warmup = 15;
  s.sync_start = 20;
  s.sync_period = 10;
  s.resolve();
  return s;
}

template <class Optimizer>
std::pair<example::settings, example::results> run() {
  example::corpus const text = nursery_rhyme();
  example::settings s = small_run();
  s.model.vocabulary = static_cast<zoadam::index>(text.alphabet.size());
  auto results = example::on_every_rank<example::rank_totals>(s.workers, std::chrono::seconds(60), [&](auto one) {
    return example::train<Optimizer>(s, text, std::move(one));
  });
  return {s, std::move(results)};
}

}  // namespace

TEST_CASE_TEMPLATE("it learns, replicas stay identical, and counts add up", Optimizer, zoadam::adam<threads>,
                   zoadam::onebit_adam<threads>, zoadam::zero_one_adam<threads>, zoadam::zero_one_adam_paper<threads>,
                   zoadam::local_adam<threads>) {
  auto const [s, results] = run<Optimizer>();
  nlohmann::ordered_json const summary = example::summarize(s, nursery_rhyme(), results);
  CAPTURE(summary.dump(1));
  CHECK(summary["replicas_identical"] == true);
  CHECK(results[0].totals.exchanges > 0);
  CHECK(results[0].totals.replicas != 0);
  CHECK(example::mean_loss(results, 50, 60) < example::mean_loss(results, 0, 10) - 0.3);
  double const validation = summary["validation_loss"];
  CHECK(validation == doctest::Approx(example::mean_loss(results, 50, 60)).epsilon(0.25));
  double const bits = summary["bits_per_parameter"], rounds = summary["rounds_per_step"];
  if (std::is_same_v<Optimizer, zoadam::adam<threads>>) {
    CHECK(bits == 32);
    CHECK(rounds == 1);
  } else {
    CHECK(bits > 0);
    CHECK(bits < 32);
    CHECK(rounds <= 1);
  }

  auto const again = run<Optimizer>().second;
  CHECK(again[0].totals.replicas == results[0].totals.replicas);  // whatever the scheduler did
  CHECK(again[2].series == results[2].series);
}

TEST_CASE("different replicas are told") {
  auto [s, results] = run<zoadam::adam<threads>>();
  CHECK(example::summarize(s, nursery_rhyme(), results)["replicas_identical"] == true);
  results[1].totals.replicas ^= 1;
  CHECK(example::summarize(s, nursery_rhyme(), results)["replicas_identical"] == false);
}

TEST_CASE("the curve has a row per evaluation and one for the last step") {
  auto [s, results] = run<zoadam::adam<threads>>();
  s.curve = "trainer_curve_test.csv";
  example::write_curve(s, results);
  std::string const text = example::read_file(s.curve);
  std::remove(s.curve.c_str());
  CHECK(text.starts_with("step,train_loss,validation_loss\n25,"));
  CHECK(text.find("\n50,") != std::string::npos);
  CHECK(text.find("\n60,") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);
}

TEST_CASE("learning rates: warm-up, decay to the lowest, and nothing but warm-up") {
  example::settings s;
  s.lr = 0.8, s.min_lr = 0.2, s.warmup = 4, s.steps = 20;
  for (char const* schedule : {"cosine", "linear", "constant"}) {
    s.schedule = schedule;
    CHECK(s.rate(1) == doctest::Approx(0.2));
    CHECK(s.rate(4) == doctest::Approx(0.8));
    CHECK(s.rate(12) == doctest::Approx(s.schedule == "constant" ? 0.8 : 0.5));
    CHECK(s.rate(20) == doctest::Approx(s.schedule == "constant" ? 0.8 : 0.2));
  }
  s.schedule = "cosine";
  s.steps = 3;
  CHECK(s.rate(3) == doctest::Approx(0.6));
}
