// SPDX-License-Identifier: Apache-2.0
// How a vector is cut for an exchange: groups that share a scale, chunks that ranks own, places in messages.
#pragma once

#include <vector>

#include "zoadam/layout/groups.hpp"
#include "zoadam/layout/layout.hpp"
#include "zoadam/layout/message.hpp"

namespace zoadam {

/// A run of flat positions with one owner and one worker-side group; it is one rank-side group.
struct piece {
  index first, last;  ///< flat positions
  index group;        ///< worker-side group
  int owner;
  index own;      ///< position of `first` among the owner's elements
  index scale;    ///< byte offset of its scale in the owner's message
  index payload;  ///< byte offset of its payload in the owner's message
};

/// The cut of one layout over n ranks for one quantizer: who owns which run, and what its message holds.
///
/// A message is header | scales | payload. Rank j owns the j-th of n runs of ceil(units / n) units, a unit being one
/// block, or 32 elements where groups are not blocks; late ranks may own less, or nothing.
template <class Quantizer>
class partition {
  static constexpr index block_ = detail::block_size<typename Quantizer::groups>;
  static constexpr bool per_tensor_ = std::same_as<typename Quantizer::groups, per_tensor>;
  static constexpr index scale_bytes_ = Quantizer::has_scale ? 4 : 0;

 public:
  partition() = default;

  partition(layout const& l, int ranks) : ranks_(ranks) {
    // A region is cut by itself into groups or runs.
    for (index t = 0; t < (std::same_as<typename Quantizer::groups, whole> ? 1 : l.size()); ++t) {
      index const first = l.first(t);
      index const last = std::same_as<typename Quantizer::groups, whole> ? l.elements() : l.first(t + 1);
      regions_.push_back({first, last, pieces_, payload_});
      index const length = last - first;
      if constexpr (block_ > 0) {
        pieces_ += (length + block_ - 1) / block_;
        payload_ += length / block_ * Quantizer::payload_bytes(block_) + Quantizer::payload_bytes(length % block_);
      } else {
        pieces_ += ranks;
      }
    }
    regions_.push_back({l.elements(), l.elements(), pieces_, payload_});
    per_rank_ = (pieces_ + ranks - 1) / ranks;
    offsets_.assign(static_cast<std::size_t>(ranks) + 1, 0);
    elements_.assign(static_cast<std::size_t>(ranks), 0);
    if constexpr (block_ == 0) {
      for (index r = 0; r + 1 < static_cast<index>(regions_.size()); ++r) {
        for (int j = 0; j < ranks; ++j) runs_.push_back(run(r, j));
      }
    }
    for (int j = 0; j < ranks; ++j) plan_message(j);
  }

  int ranks() const noexcept { return ranks_; }

  /// Number of pieces, empty ones included; piece k and k + 1 are neighbours in flat order.
  index pieces() const noexcept { return pieces_; }

  piece operator[](index k) const noexcept {
    if constexpr (block_ > 0) {
      region const& r = region_of(k);
      index const local = k - r.piece;
      index const first = r.first + local * block_;
      int const owner = static_cast<int>(k / per_rank_);
      index const leader = owner * per_rank_;
      return {first,
              first + block_ < r.last ? first + block_ : r.last,
              k,
              owner,
              first - start(leader),
              header_bytes + scale_bytes_ * (k - leader),
              header_bytes + scale_bytes_ * owned(owner) + payload_at(k) - payload_at(leader)};
    } else {
      return runs_[static_cast<std::size_t>(k)];
    }
  }

  /// The piece that holds flat position i.
  index find(index i) const noexcept {
    if constexpr (block_ > 0) {
      region const& r = regions_[static_cast<std::size_t>(region_at(i))];
      return r.piece + (i - r.first) / block_;
    } else {
      index const t = region_at(i);
      index const width = run_length(t);
      return t * ranks_ + (i - regions_[static_cast<std::size_t>(t)].first) / width;
    }
  }

  /// Pieces of rank j, in the order of its message.
  index owned(int j) const noexcept {
    if constexpr (block_ > 0) {
      index const first = j * per_rank_ < pieces_ ? j * per_rank_ : pieces_;
      index const last = first + per_rank_ < pieces_ ? first + per_rank_ : pieces_;
      return last - first;
    } else {
      return static_cast<index>(regions_.size()) - 1;
    }
  }
  piece owned(int j, index i) const noexcept { return (*this)[block_ > 0 ? j * per_rank_ + i : i * ranks_ + j]; }

  /// f(tensor, first, last, own) for all that rank j owns, in as few parts as there are: elements [first, last) of a
  /// tensor, from position `own` among the owner's elements.
  template <class F>
  void for_runs(int j, layout const& l, F const& f) const {
    piece run{};
    auto const tell = [&] {
      for (index i = run.first; i < run.last;) {
        index const t = l.find(i), end = l.first(t + 1) < run.last ? l.first(t + 1) : run.last;
        f(t, i - l.first(t), end - l.first(t), run.own + (i - run.first));
        i = end;
      }
    };
    for (index k = 0; k < owned(j); ++k) {
      piece const p = owned(j, k);
      if (p.first == run.last && p.own == run.own + (run.last - run.first)) {
        run.last = p.last;
      } else {
        tell();
        run = p;
      }
    }
    tell();
  }

  /// Elements that rank j owns.
  index elements(int j) const noexcept { return elements_[static_cast<std::size_t>(j)]; }

  /// Byte offsets of the ranks' messages, ranks() + 1 entries; a header alone where a rank owns nothing.
  std::vector<index> const& offsets() const noexcept { return offsets_; }

  /// Bytes of all messages without headers.
  index payload_bytes() const noexcept { return offsets_.back() - ranks_ * header_bytes; }

 private:
  struct region {
    index first, last;
    index piece;    // number of its first piece
    index payload;  // blocks only: payload bytes of all earlier blocks
  };

  // The last region that starts at or before i; empty regions in front of i's own are skipped by that.
  index region_at(index i) const noexcept {
    index low = 0, high = static_cast<index>(regions_.size()) - 1;
    while (high - low > 1) {
      index const middle = low + (high - low) / 2;
      (regions_[static_cast<std::size_t>(middle)].first <= i ? low : high) = middle;
    }
    return low;
  }
  region const& region_of(index k) const noexcept {
    index low = 0, high = static_cast<index>(regions_.size()) - 1;
    while (high - low > 1) {
      index const middle = low + (high - low) / 2;
      (regions_[static_cast<std::size_t>(middle)].piece <= k ? low : high) = middle;
    }
    return regions_[static_cast<std::size_t>(low)];
  }

  // Blocks: flat start of block k, and payload bytes of the blocks before it.
  index start(index k) const noexcept {
    region const& r = region_of(k);
    return r.first + (k - r.piece) * block_;
  }
  index payload_at(index k) const noexcept {
    if (k >= pieces_) return payload_;
    region const& r = region_of(k);
    return r.payload + (k - r.piece) * Quantizer::payload_bytes(block_);
  }

  // Runs of a region: ceil(units / n) units of 32 elements each.
  index run_length(index t) const noexcept {
    region const& r = regions_[static_cast<std::size_t>(t)];
    index const units = (r.last - r.first + 31) / 32;
    index const width = (units + ranks_ - 1) / ranks_ * 32;
    return width > 0 ? width : 32;
  }
  piece run(index t, int j) const noexcept {
    region const& r = regions_[static_cast<std::size_t>(t)];
    index const width = run_length(t);
    index const first = r.first + j * width < r.last ? r.first + j * width : r.last;
    index const last = first + width < r.last ? first + width : r.last;
    return {first, last, t, j, 0, 0, 0};
  }

  void plan_message(int j) {
    auto const at = static_cast<std::size_t>(j);
    index bytes = header_bytes;
    if constexpr (block_ > 0) {
      index const count = owned(j);
      if (count > 0) {
        index const leader = j * per_rank_;
        piece const last = (*this)[leader + count - 1];
        bytes += scale_bytes_ * count + payload_at(leader + count) - payload_at(leader);
        elements_[at] = last.last - start(leader);
      }
    } else {
      index const regions = static_cast<index>(regions_.size()) - 1;
      index own = 0;
      for (index t = 0; t < regions; ++t) {
        piece& p = runs_[static_cast<std::size_t>(t * ranks_ + j)];
        p.scale = bytes;
        p.own = own;
        own += p.last - p.first;
        if (p.last > p.first) bytes += scale_bytes_;
      }
      for (index t = 0; t < regions; ++t) {
        piece& p = runs_[static_cast<std::size_t>(t * ranks_ + j)];
        p.payload = bytes;
        bytes += Quantizer::payload_bytes(p.last - p.first);
      }
      elements_[at] = own;
    }
    // Words and scales lie at multiples of 4.
    offsets_[at + 1] = offsets_[at] + (bytes + 3) / 4 * 4;
  }

  int ranks_ = 1;
  index pieces_ = 0;
  index payload_ = 0;
  index per_rank_ = 0;
  std::vector<region> regions_;
  std::vector<piece> runs_;  // pieces of groups that are not blocks: [region][rank]
  std::vector<index> offsets_;
  std::vector<index> elements_;
};

}  // namespace zoadam
