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
  index at;     ///< elements of its piece before it
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

/// Up to 2048 values of a group, summed by one warp. `carry`: their position among the compensated values.
struct device_sum_block {
  index carry, first;  ///< `first`: flat position
  index group;
  int count;
};

}  // namespace zoadam::detail
