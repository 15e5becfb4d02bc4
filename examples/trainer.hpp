// SPDX-License-Identifier: Apache-2.0
// Data-parallel training: what one worker does, for any optimizer over any transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "batches.hpp"
#include "gpt.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "zoadam/aliases.hpp"
#include "zoadam/zoadam.hpp"

namespace example {

// From flags to options: one overload per policy, so that a policy without one does not compile.

inline void configure(zoadam::every_step&, settings const&) {}
inline void configure(zoadam::local_steps& sync, settings const& s) {
  sync = {s.sync_start, s.sync_period, s.sync_max};
}

inline void configure(zoadam::fixed_interval& sync, settings const& s) { sync.interval = s.sync_interval; }

inline void configure(zoadam::adam_state&, settings const&) {}
inline void configure(zoadam::local_adam_state&, settings const&) {}
template <class... Parts>
void configure(zoadam::gradient_program<Parts...>&, settings const&) {}  // SGD and its like
inline void configure(zoadam::adafactor_state<>&, settings const&) {}
inline void configure(zoadam::sm3_state<>&, settings const&) {}
inline void configure(zoadam::lamb_state&, settings const&) {}
inline void configure(zoadam::lars_state&, settings const&) {}
inline void configure(zoadam::onebit_lamb_state& state, settings const& s) { state.freeze.step = s.freeze_step; }
template <class Outer>
void configure(zoadam::outer_state<Outer>&, settings const&) {}
inline void configure(zoadam::onebit_adam_state<>& state, settings const& s) { state.freeze.step = s.freeze_step; }
template <class... Choices>
void configure(zoadam::frozen_variance_state<Choices...>& state, settings const& s) {
  if (s.kappa) state.variance_schedule.kappa = *s.kappa;
  if (s.variance_stop) state.variance_schedule.stop = *s.variance_stop;
}
inline void configure(zoadam::zero_one_adam_paper<>::state_type& state, settings const& s) {
  state.variance_schedule = {s.kappa.value_or(16), s.variance_stop.value_or(s.warmup)};
}

template <class Optimizer>
typename Optimizer::options_type options_from(settings const& s) {
  typename Optimizer::options_type options;
  options.beta1 = s.beta1;
  options.beta2 = s.beta2;
  options.epsilon = s.epsilon;
  options.max_norm = s.clip;
  options.groups = {{.weight_decay = s.weight_decay}, {.weight_decay = 0}};  // matrices; gains and biases
  configure(options.sync, s);
  configure(options.state, s);
  return options;
}

inline std::vector<zoadam::tensor> tensors_of(gpt<float>& model) {
  std::vector<zoadam::tensor> tensors;
  for (tensor_info const& t : model.tensors()) {
    auto const offset = static_cast<std::size_t>(t.offset), size = static_cast<std::size_t>(t.size);
    tensors.push_back({t.name, t.shape, std::span<float>(model.parameters()).subspan(offset, size),
                       std::span<float const>(model.gradients()).subspan(offset, size), t.shape.size() > 1 ? 0 : 1});
  }
  return tensors;
}

struct rank_totals {
  std::uint64_t replicas = 0;  // digest of the replica hashes after every exchange
  index parameters = 0, exchanges = 0, variance_updates = 0, skipped = 0;
  index payload_bytes = 0, bytes_sent = 0;
  judge::score validation;
  double seconds = 0;
};

/// One worker. The series holds the training loss of every step, then rank 0's looks at the validation text.
template <class Optimizer, class Transport>
rank_result<rank_totals> train(settings const& s, corpus const& text, Transport link) {
  int const rank = link.rank();
  auto const ranks = static_cast<std::size_t>(link.size());
  gpt<float> model(s.model, s.batch, s.seed);
  window_batch data(text.training, s.model.context);
  judge validation(text.validation, s.model, s.batch);
  Optimizer optimizer(tensors_of(model), options_from<Optimizer>(s), std::move(link));

  rank_result<rank_totals> result;
  rank_totals& totals = result.totals;
  auto const count = [&](zoadam::step_report const& report) {
    totals.payload_bytes += report.payload_bytes;
    totals.bytes_sent += report.bytes_sent;
    totals.exchanges += report.exchanged ? 1 : 0;
    totals.variance_updates += report.variance_updated ? 1 : 0;
    totals.skipped += report.skipped_here ? 1 : 0;
    if (report.exchanged) totals.replicas = mix(totals.replicas ^ optimizer.replica_hash());
  };
  // The parameters that all workers agree on: what a user would save.
  auto const load_agreed = [&] { validation.load([&](index tensor) { return optimizer.agreed(tensor); }); };
  totals.parameters = static_cast<index>(model.parameters().size());
  std::vector<float> looks;
  std::optional<progress> display;
  if (rank == 0) display.emplace(s.steps);
  auto const start = std::chrono::steady_clock::now();
  double recent_loss = 0;

  for (index step = 1; step <= s.steps; ++step) {
    data.draw(s.seed, step, rank, s.batch);
    double const loss = model.loss_and_gradient(data.tokens(), data.targets());
    count(optimizer.step(s.rate(step)));
    result.series.push_back(static_cast<float>(loss));

    recent_loss = step == 1 ? loss : recent_loss + (loss - recent_loss) / 20;
    if (display) display->step(step, recent_loss);
    if (step % s.eval_every == 0 || step == s.steps) {
      double seen = 0;
      if (display) {
        load_agreed();
        seen = validation.sample(128);
        display->line(step, recent_loss, seen);
      }
      looks.push_back(static_cast<float>(seen));
    }
  }
  count(optimizer.synchronize());
  totals.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  load_agreed();
  totals.validation = validation.evaluate(static_cast<std::size_t>(rank), ranks);
  result.series.insert(result.series.end(), looks.begin(), looks.end());
  return result;
}

}  // namespace example
