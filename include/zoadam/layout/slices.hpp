// SPDX-License-Identifier: Apache-2.0
// Slices of a tensor: the elements that agree in some of their indices, such as a row or a column.
#pragma once

#include <vector>

#include "zoadam/config.hpp"

namespace zoadam {

/// A way to cut a tensor into slices: element e, row-major, lies in slice
/// (e / period) * count + (e / stride) % count. `period` is a multiple of count * stride, and divides the size.
struct slicing {
  index period = 1, count = 1, stride = 1;

  /// Elements of a slice.
  ZOADAM_HOST_DEVICE constexpr index size() const noexcept { return period / count; }
  ZOADAM_HOST_DEVICE constexpr index slice_of(index e) const noexcept {
    return e / period * count + e / stride % count;
  }
  /// Element k of a slice, by increasing position.
  ZOADAM_HOST_DEVICE constexpr index element(index slice, index k) const noexcept {
    return slice / count * period + k / stride * (stride * count) + slice % count * stride + k % stride;
  }
};

namespace detail {
constexpr index product_of(std::vector<index> const& shape, std::size_t first, std::size_t last) noexcept {
  index p = 1;
  for (std::size_t i = first; i < last; ++i) p *= shape[i];
  return p;
}
}  // namespace detail

/// One slice per index of an axis.
inline slicing along_axis(std::vector<index> const& shape, std::size_t axis) noexcept {
  return {detail::product_of(shape, 0, shape.size()), shape[axis], detail::product_of(shape, axis + 1, shape.size())};
}
/// One slice per index of all axes but one.
inline slicing across_axis(std::vector<index> const& shape, std::size_t axis) noexcept {
  index const inner = detail::product_of(shape, axis + 1, shape.size());
  if (shape[axis] == 1) {  // every element is a slice
    index const size = detail::product_of(shape, 0, shape.size());
    return {size, size, 1};
  }
  return inner == 1 ? slicing{shape[axis], 1, shape[axis]} : slicing{shape[axis] * inner, inner, 1};
}
/// One slice per index of all axes but the last two.
inline slicing across_matrix(std::vector<index> const& shape) noexcept {
  index const size = detail::product_of(shape, shape.size() - 2, shape.size());
  return {size, 1, size};
}

namespace detail {

/// A slicing of one tensor, and the place of its first value in a field.
struct placed_slicing : slicing {
  index first = 0;   ///< value of slice 0
  index values = 0;  ///< how many slices
  index tensor = 0;
};
/// All slicings of a field; those of tensor t are [begin[t], begin[t + 1]).
struct slice_list {
  placed_slicing const* all = nullptr;
  index const* begin = nullptr;
  index count = 0;   ///< slicings
  index values = 0;  ///< slices of all of them
};

class slice_table {
 public:
  /// Tag::slices(shape, add) calls add(slicing) for every slicing of a tensor that is not empty.
  template <class Tag, class Layout>
  void plan(Layout const& l) {
    for (index t = 0; t < l.size(); ++t) {
      begin_.push_back(static_cast<index>(all_.size()));
      index const size = l.first(t + 1) - l.first(t);
      if (size == 0) continue;
      Tag::slices(l[t].shape.empty() ? std::vector<index>{size} : l[t].shape, [&](slicing const& each) {
        index const values = size / each.period * each.count;
        all_.push_back({each, values_, values, t});
        values_ += values;
      });
    }
    begin_.push_back(static_cast<index>(all_.size()));
  }
  index values() const noexcept { return values_; }
  std::vector<placed_slicing> const& all() const noexcept { return all_; }
  std::vector<index> const& begin() const noexcept { return begin_; }
  slice_list list() const noexcept { return {all_.data(), begin_.data(), static_cast<index>(all_.size()), values_}; }

 private:
  std::vector<placed_slicing> all_;
  std::vector<index> begin_;
  index values_ = 0;
};

/// f(i, n, place, step) on the runs of elements [first, last) of a tensor: element i + j belongs to value
/// place + j * step of the field.
template <class F>
void for_slice_runs(placed_slicing const& s, index first, index last, F const& f) {
  for (index i = first; i < last;) {
    index const place = s.first + s.slice_of(i);
    index const left = s.stride == 1 ? s.count - i % s.count : s.stride - i % s.stride;
    index const n = left < last - i ? left : last - i;
    f(i, n, place, index{s.stride == 1});
    i += n;
  }
}

}  // namespace detail
}  // namespace zoadam
