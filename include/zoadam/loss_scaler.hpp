// SPDX-License-Identifier: Apache-2.0
// Dynamic loss scaling for gradients in 16 bits, with the same decisions on all ranks.
#pragma once

#include "zoadam/detail/describe.hpp"
#include "zoadam/error.hpp"
#include "zoadam/options.hpp"

namespace zoadam {

/// How a loss scale moves.
struct loss_scaling {
  double initial = 0x1p16;
  double growth = 2;                      ///< factor after `interval` steps without a bad gradient on any worker, > 1
  double backoff = 0.5;                   ///< factor after a bad gradient on some worker, in (0, 1)
  index interval = 2000;                  ///< steps, >= 1
  double smallest = 1, largest = 0x1p24;  ///< bounds, within [2^-64, 2^64]
};

/// The factor of the loss in backward passes. Overflow in 16 bits becomes a bad gradient, which counts as missing;
/// the scale follows what all workers hear of each other at exchanges, so that it changes on all of them at once.
///
///     loss_scaler scaler;
///     backward(loss * scaler.scale());
///     step_report report = optimizer.step(lr, scaler.grad_scale());
///     scaler.update(report);
///
/// Source: Mixed Precision Training, section 3.2, with dynamic scales as in common trainers.
class loss_scaler {
 public:
  /// Errors: argument_error that names the field.
  explicit loss_scaler(loss_scaling rule = {}) : rule_(rule), now_{rule.initial, 0, 0} {
    auto const expects = [](bool condition, char const* what) {
      ZOADAM_EXPECTS(condition, "loss_scaler(rule)", what);
    };
    expects(in_range(rule.smallest), "smallest must be in [2^-64, 2^64]");
    expects(in_range(rule.largest), "largest must be in [2^-64, 2^64]");
    expects(rule.smallest <= rule.initial && rule.initial <= rule.largest, "initial must be in [smallest, largest]");
    expects(detail::finite(rule.growth) && rule.growth > 1, "growth must be finite and > 1");
    expects(rule.backoff > 0 && rule.backoff < 1, "backoff must be in (0, 1)");
    expects(rule.interval >= 1, "interval must be >= 1");
  }

  double scale() const noexcept { return now_.scale; }
  /// What the optimizer's step() multiplies gradients by.
  double grad_scale() const noexcept { return 1 / now_.scale; }

  /// Takes in the report of a step. Only exchanges decide, since only they tell what other workers saw: call it with
  /// every report, in order, on every rank.
  void update(step_report const& report) noexcept {
    if (!report.exchanged && !report.alone) return;
    if (report.skipped_since > 0) {
      now_.scale *= rule_.backoff;
      if (!(now_.scale >= rule_.smallest)) now_.scale = rule_.smallest;
      now_.good = 0;
    } else {
      now_.good += report.step - now_.last;
      if (now_.good >= rule_.interval) {
        now_.scale *= rule_.growth;
        if (!(now_.scale <= rule_.largest)) now_.scale = rule_.largest;
        now_.good = 0;
      }
    }
    now_.last = report.step;
  }

  /// What a checkpoint keeps.
  struct state {
    double scale;
    index good;  ///< steps since the scale changed, or since a bad gradient
    index last;  ///< step of the last exchange
  };
  state const& now() const noexcept { return now_; }
  /// Errors: argument_error.
  void restore(state const& from) {
    ZOADAM_EXPECTS(from.scale >= rule_.smallest && from.scale <= rule_.largest, "loss_scaler::restore",
                   "scale must be in [smallest, largest]");
    ZOADAM_EXPECTS(from.good >= 0 && from.last >= 0, "loss_scaler::restore", "steps must be >= 0");
    now_ = from;
  }

 private:
  static bool in_range(double x) noexcept { return x >= 0x1p-64 && x <= 0x1p64; }

  loss_scaling rule_;
  state now_;
};

}  // namespace zoadam
