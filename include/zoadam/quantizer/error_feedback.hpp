// SPDX-License-Identifier: Apache-2.0
// Error compensation, on the worker and on the owner side.
#pragma once

#include <ratio>

#include "zoadam/concepts/quantizer.hpp"

namespace zoadam {

/// Adds error feedback to a quantizer: c = z + Decay e is encoded, e <- c - decoded stays for the next exchange.
///
/// Invariant: for Decay = 1, over any number of exchanges, sum of outputs + mean of worker errors + owner error = sum
/// of
///            mean inputs, up to rounding. A Decay below 1 forgets: what an exchange finds in the errors of both
///            sides counts Decay times, and the right side loses 1 - Decay of it
///                                                             tested: tests/quantizer/error_feedback.cpp
/// Memory:    one float32 per element on the worker, one per owned element on the owner
/// Source:    SparseLoCo, Algorithm 1, for Decay below 1
template <quantizer Quantizer, class Decay = std::ratio<1>>
struct error_feedback : Quantizer {
  static_assert(Decay::num > 0 && Decay::num <= Decay::den,
                "zoadam: error_feedback: the decay of errors must be a std::ratio above 0 and at most 1");
  static constexpr bool compensated = true;
  static constexpr float error_decay = static_cast<float>(Decay::num) / static_cast<float>(Decay::den);

  template <class Sink>
  void describe(Sink& sink) const {
    if constexpr (std::ratio_equal_v<Decay, std::ratio<1>>) {
      sink("error_feedback");
    } else {
      sink("error_feedback", Decay::num, Decay::den);
    }
    Quantizer::describe(sink);
  }
};

}  // namespace zoadam
