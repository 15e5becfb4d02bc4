// SPDX-License-Identifier: Apache-2.0
// What every policy is: a small value that can say what it is.
#pragma once

#include <concepts>
#include <type_traits>

#include "zoadam/detail/describe.hpp"

namespace zoadam {

/// describe(sink) hands a name and the numbers that must agree between ranks to sink(name, numbers...).
template <class Policy>
concept describes_itself = requires(Policy const p, detail::hasher& sink) {
  p.describe(sink);
};

template <class Policy>
concept policy = std::semiregular<Policy> && std::is_trivially_copyable_v<Policy> && describes_itself<Policy>;

}  // namespace zoadam
