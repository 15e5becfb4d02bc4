// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend works out at construction: tensors, tiles and pieces, as kernels want them.
#pragma once

#include <cstring>
#include <vector>

#include "zoadam/backend/cuda_types.hpp"
#include "zoadam/layout/partition.hpp"

namespace zoadam::detail {

/// Host arrays that are to lie in one piece of device memory, each at a multiple of 64 bytes.
class table_packer {
 public:
  /// Byte offset of the copy.
  template <class T>
  index add(std::vector<T> const& values) {
    index const at = static_cast<index>(bytes_.size());
    std::size_t const size = values.size() * sizeof(T);
    bytes_.resize((bytes_.size() + size + 63) / 64 * 64);
    if (size > 0) std::memcpy(bytes_.data() + at, values.data(), size);
    return at;
  }
  std::vector<std::byte> const& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Calls f(tensor, first, last) on the parts of [first, last) that lie in one tensor and are at most `most` long.
template <class F>
void for_parts(layout const& l, index first, index last, index most, F const& f) {
  for (index i = first; i < last;) {
    index const t = l.find(i);
    index end = last < l.first(t + 1) ? last : l.first(t + 1);
    end = end < i + most ? end : i + most;
    f(t, i, end);
    i = end;
  }
}

/// The same for blocks of sums, counted from `first`.
template <class F>
void for_block_parts(layout const& l, index first, index last, F const& f) {
  for (index b = first; b < last; b += sum_block) {
    for_parts(l, b, last - b < sum_block ? last : b + sum_block, sum_block, f);
  }
}

inline std::vector<device_tensor> tensor_table(layout const& l) {
  std::vector<device_tensor> all;
  for (index t = 0; t < l.size(); ++t) {
    tensor const& each = l[t];
    all.push_back({each.parameter.data(), each.gradient.size() > 0 ? each.gradient.data() : nullptr, l.first(t),
                   l.first(t + 1), each.working.size() > 0 ? each.working.data() : nullptr, each.gradient.type(),
                   each.working.type(), each.group, l.first_block(t), l.first_block(t + 1)});
  }
  return all;
}

/// Tiles of loops that send nothing: the blocks of sums over tensors.
inline std::vector<device_tile> plain_tiles(layout const& l) {
  std::vector<device_tile> all;
  for_parts(l, 0, l.elements(), tile_size, [&](index t, index i, index end) {
    device_tile tile{};
    tile.first = i;
    tile.count = static_cast<int>(end - i);
    tile.tensor = static_cast<int>(t);
    all.push_back(tile);
  });
  return all;
}

/// Pieces with their place in the messages, whose offsets are added.
template <class Quantizer>
std::vector<device_piece> piece_table(partition<Quantizer> const& cut) {
  std::vector<device_piece> all;
  for (index k = 0; k < cut.pieces(); ++k) {
    piece const p = cut[k];
    index const message = cut.offsets()[static_cast<std::size_t>(p.owner)];
    all.push_back({p.first, p.last, message + p.scale, message + p.payload});
  }
  return all;
}
template <class Quantizer>
std::vector<device_region> region_table(layout const& l, partition<Quantizer> const& cut) {
  constexpr index block = block_of<Quantizer>;
  std::vector<device_region> all;
  if constexpr (std::same_as<typename Quantizer::groups, whole>) {
    all.push_back({0, 0, cut[0].last - cut[0].first});
  } else {
    index piece = 0;
    for (index t = 0; t < l.size(); ++t) {
      index const size = l.first(t + 1) - l.first(t);
      if constexpr (block > 0) {
        all.push_back({l.first(t), piece, block});
        piece += (size + block - 1) / block;
      } else {
        all.push_back({l.first(t), piece, cut[piece].last - cut[piece].first});
        piece += cut.ranks();
      }
    }
  }
  for (device_region& r : all) r.width = r.width > 0 ? r.width : 1;
  return all;
}

/// Tiles that are encoded into all messages, piece by piece.
template <class Quantizer>
std::vector<device_tile> outgoing_tiles(layout const& l, partition<Quantizer> const& cut) {
  std::vector<device_tile> all;
  for (index k = 0; k < cut.pieces(); ++k) {
    piece const p = cut[k];
    index const message = cut.offsets()[static_cast<std::size_t>(p.owner)];
    for_parts(l, p.first, p.last, tile_of<Quantizer>, [&](index t, index i, index end) {
      device_tile tile{};
      tile.first = i;
      tile.at = i - p.first;
      tile.scale = message + p.scale;
      tile.payload = message + p.payload;
      tile.count = static_cast<int>(end - i);
      tile.tensor = static_cast<int>(t);
      all.push_back(tile);
    });
  }
  return all;
}
/// Tiles that are summed by blocks, where groups are larger than a tile.
template <class Quantizer>
std::vector<device_tile> outgoing_group_tiles(layout const& l, partition<Quantizer> const& cut) {
  std::vector<device_tile> all;
  for (index k = 0; k < cut.pieces(); k += cut.ranks()) {
    index const first = cut[k].first, last = cut[k + cut.ranks() - 1].last;
    for_block_parts(l, first, last, [&](index t, index i, index end) {
      device_tile tile{};
      tile.first = i;
      tile.at = i - first;
      tile.group = k / cut.ranks();
      tile.count = static_cast<int>(end - i);
      tile.tensor = static_cast<int>(t);
      all.push_back(tile);
    });
  }
  return all;
}
/// Tiles that are encoded once scales are known: pieces cut by themselves, so that codes of a tile fill whole words.
/// `carry`: where the compensated values of the piece lie.
inline void add_code_tiles(layout const& l, piece const& p, index message, index group, index carry,
                           std::vector<device_tile>& all) {
  for (index i = p.first; i < p.last; i += tile_size) {
    device_tile tile{};
    tile.first = i;
    tile.at = i - p.first;
    tile.own = carry + tile.at;
    tile.scale = message + p.scale;
    tile.payload = message + p.payload;
    tile.group = group;
    tile.count = static_cast<int>(p.last - i < tile_size ? p.last - i : tile_size);
    tile.tensor = static_cast<int>(l.find(i));
    all.push_back(tile);
  }
}
/// Tiles of the owner's side.
template <class Up, class Down>
std::vector<device_tile> owner_tiles(layout const& l, partition<Up> const& up, partition<Down> const& down, int me) {
  std::vector<device_tile> all;
  for (index k = 0; k < up.owned(me); ++k) {
    piece const from = up.owned(me, k), to = down.owned(me, k);
    auto const add = [&](index t, index i, index end) {
      device_tile tile{};
      tile.first = i;
      tile.at = i - to.first;
      tile.own = to.own + tile.at;
      tile.scale = to.scale;
      tile.payload = to.payload;
      tile.from_scale = from.scale;
      tile.from_payload = from.payload;
      tile.group = k;
      tile.count = static_cast<int>(end - i);
      tile.tensor = static_cast<int>(t);
      all.push_back(tile);
    };
    if constexpr (single_pass<Down>) {
      for_parts(l, to.first, to.last, tile_of<Down>, add);
    } else {
      for_block_parts(l, to.first, to.last, add);
    }
  }
  return all;
}

/// Blocks of at most 2048 values in groups larger than a tile, counted from each group's start. `tiles`: of all
/// groups, in order; a block begins with one of them.
struct group_blocks {
  std::vector<device_sum_block> blocks;
  std::vector<index> first;  ///< block of each group, and the end

  group_blocks(std::vector<device_tile> const& tiles, index groups) {
    auto const before = [&](index group) { first.resize(static_cast<std::size_t>(group) + 1, count()); };
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      if (tiles[t].at % sum_block == 0) {
        before(tiles[t].group);
        blocks.push_back({static_cast<index>(t), tiles[t].group, 0, 0});
      }
      blocks.back().tiles += 1;
      blocks.back().count += tiles[t].count;
    }
    before(groups);
  }
  index count() const noexcept { return static_cast<index>(blocks.size()); }
};
template <class Quantizer>
std::vector<device_tile> outgoing_code_tiles(layout const& l, partition<Quantizer> const& cut) {
  std::vector<device_tile> all;
  for (index k = 0; k < cut.pieces(); ++k) {
    piece const p = cut[k];
    add_code_tiles(l, p, cut.offsets()[static_cast<std::size_t>(p.owner)], k / cut.ranks(), p.first, all);
  }
  return all;
}
template <class Quantizer>
std::vector<device_tile> owner_code_tiles(layout const& l, partition<Quantizer> const& cut, int me) {
  std::vector<device_tile> all;
  for (index k = 0; k < cut.owned(me); ++k) add_code_tiles(l, cut.owned(me, k), 0, k, cut.owned(me, k).own, all);
  return all;
}

}  // namespace zoadam::detail
