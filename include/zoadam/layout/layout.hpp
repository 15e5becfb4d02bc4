// SPDX-License-Identifier: Apache-2.0
// The flat index space: all tensors in order, without gaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zoadam/detail/describe.hpp"
#include "zoadam/error.hpp"
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
      auto const size = static_cast<index>(t.parameter.size());
      auto const whose = [&] { return "tensors: '" + t.name + "': "; };
      ZOADAM_EXPECTS(product(t.shape, size) == size, call,
                     whose() + "the shape does not multiply to the span's size");
      ZOADAM_EXPECTS(t.gradient.size() == size || t.gradient.size() == 0, call,
                     whose() + "gradient has " + std::to_string(t.gradient.size()) + " elements, parameter " +
                         std::to_string(size));
      ZOADAM_EXPECTS(size == 0 || t.parameter.data() != nullptr, call, whose() + "parameter is null");
      ZOADAM_EXPECTS(t.group >= 0 && t.group < groups, call,
                     whose() + "group " + std::to_string(t.group) + " of " + std::to_string(groups));
      first_.push_back(first_.back() + size);
    }
    refuse_overlaps(call);
  }

  index elements() const noexcept { return first_.back(); }
  index size() const noexcept { return static_cast<index>(tensors_.size()); }
  tensor const& operator[](index t) const noexcept { return tensors_[static_cast<std::size_t>(t)]; }

  /// Flat position of tensor t; first(size()) is the number of elements.
  index first(index t) const noexcept { return first_[static_cast<std::size_t>(t)]; }

  /// The tensor that holds flat position i, 0 <= i < elements(). Empty tensors hold nothing.
  index find(index i) const noexcept {
    index low = 0, high = size();
    while (high - low > 1) {
      index const middle = low + (high - low) / 2;
      (first(middle) <= i ? low : high) = middle;
    }
    return low;
  }

  /// Equal on ranks whose tensors agree in order, names, shapes and groups.
  void describe(detail::hasher& sink) const {
    for (tensor const& t : tensors_) {
      sink(t.name, static_cast<index>(t.parameter.size()), t.group);
      for (index n : t.shape) sink("", n);
    }
  }

 private:
  static index product(std::vector<index> const& shape, index if_empty) noexcept {
    if (shape.empty()) return if_empty;
    index p = 1;
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) p = 0;
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
      bool parameter;
    };
    std::vector<extent> all;
    for (index t = 0; t < size(); ++t) {
      tensor const& each = (*this)[t];
      if (each.parameter.empty()) continue;
      auto const add = [&](void const* data, std::size_t width, bool parameter) {
        auto const at = reinterpret_cast<std::uintptr_t>(data);
        ZOADAM_EXPECTS(at % width == 0, call, "tensors: '" + each.name + "': misaligned span");
        all.push_back({at, at + each.parameter.size() * width, t, parameter});
      };
      add(each.parameter.data(), 4, true);
      if (each.gradient.size() > 0) add(each.gradient.data(), each.gradient.type() == dtype::float32 ? 4 : 2, false);
    }
    std::sort(all.begin(), all.end(), [](extent const& l, extent const& r) { return l.first < r.first; });
    // Gradients may be shared (they are read only); a parameter overlaps nothing.
    std::uintptr_t end = 0, parameters_end = 0;
    index end_tensor = 0, parameters_tensor = 0;
    for (extent const& e : all) {
      std::uintptr_t const limit = e.parameter ? end : parameters_end;
      index const other = e.parameter ? end_tensor : parameters_tensor;
      ZOADAM_EXPECTS(
          e.first >= limit, call,
          "tensors: the spans of '" + (*this)[e.tensor].name + "' and '" + (*this)[other].name + "' overlap");
      if (e.last > end) end = e.last, end_tensor = e.tensor;
      if (e.parameter && e.last > parameters_end) parameters_end = e.last, parameters_tensor = e.tensor;
    }
  }

  std::vector<tensor> tensors_;
  std::vector<index> first_{0};
};

}  // namespace zoadam
