// SPDX-License-Identifier: Apache-2.0
// Where the optimizers of a test run: as they are, or, in programs built with ZOADAM_SUITE_DEVICE, on a device.
#pragma once

#if ZOADAM_SUITE_DEVICE

#include "simt/hosted.hpp"

namespace suite {
template <class Optimizer>
using placed = hosted<Optimizer>;
inline constexpr bool on_device = true;
/// Steps of a long run: fewer where each thread of a device is a fiber.
constexpr int steps_of(int, int here) noexcept { return here; }
}  // namespace suite

#else

namespace suite {
template <class Optimizer>
using placed = Optimizer;
inline constexpr bool on_device = false;
constexpr int steps_of(int all, int) noexcept { return all; }
}  // namespace suite

#endif
