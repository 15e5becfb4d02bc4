// SPDX-License-Identifier: Apache-2.0
// Error compensation, on the worker and on the owner side.
#pragma once

#include "zoadam/concepts/quantizer.hpp"

namespace zoadam {

/// Adds error feedback to a quantizer: c = z + e is encoded, e <- c - decoded stays for the next exchange.
///
/// Invariant: over any number of exchanges, sum of outputs + mean of worker errors + owner error = sum of mean
/// inputs,
///            up to rounding                                      tested: tests/quantizer/error_feedback.cpp
/// Memory:    one float32 per element on the worker, one per owned element on the owner
template <quantizer Quantizer>
struct error_feedback : Quantizer {
  static constexpr bool compensated = true;

  template <class Sink>
  void describe(Sink& sink) const {
    sink("error_feedback");
    Quantizer::describe(sink);
  }
};

}  // namespace zoadam
