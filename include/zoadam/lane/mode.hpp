// SPDX-License-Identifier: Apache-2.0
// The processor's floating-point mode during a kernel: the IEEE default, whatever the caller had set.
#pragma once

#include <cstdint>

#include "zoadam/config.hpp"

namespace zoadam {

/// Sets rounding to nearest, denormals kept, exceptions masked; gives the caller's mode back on destruction.
///
/// Work on memory between the two: loads and stores do not cross the change of mode, arithmetic on values in
/// registers may. Without effect on targets other than x86.
///
/// Execution: host; per thread, a few cycles
class floating_point_mode {
 public:
#if defined(__SSE2__)
  ZOADAM_HOST_INLINE floating_point_mode() noexcept {
    std::uint32_t const standard = 0x1f80;
    asm volatile("stmxcsr %0" : "=m"(saved_) : : "memory");
    asm volatile("ldmxcsr %0" : : "m"(standard) : "memory");
  }
  ZOADAM_HOST_INLINE ~floating_point_mode() { asm volatile("ldmxcsr %0" : : "m"(saved_) : "memory"); }
#else
  ZOADAM_HOST_INLINE floating_point_mode() noexcept {}
  ZOADAM_HOST_INLINE ~floating_point_mode() {}
#endif
  floating_point_mode(floating_point_mode const&) = delete;
  floating_point_mode& operator=(floating_point_mode const&) = delete;

#if defined(__SSE2__)
 private:
  std::uint32_t saved_;
#endif
};

}  // namespace zoadam
