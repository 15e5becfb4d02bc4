// SPDX-License-Identifier: Apache-2.0
// Trains a character GPT on the King James Bible with n data-parallel workers: threads, or processes under mpirun.
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"
#include "results.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "trainer.hpp"
#include "zoadam/zoadam.hpp"

extern "C" void openblas_set_num_threads(int);

namespace {

std::vector<std::string> const optimizers = {"adam", "onebit_adam", "zero_one_adam", "zero_one_adam_paper",
                                             "local_adam"};

/// The one place where a name becomes a type: everything below it is compiled for that optimizer.
template <class Transport>
auto train_named(example::settings const& s, example::corpus const& text, Transport link) {
  using example::train;
  if (s.optimizer == "adam") return train<zoadam::adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "onebit_adam") return train<zoadam::onebit_adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "zero_one_adam") return train<zoadam::zero_one_adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "zero_one_adam_paper") {
    return train<zoadam::zero_one_adam_paper<Transport>>(s, text, std::move(link));
  }
  if (s.optimizer == "local_adam") return train<zoadam::local_adam<Transport>>(s, text, std::move(link));
  throw std::invalid_argument("unknown optimizer " + s.optimizer);
}

void run(example::settings s) {
  // Trouble with the files should show before the training, not after it.
  for (std::string const& path : {s.metrics, s.curve}) {
    if (!path.empty() && example::launched_rank() == 0) example::open_for_writing(path);
  }
  openblas_set_num_threads(1);  // the workers are the threads
  example::corpus const text =
      example::split_text(s.text.empty() ? example::king_james() : example::read_file(s.text));
  s.model.vocabulary = static_cast<zoadam::index>(text.alphabet.size());

  example::results const ranks = example::on_every_rank<example::rank_totals>(
      s.workers, std::chrono::seconds(60), [&](auto link) { return train_named(s, text, std::move(link)); });
  if (ranks.empty()) return;  // another process reports

  auto const summary = example::summarize(s, text, ranks);
  if (!s.metrics.empty()) example::open_for_writing(s.metrics) << summary.dump(2) << '\n';
  if (!s.curve.empty()) example::write_curve(s, ranks);
  for (char const* key : {"optimizer", "workers", "parameters", "train_loss", "validation_loss", "trigram_loss",
                          "bits_per_parameter", "rounds_per_step", "replicas_identical", "seconds"}) {
    std::printf("%-20s %s\n", key, summary[key].dump().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    example::settings const s = example::read_flags(argc, argv, optimizers);
    example::launch const launched(&argc, &argv);
    run(s);
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "train_gpt: %s\n", e.what());
    example::give_up();
    return 1;
  }
}
