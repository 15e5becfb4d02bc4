// SPDX-License-Identifier: Apache-2.0
// What the exchanges of a program need: cuts, error fields, message buffers.
#pragma once

#include <concepts>
#include <tuple>

#include "zoadam/backend/view.hpp"
#include "zoadam/concepts/stage.hpp"
#include "zoadam/detail/segment.hpp"

namespace zoadam::detail {

/// std::max of a list, without <algorithm>.
constexpr index largest(std::same_as<index> auto... all) noexcept {
  index most = 0;
  ((most = all > most ? all : most), ...);
  return most;
}

/// A stage that is no exchange needs no messages; a tensor_reduction needs block sums of each result.
template <class Stage>
struct stage_plan {
  using fields = zoadam::fields<>;
  static constexpr index tile = tile_of<void>;
  static constexpr index tensor_results = 0;
  static constexpr bool slice_maximum = false;
  stage_plan() = default;
  stage_plan(layout const&, int) {}
};
template <class Formula, class When>
struct stage_plan<slice_reduction<Formula, When>> : stage_plan<void> {
  static constexpr bool slice_maximum = Formula::maximum;
  static_assert(!Formula::maximum || size_of<typename Formula::slices> == 1,
                "zoadam: a slice_reduction has one field where it takes maxima");
  using stage_plan<void>::stage_plan;
};
template <class Formula, class When>
struct stage_plan<tensor_reduction<Formula, When>> : stage_plan<void> {
  static constexpr index tensor_results = size_of<typename reducing<Formula>::results>;
  static_assert(tensor_results <= most_results, "zoadam: a tensor_reduction has at most 4 sums and maxima");
  using stage_plan<void>::stage_plan;
};

template <class What, class When, class Up, class Down>
struct stage_plan<exchange<What, When, Up, Down>> {
  using up_type = Up;
  using down_type = Down;
  using worker = at::worker_error_t<What>;
  using owner = at::owner_error_t<What>;
  using fields =
      join<std::conditional_t<needs_carry<Up>, zoadam::fields<field<worker, home::worker>>, zoadam::fields<>>,
           std::conditional_t<needs_carry<Down>, zoadam::fields<field<owner, home::owner>>, zoadam::fields<>>>;
  static constexpr index tile = tile_of<Up>;
  static constexpr index tensor_results = 0;
  static constexpr bool slice_maximum = false;

  partition<Up> up;
  partition<Down> down;

  stage_plan() = default;
  stage_plan(layout const& l, int ranks) : up(l, ranks), down(l, ranks) {}

  static index own_bytes(std::vector<index> const& offsets, int me) noexcept {
    return offsets[static_cast<std::size_t>(me) + 1] - offsets[static_cast<std::size_t>(me)];
  }
  /// Bytes of the outgoing messages, of those that come in for this owner, or of those that everybody gathers.
  index traffic(int me) const noexcept {
    return largest(up.offsets().back(), up.ranks() * own_bytes(up.offsets(), me), down.offsets().back());
  }
  /// Bytes of this owner's message down.
  index result(int me) const noexcept { return own_bytes(down.offsets(), me); }
};

template <class Program>
struct plan_of_;
template <class... Stages>
struct plan_of_<std::tuple<Stages...>> {
  using plans = std::tuple<stage_plan<Stages>...>;
  using fields = join<typename stage_plan<Stages>::fields...>;
  static constexpr index tile = largest(tile_of<void>, stage_plan<Stages>::tile...);
  static constexpr index tensor_results = largest(index{0}, stage_plan<Stages>::tensor_results...);
  static constexpr bool slice_maximum = (false || ... || stage_plan<Stages>::slice_maximum);

  static plans make([[maybe_unused]] layout const& l, [[maybe_unused]] int ranks) {
    return plans(stage_plan<Stages>(l, ranks)...);
  }
};
template <class Program>
using plan_of = plan_of_<Program>;

/// The different groups that the exchanges of a program use.
template <class Program, class Found = tags<>>
struct groups_of_;
template <class Found>
struct groups_of_<std::tuple<>, Found> {
  using type = Found;
};
template <class Stage, class... Rest, class Found>
struct groups_of_<std::tuple<Stage, Rest...>, Found> : groups_of_<std::tuple<Rest...>, Found> {};
template <class What, class When, class Up, class Down, class... Rest, class Found>
struct groups_of_<std::tuple<exchange<What, When, Up, Down>, Rest...>, Found>
    : groups_of_<std::tuple<Rest...>, unite<Found, tags<typename Up::groups>>> {};

template <class Groups>
inline constexpr bool at_most_one = false;
template <>
inline constexpr bool at_most_one<tags<>> = true;
template <class Only>
inline constexpr bool at_most_one<tags<Only>> = true;
/// Whether all exchanges of a program cut elements into the same chunks.
template <class Program>
inline constexpr bool one_cut = at_most_one<typename groups_of_<Program>::type>;

}  // namespace zoadam::detail
