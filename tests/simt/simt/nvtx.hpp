// SPDX-License-Identifier: Apache-2.0
// Counting ranges instead of a profiler's.
#pragma once

#include "world.hpp"

namespace simt {
/// Ranges pushed since the last reset, by any thread, by name.
inline std::map<std::string, std::size_t>& nvtx_counts() {
  static auto& own = *new std::map<std::string, std::size_t>;
  return own;
}
inline std::size_t nvtx_ranges() {
  world_lock const lock(the_world().mutex);
  std::size_t sum = 0;
  for (auto const& [name, count] : nvtx_counts()) sum += count;
  return sum;
}
inline bool const nvtx_resets = [] {
  the_world().reset_steps.push_back([] { nvtx_counts().clear(); });
  return true;
}();
}  // namespace simt

/// @return   depth of the range that starts
inline int nvtxRangePushA(char const* message) {
  simt::world_lock const lock(simt::the_world().mutex);
  ++simt::nvtx_counts()[message];
  simt::this_thread().ranges.emplace_back(message);
  return static_cast<int>(simt::this_thread().ranges.size()) - 1;
}
/// @return   depth of the range that ends
inline int nvtxRangePop() {
  auto& ranges = simt::this_thread().ranges;
  if (ranges.empty()) {
    simt::violation("nvtxRangePop without a range");
    return -2;
  }
  ranges.pop_back();
  return static_cast<int>(ranges.size());
}
inline void nvtxMarkA(char const*) {}
