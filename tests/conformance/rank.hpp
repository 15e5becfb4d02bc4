// SPDX-License-Identifier: Apache-2.0
// One rank of a case: what it records, and the function that runs it for each grouping of scales.
#pragma once

#include "any_transport.hpp"
#include "test_case.hpp"

#include <map>
#include <string>
#include <vector>

namespace conformance {

/// What one rank saw. Lists are as long on every rank.
struct record {
  /// By the names of the file's tensors, without the workers' dimension. Values of owners hold the own chunk's at its
  /// place and zeros elsewhere; flags are 0 or 1.
  std::map<std::string, std::vector<float>> values;
  /// (rank, first, end) of the rank-side groups, as this rank's partition cuts them.
  std::vector<std::vector<index>> rank_groups;
};

/// Runs the case's tape on the rank that `link` belongs to. Collective.
template <class Groups>
record run_rank(test_case const& c, any_transport link);

}  // namespace conformance
