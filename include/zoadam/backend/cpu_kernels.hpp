// SPDX-License-Identifier: Apache-2.0
// Loops over one tile: formulas on lanes. Nothing here knows which optimizer it serves.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "zoadam/backend/view.hpp"
#include "zoadam/concepts/stage.hpp"
#include "zoadam/detail/segment.hpp"
#include "zoadam/lane/lane.hpp"
#include "zoadam/lane/sum.hpp"

namespace zoadam::detail {

template <class Tags>
using pointers = registers<float*, Tags>;

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

/// Loops whose tiles are summed and encoded before the next one begins: meanwhile the processor's own prefetchers run
/// dry, so these ask for memory one KiB ahead of its use.
ZOADAM_INLINE void prefetch(float const* at) noexcept { __builtin_prefetch(at + 256); }

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

/// Elements [at, at + count) of a payload in one lane; quantizers may offer that themselves.
template <class Quantizer, class Lane, class Count>
ZOADAM_INLINE Lane decoded(std::byte const* payload, index at, Lane scale, Count count) noexcept {
  if constexpr (requires { Quantizer::decoded(payload, at, scale, count); }) {
    return Quantizer::decoded(payload, at, scale, count);
  } else {
    float values[Lane::width] = {};
    Quantizer::template decode<Lane>(payload, at, count, scale.first(), values);
    return Lane::load(values);
  }
}

/// Where a segment's tile lies in memory, besides its fields.
struct tile_io {
  std::byte const* received = nullptr;  ///< payload of the exchange before the segment
  index skip = 0;                       ///< elements of that payload before the tile
  float scale = 0;                      ///< of that payload
  float const* error = nullptr;         ///< worker error, with compensation
  float* compensated = nullptr;         ///< out: what is to be encoded
  float* limit = nullptr;               ///< out: bounds for the residual, unless they are computed later
};

/// The fused loop of a segment over n elements. Down and Up: quantizers of the exchanges before and after it, or
/// void.
template <class Isa, class Segment, class Down, class Up>
ZOADAM_NOINLINE void run_segment(pointers<typename Segment::all> p, coefficients<float> const& host, index n,
                                 tile_io io, tally& counts) noexcept {
  using lane = lane_t<Isa>;
  using receive = typename Segment::receive;
  using send = typename Segment::send;
  using loads = typename Segment::loads;
  coefficients<lane> const k = host.as<lane>();
  [[maybe_unused]] lane const scale(io.scale);
  index active_count = 0, waiting_count = 0;

  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    registers<lane, typename Segment::all> r;
    for_each_tag(loads{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
      r[tag] = load<lane>(p[tag] + i, count);
      if constexpr (!std::is_same_v<send, nothing>) prefetch(p[tag] + i);
    });

    [[maybe_unused]] typename lane::mask arrived, leaving;
    if constexpr (!std::is_same_v<receive, nothing>) {
      lane value = decoded<Down>(io.received, io.skip + i, scale, count);
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
      if constexpr (Up::compensated) {
        value = value + load<lane>(io.error + i, count);
        prefetch(io.error + i);
      }
      if constexpr (send::masked) value = select(leaving, value, lane(0.0f));
      store(value, io.compensated + i, count);
      if constexpr (bounded<send> && single_pass<Up>) store(bound<send>(r, k), io.limit + i, count);
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

/// The owner's side up to the encoding: mean in rank order over the messages, each bounded, then own formula and
/// error; zero where inactive.
struct owner_io {
  std::byte const* const* messages;  ///< those that count
  index count;                       ///< how many
  index scale, payload, skip;        ///< bytes before the scale, bytes before the payload, elements before the tile
  float const* error;                ///< owner error, with compensation
  float* compensated;                ///< out: what is to be encoded
  float* limit;                      ///< out: bounds for the residual
};

/// Counts active elements.
template <class Isa, class Form, class Up, class Down>
ZOADAM_NOINLINE index run_own(pointers<typename Form::bound_reads> bound_fields,
                              pointers<unite<typename Form::own_reads, typename Form::own_writes>> p,
                              coefficients<float> const& host, index n, owner_io io) noexcept {
  using lane = lane_t<Isa>;
  coefficients<lane> const k = host.as<lane>();
  // Dividing by a power of two is multiplying by its inverse, bit by bit, at a fraction of the time.
  bool const exact_inverse = std::has_single_bit(static_cast<std::uint64_t>(io.count));
  lane const divisor(static_cast<float>(io.count)), inverse(1.0f / static_cast<float>(io.count));
  index active_count = Form::masked ? 0 : n;
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    [[maybe_unused]] lane limit;
    [[maybe_unused]] typename lane::mask active;
    if constexpr (bounded<Form>) {
      registers<lane, typename Form::bound_reads> r;
      for_each_tag(typename Form::bound_reads{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
        r[tag] = load<lane>(bound_fields[tag] + i, count);
        prefetch(bound_fields[tag] + i);
      });
      limit = bound<Form>(r, k);
      store(limit, io.limit + i, count);
      if constexpr (Form::masked) {
        active = Form::active(r);
        active_count += active.count();
      }
    }
    auto const from = [&](index rank) ZOADAM_LAMBDA_INLINE {
      std::byte const* const message = io.messages[rank];
      float scale = 0;
      if constexpr (Up::has_scale) __builtin_memcpy(&scale, message + io.scale, sizeof scale);
      lane value = decoded<Up>(message + io.payload, io.skip + i, lane(scale), count);
      if constexpr (bounded<Form>) value = clamp(value, limit);
      return value;
    };
    lane sum = from(0);
    for (index rank = 1; rank < io.count; ++rank) sum = sum + from(rank);
    registers<lane, unite<typename Form::own_reads, typename Form::own_writes>> r;
    for_each_tag(typename Form::own_reads{}, [&](auto tag) { r[tag] = load<lane>(p[tag] + i, count); });
    lane value = Form::own(r, exact_inverse ? sum * inverse : sum / divisor, k);
    if constexpr (Down::compensated) {
      value = value + load<lane>(io.error + i, count);
      prefetch(io.error + i);
    }
    if constexpr (Form::masked) value = select(active, value, lane(0.0f));
    store(value, io.compensated + i, count);
    for_each_tag(typename Form::own_writes{}, [&](auto tag) { store(r[tag], p[tag] + i, count); });
  });
  return active_count;
}

/// Encodes n elements and, where `error` is given, keeps c - clamp(decoded, limit) there.
template <class Isa, class Quantizer>
ZOADAM_NOINLINE void run_encode(float const* c, float const* limit, float* error, index n, float scale,
                                std::byte* payload) noexcept {
  using lane = lane_t<Isa>;
  if constexpr (!Quantizer::compensated) {
    Quantizer::template encode<lane>(c, n, scale, payload);
  } else {
    auto const keep = [&](index i, auto count, lane value, lane q) ZOADAM_LAMBDA_INLINE {
      if (limit) q = clamp(q, load<lane>(limit + i, count));
      store(flush(value - q, 0x1p-96f), error + i, count);
    };
    if constexpr (requires { Quantizer::template encode<lane>(c, n, scale, payload, keep); }) {
      Quantizer::template encode<lane>(c, n, scale, payload, keep);
    } else {
      Quantizer::template encode<lane>(c, n, scale, payload);
      for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
        keep(i, count, load<lane>(c + i, count), decoded<Quantizer>(payload, i, lane(scale), count));
      });
    }
  }
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

/// (factor x)^2
template <class Lane>
struct scaled_square_term {
  Lane factor;
  ZOADAM_INLINE Lane operator()(Lane x) const noexcept {
    Lane const scaled = factor * x;
    return scaled * scaled;
  }
};
/// Sum of (scale g)^2 over one block of full rows of partial sums.
template <class Isa>
ZOADAM_NOINLINE float run_square_sum(float const* gradient, float scale, index n) noexcept {
  using lane = lane_t<Isa>;
  return block_sum<lane>(gradient, n, scaled_square_term<lane>{lane(scale)});
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
