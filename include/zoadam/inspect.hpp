// SPDX-License-Identifier: Apache-2.0
// Questions about tensors outside of the step, answered by Thrust. Opt-in: nothing else here needs Thrust.
#pragma once

#if !defined(__CUDACC__) && !defined(THRUST_DEVICE_SYSTEM)
#error "<zoadam/inspect.hpp>: with a host compiler, define THRUST_DEVICE_SYSTEM as THRUST_DEVICE_SYSTEM_CPP"
#endif

#include <thrust/count.h>
#include <thrust/find.h>
#include <thrust/functional.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/mismatch.h>
#include <thrust/transform_reduce.h>
#include <thrust/type_traits/is_execution_policy.h>

#include <span>
#include <vector>

#include "zoadam/backend/view.hpp"
#include "zoadam/error.hpp"
#include "zoadam/lane/f32.hpp"
#include "zoadam/layout/tensor.hpp"

namespace zoadam {
namespace detail {

/// Of the value as float32: widening is exact, NaN included, so that bits differ where they did.
ZOADAM_INLINE std::uint32_t float_bits(float x) noexcept { return __builtin_bit_cast(std::uint32_t, x); }
template <class Half>
ZOADAM_INLINE std::uint32_t float_bits(Half x) noexcept {
  return float_bits(to_float(x));
}

// Functors, since kernels cannot call a lambda of the host.
struct is_bad {
  float scale;
  template <class T>
  ZOADAM_HOST_DEVICE bool operator()(T x) const noexcept {
    return exceeds(f32(scale) * f32(__builtin_bit_cast(float, float_bits(x))), 0x5b800000u).v;  // 2^56
  }
};
struct magnitude_bits {
  template <class T>
  ZOADAM_HOST_DEVICE std::uint32_t operator()(T x) const noexcept {
    return float_bits(x) & 0x7fffffffu;
  }
};
struct same_bits {
  template <class T>
  ZOADAM_HOST_DEVICE bool operator()(T a, T b) const noexcept {
    return float_bits(a) == float_bits(b);
  }
};
struct hash_term {
  ZOADAM_HOST_DEVICE std::uint64_t operator()(float x, index at) const noexcept {
    return hash_of_element(float_bits(x), at);
  }
};

/// Calls f with a pointer to the first element, by its type.
template <class F>
auto visit_elements(gradient_view const& values, F const& f) {
  if (values.type() == dtype::bfloat16) return f(static_cast<bfloat16 const*>(values.data()));
  if (values.type() == dtype::float16) return f(static_cast<float16 const*>(values.data()));
  return f(static_cast<float const*>(values.data()));
}

}  // namespace detail

/// Every function takes an execution policy of Thrust, which says where the values are and which stream reads them:
/// thrust::cpp::par; thrust::cuda::par.on(stream); thrust::cuda::par(allocator).on(stream), with an allocator of
/// Thrust's temporary memory. `values` are what gradient_view converts from, gradients or not, or nothing.
///
/// Errors:    what Thrust throws passes through: thrust::system_error (a call of CUDA failed), std::bad_alloc
/// Execution: host, the stream's device being current; waits for that stream, and for no other that writes the values
namespace inspect {

template <class Policy>
concept execution_policy = thrust::is_execution_policy<Policy>::value;

/// The first bad element, by the rule of step(): NaN, Inf, or a magnitude beyond 2^56 after scaling.
///
/// @param grad_scale  that of step(); 1 where values are no gradients
/// @return            its index; values.size() if there is none        [elements]
template <execution_policy Policy>
index first_bad(Policy const& policy, gradient_view const& values, double grad_scale = 1) {
  return detail::visit_elements(values, [&](auto const* x) -> index {
    return thrust::find_if(policy, x, x + values.size(), detail::is_bad{static_cast<float>(grad_scale)}) - x;
  });
}

/// The number of bad elements, by the same rule.
template <execution_policy Policy>
index count_bad(Policy const& policy, gradient_view const& values, double grad_scale = 1) {
  return detail::visit_elements(values, [&](auto const* x) -> index {
    return thrust::count_if(policy, x, x + values.size(), detail::is_bad{static_cast<float>(grad_scale)});
  });
}

/// The tensors with a bad element in gradient, parameter or working copy: one search, and one wait, for each of
/// these.
///
/// @param grad_scale  that of step(), for the gradients
/// @return            their indices in `tensors`, ascending
template <execution_policy Policy>
std::vector<index> bad_tensors(Policy const& policy, std::span<tensor const> tensors, double grad_scale = 1) {
  std::vector<index> found;
  for (tensor const& each : tensors) {
    auto const bad = [&](gradient_view const& values, double scale = 1) {
      return first_bad(policy, values, scale) < values.size();
    };
    bool any = bad(each.gradient, grad_scale) || bad(each.parameter);
    each.working.visit([&](auto const* x) { any = any || bad(std::span(x, x + each.working.size())); });
    if (any) found.push_back(&each - tensors.data());
  }
  return found;
}

/// max |x|, exact: 0 of nothing, NaN if there is a NaN, else Inf if there is an Inf.        [units of the values]
template <execution_policy Policy>
float largest_magnitude(Policy const& policy, gradient_view const& values) {
  return detail::visit_elements(values, [&](auto const* x) {
    // Magnitudes are ordered as their bits are, with NaN above all.
    auto const bits = thrust::transform_reduce(policy, x, x + values.size(), detail::magnitude_bits{},
                                               std::uint32_t{0}, thrust::maximum<std::uint32_t>{});
    return __builtin_bit_cast(float, bits);
  });
}

/// The backends' hash, bit for bit. Hashes of parts of the flat positions add up to that of the whole, modulo 2^64.
///
/// @param at  flat position of values[0]: the elements of all tensors before        [elements]
template <execution_policy Policy>
std::uint64_t hash(Policy const& policy, std::span<float const> values, index at = 0) {
  return thrust::inner_product(policy, values.data(), values.data() + values.size(),
                               thrust::counting_iterator<index>(at), std::uint64_t{0}, thrust::plus<std::uint64_t>{},
                               detail::hash_term{});
}

/// The first element whose bits differ: -0 is not +0, and a NaN is itself.
///
/// @return  its index; the common size if there is none        [elements]
///
/// Errors:  argument_error where sizes or types differ
template <execution_policy Policy>
index first_difference(Policy const& policy, gradient_view const& a, gradient_view const& b) {
  ZOADAM_EXPECTS(a.size() == b.size() && a.type() == b.type(), "inspect::first_difference(a, b)",
                 "a and b must have one size and one type");
  return detail::visit_elements(a, [&]<class T>(T const* x) -> index {
    return thrust::mismatch(policy, x, x + a.size(), static_cast<T const*>(b.data()), detail::same_bits{}).first - x;
  });
}

}  // namespace inspect
}  // namespace zoadam
