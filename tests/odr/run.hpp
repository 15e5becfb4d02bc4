// SPDX-License-Identifier: Apache-2.0
// The same run, compiled into several translation units for different instruction sets.
#pragma once

#include <cstdint>

namespace odr {

struct result {
  char const* instruction_set;
  std::uint64_t hash;
  float first;
};

result run_native();
result run_scalar();

}  // namespace odr
