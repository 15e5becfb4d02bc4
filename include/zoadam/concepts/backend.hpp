// SPDX-License-Identifier: Apache-2.0
// What a backend is: memory, and the loops of a program.
#pragma once

#include <concepts>
#include <cstddef>

#include "zoadam/config.hpp"

namespace zoadam {

/// allocate(bytes): zeroed memory, aligned to 64 bytes, freed with the returned object.
template <class Backend>
concept allocates = requires(Backend b, index bytes) {
  { b.allocate(bytes).data() } -> std::same_as<std::byte*>;
};

/// Bytes of working memory that the backend keeps for tiles of a given number of elements.
template <class Backend>
concept has_workspace = requires(Backend b, index elements) {
  b.reserve(elements);
  { b.workspace_bytes() }
  noexcept->std::same_as<index>;
};

/// Where loops run. Its member templates run, own, reduce, reduce_tensors, check and hash are what the optimizer's
/// program calls; see basic_cpu_backend, the reference for their meaning.
template <class Backend>
concept backend = std::movable<Backend> && allocates<Backend> && has_workspace<Backend>;

}  // namespace zoadam
