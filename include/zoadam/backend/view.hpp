// SPDX-License-Identifier: Apache-2.0
// What an optimizer shows its backend: tensors, fields, coefficients, messages.
#pragma once

#include <cstddef>
#include <vector>

#include "zoadam/concepts/quantizer.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/detail/tags.hpp"
#include "zoadam/layout/partition.hpp"
#include "zoadam/layout/slices.hpp"
#include "zoadam/state/field.hpp"

namespace zoadam::detail {

/// Fields: all fields of a composition. Pointers of worker and replica fields are indexed by flat position, those of
/// owner fields by position among the owner's elements, those of tensor scalars by tensor, those of slice values by
/// slicing and slice.
template <class Fields>
struct view {
  layout const* tensors;
  registers<float*, typename Fields::tags> field;
  coefficients<float>* group;  ///< one per parameter group
  group_numbers* numbers;      ///< one per parameter group
  index groups;                ///< how many
  progress* now;               ///< what this step has learnt so far
  unsigned char* contributes;  ///< per rank: whether its message enters the present mean
  float* block_sums;  ///< elements / sum_block + 1 floats; for each result of a tensor_reduction one per block
  hyper_numbers hyper;
  registers<slice_list, slices_of<typename Fields::tags>> slices;
  float* slice_maxima;  ///< where maxima over slices are taken: as many as the longest field of them has values

  static constexpr bool has_master = contains<typename Fields::tags, at::master_t>;
  /// Whether a field is indexed by position among the owner's elements.
  template <class Tag>
  static constexpr bool at_owner = contains<at_home<Fields, home::owner>, Tag>;
};

/// The result of an exchange on its way into a segment. Optional: there is none if nobody contributed.
template <class Down, bool Optional = false>
struct incoming {
  using quantizer = Down;
  static constexpr bool optional = Optional;
  partition<Down> const* cut;
  std::byte const* messages;
};
/// The input of an exchange on its way out of a segment. `carry` holds worker errors, or c where a group's scale must
/// be known before its first element is encoded; null if neither is needed. Optional: nothing goes out if this
/// worker's gradient is bad.
template <class Up, bool Optional = false>
struct outgoing {
  using quantizer = Up;
  static constexpr bool optional = Optional;
  partition<Up> const* cut;
  std::byte* messages;
  float* carry;
};
struct no_messages {
  using quantizer = void;
  static constexpr bool optional = false;
};
/// Sums and maxima of a tensor_reduction at most.
inline constexpr index most_results = 4;

/// The term of one float32 in the hash of replicas, by its bits and its flat position.
ZOADAM_INLINE std::uint64_t hash_of_element(std::uint32_t bits, index at) noexcept {
  std::uint64_t h = bits + static_cast<std::uint64_t>(at) * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  return h ^ (h >> 32);
}

/// What a loop counts besides computing.
struct tally {
  index active = 0;
  index waiting = 0;
  bool bad = false;
};

/// Block size of a quantizer's groups; 0 if they are not blocks, or for no quantizer.
template <class Quantizer>
inline constexpr index block_of = block_size<typename Quantizer::groups>;
template <>
inline constexpr index block_of<void> = 0;

template <class Quantizer>
inline constexpr bool blockwise = (block_of<Quantizer> > 0);

/// Whether a group is encoded right after it was computed, in one pass over memory.
template <class Quantizer>
inline constexpr bool single_pass = !Quantizer::has_scale || block_of<Quantizer> > 0;
template <>
inline constexpr bool single_pass<void> = false;
template <class Quantizer>
inline constexpr bool needs_carry = Quantizer::compensated || !single_pass<Quantizer>;
/// Elements of a tile.
template <class Quantizer>
inline constexpr index tile_of = block_of<Quantizer> > tile_size ? block_of<Quantizer> : tile_size;

}  // namespace zoadam::detail
