// SPDX-License-Identifier: Apache-2.0
// What a quantizer is: how the values of a group travel.
#pragma once

#include <concepts>
#include <cstddef>

#include "zoadam/concepts/policy.hpp"
#include "zoadam/detail/team.hpp"
#include "zoadam/lane/sum.hpp"
#include "zoadam/layout/groups.hpp"

namespace zoadam {

/// Elements per step of any loop over a group: sums are defined over runs of this length, and it bounds what a kernel
/// keeps in the first-level cache.
inline constexpr index tile_size = sum_block;

template <class Quantizer>
concept has_groups = groups<typename Quantizer::groups>;

/// payload_bytes(n): bytes of n elements of one group without its scale. Additive over multiples of 32, unless
/// sparse.
template <class Quantizer>
concept sizes_payload = requires(index n) {
  { Quantizer::payload_bytes(n) }
  noexcept->std::same_as<index>;
};

/// has_scale: whether a float32 scale travels with each group. If so, norm::term is summed over the group's active
/// elements and norm::scale(sum, count) is the scale.
template <class Quantizer>
concept says_scale = requires {
  { Quantizer::has_scale } -> std::convertible_to<bool>;
}
&&(!Quantizer::has_scale || requires(double sum, index count, lane_t<isa::scalar> x) {
  { Quantizer::norm::scale(sum, count) }
  noexcept->std::same_as<float>;
  { typename Quantizer::norm::term{}(x) }
  noexcept->std::same_as<lane_t<isa::scalar>>;
});

/// compensated: whether what is lost is kept and added to the next input (error feedback).
template <class Quantizer>
concept says_compensated = requires {
  { Quantizer::compensated } -> std::convertible_to<bool>;
};

/// An element that a sparse quantizer has sent.
struct sparse_element {
  int position;  ///< in its block
  float value;
};

/// A quantizer that sends a few elements of a block, and zeros for the others, so that it must see a whole block.
///   room(n)                         how many elements of a block of n there is room for
///   picks                           count; position, value and decoded value of the elements that a block sends
///   encode(team, c, n, payload, p)  called by all threads of a team, see detail/team.hpp: writes payload_bytes(n)
///                                   bytes for a block of n elements, and p
///   decode(payload, j)              the j-th of the elements that there is room for; positions may repeat, with the
///                                   same value, and be anything in a payload that nobody has encoded
template <class Quantizer>
concept sparse = detail::block_size<typename Quantizer::groups> >
0 && !Quantizer::has_scale &&
    requires(detail::lone_thread<isa::scalar> team, index n, float const* c, int j, std::byte const* from,
             std::byte* payload, typename Quantizer::picks& p) {
  { Quantizer::room(n) }
  noexcept->std::same_as<int>;
  { p.count } -> std::same_as<int&>;
  { p.position[j] } -> std::same_as<int&>;
  { p.value[j] } -> std::same_as<float&>;
  { p.decoded[j] } -> std::same_as<float&>;
  { Quantizer::encode(team, c, j, payload, p) }
  noexcept;
  { Quantizer::decode(from, j) }
  noexcept->std::same_as<sparse_element>;
};

/// encode<Lane>(c, n, scale, payload): writes payload_bytes(n) bytes; n elements from a multiple of 32 of the group.
template <class Quantizer>
concept encodes = sparse<Quantizer> || requires(float const* c, index n, float scale, std::byte* payload) {
  { Quantizer::template encode<lane_t<isa::scalar>>(c, n, scale, payload) }
  noexcept;
};

/// decode<Lane>(payload, skip, n, scale, out): the values of elements [skip, skip + n) of a payload.
template <class Quantizer>
concept decodes = sparse<Quantizer> || requires(std::byte const* payload, index n, float scale, float* out) {
  { Quantizer::template decode<lane_t<isa::scalar>>(payload, n, n, scale, out) }
  noexcept;
};

/// Groups that are neither blocks nor wait for a scale are encoded from wherever a tensor or a thread's part begins,
/// so their payload must be additive over single elements.
template <class Quantizer>
concept encodes_parts = (Quantizer::has_scale || detail::block_size<typename Quantizer::groups> > 0 ||
                         32 * Quantizer::payload_bytes(1) == Quantizer::payload_bytes(32));

/// A code of 0, 1, 16 or 32 bits per element, independent of its neighbours: what devices write. One-bit codes lie in
/// little-endian 32-bit words, wider ones one after another; encode() and decode() say the same.
template <class Quantizer>
concept elementwise = requires(f32 x, std::uint32_t code) {
  requires Quantizer::code_bits == 0 || Quantizer::code_bits == 1 || Quantizer::code_bits == 16 ||
      Quantizer::code_bits == 32;
  { Quantizer::code(x) }
  noexcept->std::same_as<std::uint32_t>;
  { Quantizer::value(code, x) }
  noexcept->std::same_as<f32>;
};

template <class Quantizer>
concept quantizer = policy<Quantizer> && has_groups<Quantizer> && sizes_payload<Quantizer> && says_scale<Quantizer> &&
    says_compensated<Quantizer> && encodes<Quantizer> && decodes<Quantizer> && encodes_parts<Quantizer>;

/// A quantizer that can say zero: its decoded value of 0 is 0, whatever the other elements of the group are.
template <class Quantizer>
concept keeps_zero = quantizer<Quantizer> && requires {
  requires Quantizer::keeps_zero;
};

}  // namespace zoadam
