// SPDX-License-Identifier: Apache-2.0
// The program around a choice of optimizers: flags, text, ranks, results.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"
#include "results.hpp"
#include "settings.hpp"
#include "text.hpp"

extern "C" void openblas_set_num_threads(int);

namespace example {

/// train(settings, corpus, link) runs one worker with the optimizer that the settings name.
template <class Train>
void run(settings s, Train const& train) {
  // Trouble with the files should show before the training, not after it.
  for (std::string const& path : {s.metrics, s.curve}) {
    if (!path.empty() && launched_rank() == 0) open_for_writing(path);
  }
  openblas_set_num_threads(1);  // the workers are the threads
  corpus const text = split_text(s.text.empty() ? king_james() : read_file(s.text));
  s.model.vocabulary = static_cast<index>(text.alphabet.size());

  results const ranks = on_every_rank<rank_totals>(s.workers, std::chrono::seconds(60),
                                                   [&](auto link) { return train(s, text, std::move(link)); });
  if (ranks.empty()) return;  // another process reports

  auto const summary = summarize(s, text, ranks);
  if (!s.metrics.empty()) open_for_writing(s.metrics) << summary.dump(2) << '\n';
  if (!s.curve.empty()) write_curve(s, ranks);
  for (char const* key : {"optimizer", "workers", "parameters", "train_loss", "validation_loss", "trigram_loss",
                          "bits_per_parameter", "rounds_per_step", "replicas_identical", "seconds"}) {
    std::printf("%-20s %s\n", key, summary[key].dump().c_str());
  }
}

/// The body of main(): 0, or 1 after a complaint.
template <class Train>
int run_program(int argc, char** argv, std::vector<std::string> const& optimizers, Train const& train) {
  try {
    settings const s = read_flags(argc, argv, optimizers);
    launch const launched(&argc, &argv);
    run(s, train);
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    give_up();
    return 1;
  }
}

}  // namespace example
