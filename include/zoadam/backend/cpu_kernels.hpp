// SPDX-License-Identifier: Apache-2.0
// Loops over one tile: formulas on lanes. Nothing here knows which optimizer it serves.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "zoadam/concepts/stage.hpp"
#include "zoadam/detail/segment.hpp"
#include "zoadam/lane/lane.hpp"
#include "zoadam/lane/sum.hpp"

namespace zoadam::detail {

template <class Tags>
using pointers = registers<float*, Tags>;

/// What a loop counts besides computing.
struct tally {
  index active = 0;
  index waiting = 0;
};

/// Runs body(i, n) over [0, n) in steps of the lane width; the last step may be partial.
template <class Lane, class Body>
ZOADAM_INLINE void for_lanes(index n, Body body) noexcept {
  constexpr index width = Lane::width;
  index i = 0;
  for (; i + width <= n; i += width) body(i, std::integral_constant<int, static_cast<int>(width)>{});
  if (i < n) body(i, static_cast<int>(n - i));
}

template <class Lane, class Count>
ZOADAM_INLINE Lane load(float const* from, Count count) noexcept {
  if constexpr (std::is_same_v<Count, int>) {
    return Lane::load(from, count);
  } else {
    return Lane::load(from);
  }
}
template <class Lane, class Count>
ZOADAM_INLINE void store(Lane value, float* to, Count count) noexcept {
  if constexpr (std::is_same_v<Count, int>) {
    value.store(to, count);
  } else {
    value.store(to);
  }
}
template <class Lane, class Count>
ZOADAM_INLINE void store_where(typename Lane::mask where, Lane value, float* to, Count count) noexcept {
  if (where.all()) {
    store(value, to, count);
  } else if (where.any()) {
    store(select(where, value, load<Lane>(to, count)), to, count);
  }
}

template <class Lane>
ZOADAM_INLINE Lane clamp(Lane value, Lane limit) noexcept {
  return max(min(value, limit), -limit);
}

/// The bound on decoded magnitudes: limit(r, k) where the form has one, none otherwise, 0 on inactive elements.
template <class Form, class Lane, class Registers>
ZOADAM_INLINE Lane bound(Registers const& r, coefficients<Lane> const& k) noexcept {
  Lane limit(std::numeric_limits<float>::max());
  if constexpr (Form::limited) limit = Form::limit(r, k);
  if constexpr (Form::masked) limit = select(Form::active(r), limit, Lane(0.0f));
  return limit;
}

template <class Form>
inline constexpr bool bounded = Form::limited || Form::masked;

/// Where a segment's tile lies in memory, besides its fields.
struct tile_io {
  float const* received = nullptr;  ///< decoded result of the exchange before the segment
  float const* error = nullptr;     ///< worker error; null without compensation
  float* compensated = nullptr;     ///< out: what is to be encoded
  float* limit = nullptr;           ///< out: bounds for the residual; null where they are computed later
};

/// The fused loop of a segment over n elements.
template <class Isa, class Segment>
ZOADAM_NOINLINE void run_segment(pointers<typename Segment::all> p, coefficients<float> const& host, index n,
                                 tile_io io, tally& counts) noexcept {
  using lane = lane_t<Isa>;
  using receive = typename Segment::receive;
  using send = typename Segment::send;
  using loads = typename Segment::loads;
  coefficients<lane> const k = host.as<lane>();
  index active_count = 0, waiting_count = 0;

  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    registers<lane, typename Segment::all> r;
    for_each_tag(loads{}, [&](auto tag) { r[tag] = load<lane>(p[tag] + i, count); });

    [[maybe_unused]] typename lane::mask arrived, leaving;
    if constexpr (!std::is_same_v<receive, nothing>) {
      lane value = load<lane>(io.received + i, count);
      if constexpr (receive::masked) arrived = receive::active(r);
      if constexpr (bounded<receive>) value = clamp(value, bound<receive>(r, k));
      auto const before = r;
      receive::receive(r, value, k);
      for_each_tag(typename receive::rewrites_active{}, [&](auto tag) {
        if constexpr (contains<loads, decltype(tag)>) r[tag] = select(arrived, r[tag], before[tag]);
      });
    }
    Segment::run_passes(r, k);
    if constexpr (!std::is_same_v<send, nothing>) {
      lane value = send::send(r, k);
      if constexpr (send::masked) {
        leaving = send::active(r);
        active_count += leaving.count();
        waiting_count += (!leaving & send::waiting(r, value)).count();
      }
      if (io.error) value = value + load<lane>(io.error + i, count);
      if constexpr (send::masked) value = select(leaving, value, lane(0.0f));
      store(value, io.compensated + i, count);
      if constexpr (bounded<send>) {
        if (io.limit) store(bound<send>(r, k), io.limit + i, count);
      }
    }
    for_each_tag(typename Segment::stores{}, [&](auto tag) {
      using tag_type = decltype(tag);
      if constexpr (contains<typename send::rewrites_active, tag_type>) {
        store_where(!leaving, r[tag], p[tag] + i, count);
      } else if constexpr (contains<typename receive::rewrites_active, tag_type> && !contains<loads, tag_type>) {
        store_where(arrived, r[tag], p[tag] + i, count);
      } else {
        store(r[tag], p[tag] + i, count);
      }
    });
  });
  counts.active += active_count;
  counts.waiting += waiting_count;
}

/// Bounds of a form over n elements, and how many are active.
template <class Isa, class Form>
ZOADAM_NOINLINE index run_bounds(pointers<typename Form::bound_reads> p, coefficients<float> const& host, index n,
                                 float* limit) noexcept {
  using lane = lane_t<Isa>;
  coefficients<lane> const k = host.as<lane>();
  index active = n;
  if constexpr (bounded<Form>) {
    if constexpr (Form::masked) active = 0;
    for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
      registers<lane, typename Form::bound_reads> r;
      for_each_tag(typename Form::bound_reads{}, [&](auto tag) { r[tag] = load<lane>(p[tag] + i, count); });
      if constexpr (Form::masked) active += Form::active(r).count();
      store(bound<Form>(r, k), limit + i, count);
    });
  }
  return active;
}

/// sum += clamp(value, limit), or sum = it for the first rank.
template <class Isa>
ZOADAM_NOINLINE void run_accumulate(float* sum, float const* value, float const* limit, index n,
                                    bool first) noexcept {
  using lane = lane_t<Isa>;
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    lane v = load<lane>(value + i, count);
    if (limit) v = clamp(v, load<lane>(limit + i, count));
    store(first ? v : load<lane>(sum + i, count) + v, sum + i, count);
  });
}

/// The owner's formula: c = own(sum / contributions) + error, zero where inactive.
template <class Isa, class Form>
ZOADAM_NOINLINE void run_own(pointers<unite<typename Form::own_reads, typename Form::own_writes>> p,
                             coefficients<float> const& host, index n, float contributions, float const* sum,
                             float const* limit, float const* error, float* compensated) noexcept {
  using lane = lane_t<Isa>;
  coefficients<lane> const k = host.as<lane>();
  lane const divisor(contributions);
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    registers<lane, unite<typename Form::own_reads, typename Form::own_writes>> r;
    for_each_tag(typename Form::own_reads{}, [&](auto tag) { r[tag] = load<lane>(p[tag] + i, count); });
    lane value = Form::own(r, load<lane>(sum + i, count) / divisor, k);
    if (error) value = value + load<lane>(error + i, count);
    if constexpr (Form::masked) value = select(greater(load<lane>(limit + i, count), lane(0.0f)), value, lane(0.0f));
    store(value, compensated + i, count);
    for_each_tag(typename Form::own_writes{}, [&](auto tag) { store(r[tag], p[tag] + i, count); });
  });
}

/// error = c - clamp(decoded, limit)
template <class Isa>
ZOADAM_NOINLINE void run_residual(float const* c, float const* decoded, float const* limit, float* error,
                                  index n) noexcept {
  using lane = lane_t<Isa>;
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    lane q = load<lane>(decoded + i, count);
    if (limit) q = clamp(q, load<lane>(limit + i, count));
    store(flush(load<lane>(c + i, count) - q, 0x1p-96f), error + i, count);
  });
}

/// Terms of a reduction over n elements.
template <class Isa, class Formula>
ZOADAM_NOINLINE void run_terms(pointers<typename Formula::reads> p, coefficients<float> const& host, index n,
                               float* out) noexcept {
  using lane = lane_t<Isa>;
  coefficients<lane> const k = host.as<lane>();
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    registers<lane, typename Formula::reads> r;
    for_each_tag(typename Formula::reads{}, [&](auto tag) { r[tag] = load<lane>(p[tag] + i, count); });
    store(Formula::term(r, k), out + i, count);
  });
}

/// out = scale * gradient; whether any element is NaN or beyond 2^56 in magnitude.
template <class Isa>
ZOADAM_NOINLINE bool run_scaled_gradient(float const* gradient, float scale, index n, float* out) noexcept {
  using lane = lane_t<Isa>;
  constexpr std::uint32_t largest = std::bit_cast<std::uint32_t>(0x1p56f);
  lane const factor(scale);
  bool bad = false;
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    lane const g = factor * load<lane>(gradient + i, count);
    bad |= exceeds(g, largest).any();
    store(g, out + i, count);
  });
  return bad;
}

/// Sum of Term over n contiguous floats that form one block or less of a group.
template <class Isa, class Term>
float tile_sum(float const* c, index n, float* padded) noexcept {
  index const rest = n % sum_partials;
  if (rest == 0) return n == 0 ? 0.0f : block_sum<lane_t<Isa>>(c, n, Term{});
  for (index i = 0; i < n; ++i) padded[i] = c[i];
  for (index i = n; i < n + sum_partials - rest; ++i) padded[i] = 0.0f;
  return block_sum<lane_t<Isa>>(padded, n, Term{});
}

}  // namespace zoadam::detail
