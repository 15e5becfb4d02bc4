// SPDX-License-Identifier: Apache-2.0
// Which fields the passes of a program use, and whether workers ever agree.
#pragma once

#include <tuple>
#include <type_traits>

#include "zoadam/concepts/stage.hpp"
#include "zoadam/detail/segment.hpp"

namespace zoadam::detail {

template <class Stage>
struct pass_tags_of {
  using type = tags<>;
};
template <class Formula, class When>
struct pass_tags_of<pass<Formula, When>> {
  using type = unite<typename Formula::reads, typename Formula::writes>;
};
template <class Formula, class When>
struct pass_tags_of<reduction<Formula, When>> {
  using type = typename Formula::reads;
};
template <class Formula, class When>
struct pass_tags_of<tensor_reduction<Formula, When>> {
  using type = unite<typename Formula::reads, typename Formula::scalars>;
};

template <class Formula, class When>
struct pass_tags_of<slice_reduction<Formula, When>> {
  using type = unite<typename Formula::reads, typename Formula::slices>;
};

/// Whether the passes of a program write no value that a tensor or a slice has once.
template <class Stage>
inline constexpr bool writes_elements = true;
template <class Formula, class When>
inline constexpr bool writes_elements<pass<Formula, When>> =
    std::is_same_v<unite<scalars_of<typename Formula::writes>, slices_of<typename Formula::writes>>, tags<>>;
template <class Program>
inline constexpr bool passes_write_elements = false;
template <class... Stages>
inline constexpr bool passes_write_elements<std::tuple<Stages...>> = (writes_elements<Stages> && ...);

/// Whether the passes and reductions of a program use none of `Tags`, or nothing but `Tags`
/// and transients.
template <class Program, class Tags>
inline constexpr bool passes_avoid = false;
template <class... Stages, class Tags>
inline constexpr bool passes_avoid<std::tuple<Stages...>, Tags> =
    (std::is_same_v<subtract<typename pass_tags_of<Stages>::type, Tags>, typename pass_tags_of<Stages>::type> && ...);
template <class Stage, class Tags = typename pass_tags_of<Stage>::type>
using stored_tags_of = subtract<Tags, transients_of<Tags>>;
template <class Program, class Tags>
inline constexpr bool passes_stay_within = false;
template <class... Stages, class Tags>
inline constexpr bool passes_stay_within<std::tuple<Stages...>, Tags> =
    (std::is_same_v<subtract<stored_tags_of<Stages>, Tags>, tags<>> && ...);

/// Whether a program has a tensor_reduction or a slice_reduction.
template <class Program>
inline constexpr bool reduces_tensors = false;
template <class... Stages>
inline constexpr bool reduces_tensors<std::tuple<Stages...>> = (is_tensor_reduction<Stages> || ...) ||
                                                               (is_slice_reduction<Stages> || ...);

template <class Stage>
inline constexpr bool closes_window = false;
template <class What, class When, class Up, class Down>
inline constexpr bool closes_window<exchange<What, When, Up, Down>> = What::closes_window;
/// Whether a program has an exchange that makes workers agree; without one, steps leave nothing open.
template <class Program>
inline constexpr bool has_window = false;
template <class... Stages>
inline constexpr bool has_window<std::tuple<Stages...>> = (closes_window<Stages> || ...);

}  // namespace zoadam::detail
