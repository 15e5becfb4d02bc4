// SPDX-License-Identifier: Apache-2.0
// The learning rate at a step: linear warm-up, then constant, linear or cosine decay.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace example {

enum class decay { cosine, linear, constant };

struct learning_rate {
  double peak = 0;
  double lowest = 0;  // reached at the last step, unless constant
  std::int64_t warmup = 0;
  std::int64_t steps = 1;
  decay shape = decay::cosine;

  /// For step 1, 2, ..., steps.
  [[nodiscard]] double at(std::int64_t step) const {
    if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
    if (shape == decay::constant) return peak;
    double const done = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
    double const left = shape == decay::linear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
    return lowest + (peak - lowest) * left;
  }
};

}  // namespace example
