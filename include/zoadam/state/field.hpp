// SPDX-License-Identifier: Apache-2.0
// Fields: what a composition remembers, per element or per tensor, and where each value lives.
#pragma once

#include <type_traits>

#include "zoadam/detail/tags.hpp"

namespace zoadam {

/// Tags of values; formulas index their registers with them: r[at::momentum].
namespace at {
/// Base of the tags of values that a tensor has once: formulas get them on every element.
struct tensor_scalar {};
/// Base of the tags of values that a tensor has once per slice: formulas get, on every element, the least of the
/// values of its slices. Tag::slices(shape, add) calls add(slicing) once or more; see layout/slices.hpp.
struct slice_value {};
/// Base of the tags of values that a loop hands from one formula to the next, and that nobody stores.
struct transient {};

// The user's own buffers.
struct gradient_t {
  static constexpr char const* name = "gradient";
};
struct parameter_t {
  static constexpr char const* name = "parameter";
};
/// The mean gradient, as it arrives.
struct arriving_gradient_t : transient {
  static constexpr char const* name = "arriving_gradient";
};
// State.
struct momentum_t {
  static constexpr char const* name = "momentum";
};
struct variance_t {
  static constexpr char const* name = "variance";
};
struct mean_square_t {
  static constexpr char const* name = "mean_square";
};
struct anchor_t {
  static constexpr char const* name = "anchor";
};
struct momentum_sum_t {
  static constexpr char const* name = "momentum_sum";
};
/// Momentum of the outer step.
struct outer_momentum_t {
  static constexpr char const* name = "outer_momentum";
};
/// Parameters in float32 where their owner keeps them; there at::parameter means this.
struct master_t {
  static constexpr char const* name = "master";
};
// Scalars of a tensor.
struct trust_ratio_t : tensor_scalar {
  static constexpr char const* name = "trust_ratio";
};
// Errors of the exchange of What: what its quantizers have not sent yet.
template <class What>
struct worker_error_t {
  static constexpr char const* name = "worker_error";
};
template <class What>
struct owner_error_t {
  static constexpr char const* name = "owner_error";
};

inline constexpr gradient_t gradient;
inline constexpr parameter_t parameter;
inline constexpr arriving_gradient_t arriving_gradient;
inline constexpr momentum_t momentum;
inline constexpr variance_t variance;
inline constexpr mean_square_t mean_square;
inline constexpr anchor_t anchor;
inline constexpr momentum_sum_t momentum_sum;
inline constexpr outer_momentum_t outer_momentum;
inline constexpr master_t master;
inline constexpr trust_ratio_t trust_ratio;
}  // namespace at

/// Where a value lives: on each worker its own; on every rank and equal (hashed); at the owner of its chunk only.
enum class home { worker, replica, owner };

namespace detail {
template <class Tag>
inline constexpr bool is_tensor_scalar = std::is_base_of_v<at::tensor_scalar, Tag>;
template <class Tag>
inline constexpr bool is_slice_value = std::is_base_of_v<at::slice_value, Tag>;
template <class Tag>
inline constexpr bool is_transient = std::is_base_of_v<at::transient, Tag>;

template <class Tags>
struct slices_of_;
template <class... Tags>
struct slices_of_<tags<Tags...>> {
  template <class Tag>
  using one = std::conditional_t<is_slice_value<Tag>, tags<Tag>, tags<>>;
  using type = unite_all<one<Tags>...>;
};
/// The tags of slice values among `Tags`; below, those of transients.
template <class Tags>
using slices_of = typename slices_of_<Tags>::type;
template <class Tags>
struct transients_of_;
template <class... Tags>
struct transients_of_<tags<Tags...>> {
  template <class Tag>
  using one = std::conditional_t<is_transient<Tag>, tags<Tag>, tags<>>;
  using type = unite_all<one<Tags>...>;
};
template <class Tags>
using transients_of = typename transients_of_<Tags>::type;
}  // namespace detail

/// Declares one float32 value per element. Memory and byte counts are derived from the declarations.
template <class Tag, home Home>
struct field {
  static_assert(!detail::is_tensor_scalar<Tag>, "zoadam: a tensor has this value once: declare it by tensor_field");
  static_assert(!detail::is_slice_value<Tag>, "zoadam: a slice has this value once: declare it by slice_field");
  static_assert(!detail::is_transient<Tag>, "zoadam: nobody stores this value");
  using tag = Tag;
  static constexpr home where = Home;
};

/// Declares one float32 value per tensor, zero at first, that a tensor_reduction sets.
template <class Tag, home Home = home::replica>
struct tensor_field {
  static_assert(detail::is_tensor_scalar<Tag>, "zoadam: the tag of a tensor_field is derived from at::tensor_scalar");
  static_assert(Home != home::owner, "zoadam: a tensor may have several owners, so its scalars live on every rank");
  using tag = Tag;
  static constexpr home where = Home;
};

/// Declares one float32 value per slice, zero at first, that a slice_reduction sets.
template <class Tag, home Home = home::replica>
struct slice_field {
  static_assert(detail::is_slice_value<Tag>, "zoadam: the tag of a slice_field is derived from at::slice_value");
  static_assert(Home != home::owner, "zoadam: a slice may have several owners, so its value lives on every rank");
  using tag = Tag;
  static constexpr home where = Home;
};

template <class... Fields>
struct fields {
  using tags = zoadam::tags<typename Fields::tag...>;
  static constexpr int size = sizeof...(Fields);

  /// Values per element.
  template <home Home>
  static constexpr int count = (0 + ... +
                                (Fields::where == Home && !detail::is_tensor_scalar<typename Fields::tag> &&
                                         !detail::is_slice_value<typename Fields::tag>
                                     ? 1
                                     : 0));
};

namespace detail {

template <class A, class B>
struct join_;
template <class... As, class... Bs>
struct join_<fields<As...>, fields<Bs...>> {
  using type = fields<As..., Bs...>;
};
template <class... Lists>
struct join_all_;
template <>
struct join_all_<> {
  using type = fields<>;
};
template <class First, class... Rest>
struct join_all_<First, Rest...> {
  using type = typename join_<First, typename join_all_<Rest...>::type>::type;
};
template <class... Lists>
using join = typename join_all_<Lists...>::type;

template <class Fields, home Home>
struct at_home_;
template <class... Fields, home Home>
struct at_home_<fields<Fields...>, Home> {
  using type = typename join<std::conditional_t<Fields::where == Home, fields<Fields>, fields<>>...>::tags;
};
/// Tags of the fields with that home.
template <class Fields, home Home>
using at_home = typename at_home_<Fields, Home>::type;

}  // namespace detail
}  // namespace zoadam
