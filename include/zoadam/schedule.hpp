// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: factors, to be multiplied with each other and with a learning rate.
//
//   lr = 0.1 * linear_scaling(batch, 256) * linear_warmup(t, 500) * cosine_decay(t - 500, steps - 500)
//
// Ranks must agree about the learning rate of a step to the bit. Where their libraries disagree about a cosine or a
// power, the first step after that throws mismatch_error; then let rank 0 compute the schedule.
#pragma once

#include <cmath>
#include <numbers>

#include "zoadam/detail/describe.hpp"
#include "zoadam/error.hpp"

namespace zoadam {

namespace detail {
/// The share of `steps` that is over after `step` of them, in [0, 1].
constexpr double share_done(char const* call, index step, index steps) {
  ZOADAM_EXPECTS(steps >= 0, call, "steps must be >= 0");
  return step <= 0 ? 0.0 : step >= steps ? 1.0 : static_cast<double>(step) / static_cast<double>(steps);
}
constexpr double batch_ratio(char const* call, index batch, index base) {
  ZOADAM_EXPECTS(batch >= 1, call, "batch must be >= 1");
  ZOADAM_EXPECTS(base >= 1, call, "base must be >= 1");
  return static_cast<double>(batch) / static_cast<double>(base);
}
}  // namespace detail

// ---- warm-up: the factor rises to 1 at step `steps`, and stays there ----

/// step / steps
constexpr double linear_warmup(index step, index steps) { return detail::share_done("linear_warmup", step, steps); }

/// From 1 / k at step 0: from the rate for one worker to that for k of them.
///
/// @param k  finite, >= 1
///
/// Source: Goyal et al., Accurate, Large Minibatch SGD, section 2.2.
constexpr double gradual_warmup(index step, index steps, double k) {
  ZOADAM_EXPECTS(detail::finite(k) && k >= 1, "gradual_warmup", "k must be finite and >= 1");
  return (1 + (k - 1) * detail::share_done("gradual_warmup", step, steps)) / k;
}

// ---- scaling with the batch of all workers together, from the batch that the learning rate was found for ----

/// batch / base
///
/// Source: Goyal et al., section 2.1.
constexpr double linear_scaling(index batch, index base) {
  return detail::batch_ratio("linear_scaling", batch, base);
}

/// sqrt(batch / base)
///
/// Source: Krizhevsky, One Weird Trick for Parallelizing Convolutional Neural Networks, section 5.
inline double square_root_scaling(index batch, index base) {
  return std::sqrt(detail::batch_ratio("square_root_scaling", batch, base));
}

// ---- decay: the factor falls from 1 at step 0 ----

/// factor^floor(step / period)
constexpr double step_decay(index step, index period, double factor) {
  ZOADAM_EXPECTS(period >= 1, "step_decay", "period must be >= 1");
  ZOADAM_EXPECTS(detail::finite(factor) && factor >= 0 && factor <= 1, "step_decay", "factor must be in [0, 1]");
  double result = 1;
  for (index times = step / period; times > 0; times /= 2, factor *= factor) {
    if (times % 2 == 1) result *= factor;
  }
  return result;
}

/// (1 + cos(pi step / steps)) / 2, and 0 after that. For a lowest rate: lowest + (peak - lowest) * cosine_decay(...).
///
/// Source: Loshchilov and Hutter, SGDR, equation 5, without restarts.
inline double cosine_decay(index step, index steps) {
  return 0.5 * (1 + std::cos(std::numbers::pi * detail::share_done("cosine_decay", step, steps)));
}

/// (1 - step / steps)^power, and 0 after that.
///
/// @param power  finite, > 0
inline double polynomial_decay(index step, index steps, double power = 1) {
  ZOADAM_EXPECTS(detail::finite(power) && power > 0, "polynomial_decay", "power must be finite and > 0");
  return std::pow(1 - detail::share_done("polynomial_decay", step, steps), power);
}

}  // namespace zoadam
