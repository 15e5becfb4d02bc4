// SPDX-License-Identifier: Apache-2.0
// Lists of tags, and registers that are indexed by a tag.
#pragma once

#include <type_traits>

#include "zoadam/config.hpp"

namespace zoadam {

/// A compile-time set of field tags.
template <class... Tags>
struct tags {};

namespace detail {

template <class List, class Tag>
inline constexpr bool contains = false;
template <class... Tags, class Tag>
inline constexpr bool contains<tags<Tags...>, Tag> = (std::is_same_v<Tags, Tag> || ...);

template <class A, class B>
struct unite_;
template <class... As>
struct unite_<tags<As...>, tags<>> {
  using type = tags<As...>;
};
template <class... As, class B, class... Bs>
struct unite_<tags<As...>, tags<B, Bs...>> {
  using type =
      typename unite_<std::conditional_t<contains<tags<As...>, B>, tags<As...>, tags<As..., B>>, tags<Bs...>>::type;
};
template <class A, class B>
using unite = typename unite_<A, B>::type;

template <class Found, class... Lists>
struct unite_onto {
  using type = Found;
};
template <class Found, class First, class... Rest>
struct unite_onto<Found, First, Rest...> : unite_onto<unite<Found, First>, Rest...> {};
template <class... Lists>
using unite_all = typename unite_onto<tags<>, Lists...>::type;

template <class A, class B, class Result = tags<>>
struct subtract_;
template <class B, class Result>
struct subtract_<tags<>, B, Result> {
  using type = Result;
};
template <class A, class... As, class B, class... Rs>
struct subtract_<tags<A, As...>, B, tags<Rs...>> {
  using type =
      typename subtract_<tags<As...>, B, std::conditional_t<contains<B, A>, tags<Rs...>, tags<Rs..., A>>>::type;
};
template <class A, class B>
using subtract = typename subtract_<A, B>::type;

/// Place of a tag in a list that holds it.
template <class Tag, class... Tags>
constexpr int place_of(tags<Tags...>) noexcept {
  int place = 0;
  (void)((std::is_same_v<Tags, Tag> || (++place, false)) || ...);
  return place;
}

/// Number of tags in a list.
template <class List>
inline constexpr index size_of = 0;
template <class... Tags>
inline constexpr index size_of<tags<Tags...>> = index{sizeof...(Tags)};

ZOADAM_CALLS_ANYTHING
template <class... Tags, class F>
ZOADAM_HOST_DEVICE constexpr void for_each_tag(tags<Tags...>, [[maybe_unused]] F f) {
  (f(Tags{}), ...);
}

template <class Tag, class T>
struct slot {
  T value{};
};

template <class T, class List>
struct registers;
/// One T per tag: r[momentum] is a reference to the T of tag momentum.
template <class T, class... Tags>
struct registers<T, tags<Tags...>> : slot<Tags, T>... {
  using value_type = T;
  template <class Tag>
  ZOADAM_HOST_DEVICE constexpr T& operator[](Tag) noexcept {
    return static_cast<slot<Tag, T>&>(*this).value;
  }
  template <class Tag>
  ZOADAM_HOST_DEVICE constexpr T const& operator[](Tag) const noexcept {
    return static_cast<slot<Tag, T> const&>(*this).value;
  }
};

}  // namespace detail
}  // namespace zoadam
