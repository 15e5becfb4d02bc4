// SPDX-License-Identifier: Apache-2.0
// The flat index space: all tensors in order, without gaps.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "zoadam/detail/describe.hpp"
#include "zoadam/error.hpp"
#include "zoadam/lane/sum.hpp"
#include "zoadam/layout/tensor.hpp"

namespace zoadam {

/// Checked copy of the user's list of tensors, with the place of each in the flat index space.
class layout {
 public:
  layout() = default;

  /// Errors: argument_error for no tensors, sizes that disagree, unknown groups, misaligned or overlapping spans.
  layout(std::vector<tensor> list, index groups) : tensors_(std::move(list)) {
    char const* const call = "optimizer(tensors)";
    ZOADAM_EXPECTS(!tensors_.empty(), call, "tensors: the list is empty");
    first_.reserve(tensors_.size() + 1);
    for (tensor const& t : tensors_) {
      index const size = t.parameter.empty() ? t.working.size() : static_cast<index>(t.parameter.size());
      auto const whose = [&] { return "tensors: '" + t.name + "': "; };
      ZOADAM_EXPECTS(product(t.shape, size) == size, call,
                     whose() + "the shape does not multiply to the span's size");
      ZOADAM_EXPECTS(t.gradient.size() == size || t.gradient.size() == 0, call,
                     whose() + "gradient has " + std::to_string(t.gradient.size()) + " elements, parameter " +
                         std::to_string(size));
      ZOADAM_EXPECTS(t.working.size() == size || t.working.size() == 0, call,
                     whose() + "working has " + std::to_string(t.working.size()) + " elements, parameter " +
                         std::to_string(size));
      ZOADAM_EXPECTS(t.parameter.empty() || t.parameter.data() != nullptr, call, whose() + "parameter is null");
      ZOADAM_EXPECTS(t.working.size() == 0 || t.working.data() != nullptr, call, whose() + "working is null");
      ZOADAM_EXPECTS(t.group >= 0 && t.group < groups, call,
                     whose() + "group " + std::to_string(t.group) + " of " + std::to_string(groups));
      if (t.parameter.empty() && size > 0) alone_.push_back(static_cast<index>(first_.size()) - 1);
      first_.push_back(first_.back() + size);
      first_block_.push_back(first_block_.back() + (size + sum_block - 1) / sum_block);
    }
    refuse_overlaps(call);
  }

  index elements() const noexcept { return first_.back(); }
  index size() const noexcept { return static_cast<index>(tensors_.size()); }
  tensor const& operator[](index t) const noexcept { return tensors_[static_cast<std::size_t>(t)]; }

  /// The tensors that were given in 16 bits alone.
  std::vector<index> const& alone() const noexcept { return alone_; }
  void set_master(index t, float* master) noexcept {
    tensor& each = tensors_[static_cast<std::size_t>(t)];
    each.parameter = {master, static_cast<std::size_t>(each.working.size())};
  }

  /// Flat position of tensor t; first(size()) is the number of elements.
  index first(index t) const noexcept { return first_[static_cast<std::size_t>(t)]; }

  /// Blocks of sums over tensors, each counted from its tensor's start: those before tensor t's, or all of them.
  index first_block(index t) const noexcept { return first_block_[static_cast<std::size_t>(t)]; }
  index blocks() const noexcept { return first_block_.back(); }

  /// The tensor that holds flat position i, 0 <= i < elements(). Empty tensors hold nothing.
  index find(index i) const noexcept { return find(first_, i); }
  /// The tensor whose block of sums is number b, 0 <= b < blocks().
  index find_block(index b) const noexcept { return find(first_block_, b); }

  /// Equal on ranks whose tensors agree in order, names, shapes, groups, and in what was given in 16 bits alone.
  void describe(detail::hasher& sink) const {
    for (index k = 0; k < size(); ++k) {
      tensor const& t = (*this)[k];
      sink(t.name, first(k + 1) - first(k), t.group);
      for (index n : t.shape) sink("", n);
    }
    for (index t : alone_) sink("alone", t, static_cast<int>((*this)[t].working.type()));
  }

 private:
  // The last part that begins at or before i.
  index find(std::vector<index> const& begins, index i) const noexcept {
    index low = 0, high = size();
    while (high - low > 1) {
      index const middle = low + (high - low) / 2;
      (begins[static_cast<std::size_t>(middle)] <= i ? low : high) = middle;
    }
    return low;
  }

  static index product(std::vector<index> const& shape, index if_empty) noexcept {
    if (shape.empty()) return if_empty;
    index p = 1;
    for (index n : shape) {
      if (n == 0) p = 0;
    }
    for (index n : shape) {
      if (n < 0 || (n > 0 && p > (index{1} << 62) / n)) return -1;
      p *= n;
    }
    return p;
  }

  void refuse_overlaps(char const* call) const {
    struct extent {
      std::uintptr_t first, last;
      index tensor;
      bool written;
    };
    std::list<extent> all;  // its sort costs less compile time than <algorithm>
    for (index t = 0; t < size(); ++t) {
      tensor const& each = (*this)[t];
      auto const add = [&](void const* data, index count, std::size_t width, bool written) {
        if (count == 0) return;
        auto const at = reinterpret_cast<std::uintptr_t>(data);
        ZOADAM_EXPECTS(at % width == 0, call, "tensors: '" + each.name + "': misaligned span");
        all.push_back({at, at + static_cast<std::size_t>(count) * width, t, written});
      };
      add(each.parameter.data(), static_cast<index>(each.parameter.size()), 4, true);
      add(each.gradient.data(), each.gradient.size(), each.gradient.type() == dtype::float32 ? 4 : 2, false);
      add(each.working.data(), each.working.size(), 2, true);
    }
    all.sort([](extent const& l, extent const& r) { return l.first < r.first; });
    // Gradients may be shared (they are read only); what is written overlaps nothing.
    std::uintptr_t end = 0, written_end = 0;
    index end_tensor = 0, written_tensor = 0;
    for (extent const& e : all) {
      std::uintptr_t const limit = e.written ? end : written_end;
      index const other = e.written ? end_tensor : written_tensor;
      ZOADAM_EXPECTS(
          e.first >= limit, call,
          "tensors: the spans of '" + (*this)[e.tensor].name + "' and '" + (*this)[other].name + "' overlap");
      if (e.last > end) end = e.last, end_tensor = e.tensor;
      if (e.written && e.last > written_end) written_end = e.last, written_tensor = e.tensor;
    }
  }

  std::vector<tensor> tensors_;
  std::vector<index> first_{0};
  std::vector<index> first_block_{0};
  std::vector<index> alone_;
};

}  // namespace zoadam
