// SPDX-License-Identifier: Apache-2.0
// What the user hands over: named, shaped spans of parameters and gradients, and parameter groups.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "zoadam/config.hpp"
#include "zoadam/lane/half.hpp"

namespace zoadam {

enum class dtype { float32, bfloat16, float16 };

/// Gradients of one tensor, borrowed: float32, bfloat16 or float16. An empty view means "no gradient": zeros.
class gradient_view {
 public:
  gradient_view() = default;
  gradient_view(std::span<float const> s) noexcept : gradient_view(s.data(), s.size(), dtype::float32) {}
  gradient_view(std::span<float> s) noexcept : gradient_view(std::span<float const>(s)) {}
  gradient_view(std::vector<float> const& s) noexcept : gradient_view(std::span<float const>(s)) {}
  gradient_view(std::span<bfloat16 const> s) noexcept : gradient_view(s.data(), s.size(), dtype::bfloat16) {}
  gradient_view(std::span<float16 const> s) noexcept : gradient_view(s.data(), s.size(), dtype::float16) {}
  gradient_view(std::span<bfloat16> s) noexcept : gradient_view(std::span<bfloat16 const>(s)) {}
  gradient_view(std::span<float16> s) noexcept : gradient_view(std::span<float16 const>(s)) {}
  gradient_view(std::vector<bfloat16> const& s) noexcept : gradient_view(std::span<bfloat16 const>(s)) {}
  gradient_view(std::vector<float16> const& s) noexcept : gradient_view(std::span<float16 const>(s)) {}

  void const* data() const noexcept { return data_; }
  index size() const noexcept { return size_; }
  dtype type() const noexcept { return type_; }

 private:
  gradient_view(void const* data, std::size_t size, dtype type) noexcept
      : data_(data), size_(static_cast<index>(size)), type_(type) {}

  void const* data_ = nullptr;
  index size_ = 0;
  dtype type_ = dtype::float32;
};

/// A copy of a parameter in 16 bits, borrowed: bfloat16 or float16, rounded to nearest even; float16 ends at +-65504.
/// An empty view means "none".
class working_view {
 public:
  working_view() = default;
  working_view(std::span<bfloat16> s) noexcept : working_view(s.data(), s.size(), dtype::bfloat16) {}
  working_view(std::span<float16> s) noexcept : working_view(s.data(), s.size(), dtype::float16) {}
  working_view(std::vector<bfloat16>& s) noexcept : working_view(std::span<bfloat16>(s)) {}
  working_view(std::vector<float16>& s) noexcept : working_view(std::span<float16>(s)) {}

  void* data() const noexcept { return data_; }
  index size() const noexcept { return size_; }
  dtype type() const noexcept { return type_; }

  /// Elements [first, first + n).
  working_view part(index first, index n) const noexcept {
    return {static_cast<std::byte*>(data_) + 2 * first, static_cast<std::size_t>(n), type_};
  }

  /// Calls f with a pointer to the first element, by its type. Nothing for an empty view.
  template <class F>
  void visit(F const& f) const {
    if (size_ == 0) return;
    if (type_ == dtype::bfloat16) {
      f(static_cast<bfloat16*>(data_));
    } else {
      f(static_cast<float16*>(data_));
    }
  }

 private:
  working_view(void* data, std::size_t size, dtype type) noexcept
      : data_(data), size_(static_cast<index>(size)), type_(type) {}

  void* data_ = nullptr;
  index size_ = 0;
  dtype type_ = dtype::bfloat16;
};

/// One parameter tensor. The spans are borrowed and must outlive the optimizer; `shape` may be empty (a vector of
/// as many elements as the spans have), else its product is the number of elements.
///
/// `working`, where given, is written whenever the parameter is. Without a `parameter` the optimizer starts from
/// `working` and keeps a float32 master of its own.
struct tensor {
  std::string name;
  std::vector<index> shape;
  std::span<float> parameter;
  gradient_view gradient;
  int group = 0;
  working_view working{};
};

/// Hyper-parameters that differ between tensors, fixed at construction.
struct parameter_group {
  double weight_decay = 0;  ///< decoupled, per step and unit of learning rate, >= 0
  double lr_factor = 1;     ///< multiplies the learning rate of step(), > 0
};

}  // namespace zoadam
