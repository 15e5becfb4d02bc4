// SPDX-License-Identifier: Apache-2.0
// What a user may choose on the command line.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpt.hpp"
#include "ranks.hpp"
#include "zoadam/schedule.hpp"

namespace example {

struct settings {
  std::string optimizer = "zero_one_adam", schedule = "cosine";
  std::string text, metrics, curve;
  int workers = 4;
  index steps = 2000, batch = 8, eval_every = 100;
  std::uint64_t seed = 0;
  gpt_shape model{.vocabulary = 0, .context = 64, .width = 128, .layers = 3, .heads = 4};

  double lr = 3e-3, min_lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01, clip = 1;
  // Negative: a share of the steps, see resolve().
  index warmup = -1, freeze_step = -1, sync_start = -1, sync_period = -1;
  index sync_max = 16, sync_interval = 4;
  std::optional<index> kappa, variance_stop;  // default: the optimizer's own

  /// The learning rate of step 1, 2, ..., steps.
  [[nodiscard]] double rate(index step) const {
    index const falling = std::max<index>(steps - warmup, 0);
    double left = 1;
    if (schedule == "cosine") left = zoadam::cosine_decay(step - warmup, falling);
    if (schedule == "linear") left = zoadam::polynomial_decay(step - warmup, falling);
    return zoadam::linear_warmup(step, warmup) * (min_lr + (lr - min_lr) * left);
  }

  void resolve() {
    auto const share = [this](index& value, double part) {
      if (value < 0) value = std::max<index>(1, static_cast<index>(part * static_cast<double>(steps)));
    };
    share(warmup, 0.05);
    share(freeze_step, 0.15);
    share(sync_start, 0.25);
    share(sync_period, 0.15);
  }
};

/// Reads the command line; prints help or a complaint and exits where that is all there is to do.
inline settings read_flags(int argc, char** argv, std::vector<std::string> const& optimizers) {
  settings s;
  CLI::App app("Trains a character GPT with n data-parallel workers.");
  app.option_defaults()->always_capture_default();
  app.get_formatter()->column_width(34);
  CLI::Validator const& positive = CLI::PositiveNumber;

  app.add_option("--optimizer", s.optimizer, "how workers agree")->check(CLI::IsMember(optimizers));
  auto* const workers = app.add_option("--workers", s.workers, "threads; under mpirun its number of processes");
  workers->check(positive);
  app.add_option("--steps", s.steps, "optimizer steps")->check(positive);
  app.add_option("--seed", s.seed, "of the initial parameters and the order of the data");
  app.add_option("--text", s.text, "text to learn; default: the King James Bible from the `bible` program");
  app.add_option("--metrics", s.metrics, "write results to this JSON file");
  app.add_option("--curve", s.curve, "write step,train_loss,validation_loss to this CSV file");
  app.add_option("--eval-every", s.eval_every, "steps between looks at the validation text")->check(positive);

  app.add_option("--batch", s.batch, "sequences per worker and step")->check(positive)->group("Model and data");
  app.add_option("--context", s.model.context, "characters per sequence")->check(positive)->group("Model and data");
  app.add_option("--width", s.model.width, "channels")->check(positive)->group("Model and data");
  app.add_option("--layers", s.model.layers, "transformer layers")->check(positive)->group("Model and data");
  app.add_option("--heads", s.model.heads, "attention heads")->check(positive)->group("Model and data");

  std::string const rate = "Learning rate and Adam";
  app.add_option("--lr", s.lr, "peak learning rate")->group(rate);
  app.add_option("--min-lr", s.min_lr, "learning rate at the last step")->group(rate);
  app.add_option("--warmup", s.warmup, "steps of linear warm-up; -1: 5 %")->group(rate);
  app.add_option("--schedule", s.schedule, "after warm-up")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}))
      ->group(rate);
  app.add_option("--weight-decay", s.weight_decay, "of matrices, decoupled")->group(rate);
  app.add_option("--clip", s.clip, "limit of each worker's gradient norm; 0: none")->group(rate);
  app.add_option("--beta1", s.beta1, "decay of the momentum")->group(rate);
  app.add_option("--beta2", s.beta2, "decay of the variance")->group(rate);
  app.add_option("--eps", s.epsilon, "added to the root of the variance")->group(rate);

  std::string const exchange = "Exchanges";
  app.add_option("--freeze-step", s.freeze_step, "1-bit Adam, 1-bit LAMB: last exact step; -1: 15 %")
      ->group(exchange);
  app.add_option("--sync-start", s.sync_start, "0/1 Adam: local steps begin after this step; -1: 25 %")
      ->group(exchange);
  app.add_option("--sync-period", s.sync_period, "0/1 Adam: steps until the interval doubles; -1: 15 %")
      ->group(exchange);
  app.add_option("--sync-max", s.sync_max, "0/1 Adam: longest interval between exchanges")
      ->check(positive)
      ->group(exchange);
  app.add_option("--sync-interval", s.sync_interval, "local Adam, DiLoCo, SparseLoCo: steps per exchange")
      ->check(positive)
      ->group(exchange);
  app.add_option("--kappa", s.kappa, "0/1 Adam: variance updates until their gap doubles")
      ->check(positive)
      ->group(exchange);
  app.add_option("--variance-stop", s.variance_stop, "0/1 Adam: last step that may update the variance")
      ->check(CLI::NonNegativeNumber)
      ->group(exchange);

  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& e) {
    std::exit(launched_rank() == 0 ? app.exit(e) : e.get_exit_code());
  }
  int const processes = launched_processes();
  if (processes > 1) {
    if (workers->count() > 0 && s.workers != processes) {
      throw std::invalid_argument("--workers differs from the number of processes that mpirun started");
    }
    s.workers = processes;
  }
  s.resolve();
  return s;
}

}  // namespace example
