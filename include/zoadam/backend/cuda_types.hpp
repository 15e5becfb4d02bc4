// SPDX-License-Identifier: Apache-2.0
// What kernels of the CUDA backend know of tensors and messages; filled at construction.
#pragma once

#include "zoadam/backend/view.hpp"

namespace zoadam::detail {

inline constexpr int tile_threads = 128;
inline constexpr int quad = 4;  ///< elements that a thread loads at once
inline constexpr unsigned all_lanes = 0xffffffffu;

/// What a device knows of a tensor.
struct device_tensor {
  float* parameter;
  void const* gradient;  ///< null: zeros
  index first, last;     ///< flat positions
  void* working;         ///< null: none
  dtype type, working_type;
  int group;
  index first_block, last_block;  ///< of its sums, in blocks of 2048 from its start
};

/// Elements that a thread block works on at a time: within one tensor, one group, one message.
struct device_tile {
  index first;  ///< flat position
  index own;    ///< position among the owner's elements
  index at;     ///< elements before it in its piece, or in its group where that is larger than a tile
  index scale;  ///< byte offsets in the messages that it writes
  index payload;
  index from_scale;  ///< at the owner: byte offsets in each message that it reads
  index from_payload;
  index group;  ///< of the scale, where it is not the tile's own
  int count;
  int tensor;
};

/// Where a flat position lies in the messages of a partition; see partition::find.
struct device_piece {
  index first, last;
  index scale, payload;  ///< byte offsets from the first message
};
struct device_region {
  index first;  ///< flat position
  index piece;  ///< its first piece
  index width;  ///< of its pieces
};
struct device_cut {
  device_piece const* pieces;
  device_region const* regions;  ///< one per tensor, or one in all
  bool per_tensor;
};

/// Up to 2048 values of a group larger than a tile, counted from its start: neighbouring tiles, of one thread block.
struct device_sum_block {
  index tile;  ///< the first
  index group;
  int tiles, count;  ///< of tiles, of values
};
/// Where the sums of blocks go.
struct device_sums {
  device_sum_block const* blocks;
  index block_count;
  float* sums;                  ///< one per block
  unsigned long long* actives;  ///< one per group
};

}  // namespace zoadam::detail
