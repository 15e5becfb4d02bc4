// SPDX-License-Identifier: Apache-2.0
// What a run found: a JSON summary, and the curve of the losses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "settings.hpp"
#include "text.hpp"
#include "trainer.hpp"

namespace example {

/// All ranks, in order.
using results = std::vector<rank_result<rank_totals>>;

/// Mean training loss over steps first + 1, ..., last and all ranks.
inline double mean_loss(results const& ranks, index first, index last) {
  double total = 0;
  for (auto const& r : ranks) {
    for (index i = first; i < last; ++i) total += static_cast<double>(r.series[static_cast<std::size_t>(i)]);
  }
  return total / static_cast<double>(last - first) / static_cast<double>(ranks.size());
}

inline std::ofstream open_for_writing(std::string const& path) {
  std::ofstream file(path);
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
  return file;
}

inline void write_curve(settings const& s, results const& ranks) {
  std::ofstream file = open_for_writing(s.curve);
  file << "step,train_loss,validation_loss\n";
  index last = 0;
  for (auto look = static_cast<std::size_t>(s.steps); look < ranks[0].series.size(); ++look) {
    index const step = std::min(last + s.eval_every, s.steps);
    file << step << ',' << mean_loss(ranks, last, step) << ',' << ranks[0].series[look] << '\n';
    last = step;
  }
}

inline nlohmann::ordered_json summarize(settings const& s, corpus const& text, results const& ranks) {
  rank_totals const& first = ranks[0].totals;
  judge::score validation;
  bool identical = true;
  double seconds = 0;
  index skipped = 0, bytes = 0;
  for (auto const& r : ranks) {
    validation.loss += r.totals.validation.loss;
    validation.windows += r.totals.validation.windows;
    identical = identical && r.totals.replicas == first.replicas && r.totals.exchanges == first.exchanges;
    seconds = std::max(seconds, r.totals.seconds);
    skipped += r.totals.skipped;
    bytes = std::max(bytes, r.totals.bytes_sent);
  }
  auto const steps = static_cast<double>(s.steps);
  trigram_model const trigram(text.training, text.alphabet.size());
  return {{"optimizer", s.optimizer},
          {"workers", s.workers},
          {"steps", s.steps},
          {"parameters", first.parameters},
          {"train_loss", mean_loss(ranks, std::max<index>(0, s.steps - 100), s.steps)},
          {"validation_loss", validation.loss / validation.windows},
          {"trigram_loss", trigram.cross_entropy(text.validation)},
          {"bits_per_parameter",
           8 * static_cast<double>(first.payload_bytes) / static_cast<double>(first.parameters) / steps},
          {"rounds_per_step", static_cast<double>(first.exchanges) / steps},
          {"variance_rounds", first.variance_updates},
          {"bytes_sent_per_worker", bytes},
          {"replicas_identical", identical},
          {"skipped_gradients", skipped},
          {"seconds", seconds},
          {"held_out", text.held_out},
          {"validation_characters", text.validation.size()},
          {"alphabet", text.alphabet.size()},
          {"seed", s.seed},
          {"batch", s.batch},
          {"context", s.model.context},
          {"width", s.model.width},
          {"layers", s.model.layers},
          {"heads", s.model.heads},
          {"lr", s.lr},
          {"min_lr", s.min_lr},
          {"warmup", s.warmup},
          {"schedule", s.schedule},
          {"weight_decay", s.weight_decay},
          {"clip", s.clip},
          {"beta1", s.beta1},
          {"beta2", s.beta2},
          {"eps", s.epsilon},
          {"freeze_step", s.freeze_step},
          {"sync_start", s.sync_start},
          {"sync_period", s.sync_period},
          {"sync_max", s.sync_max},
          {"sync_interval", s.sync_interval}};
}

}  // namespace example
