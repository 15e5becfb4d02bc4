// SPDX-License-Identifier: Apache-2.0
// Loops over one tile: formulas on lanes. Nothing here knows which optimizer it serves.
#pragma once

#include <bit>
#include <cstdint>

#include "zoadam/backend/view.hpp"
#include "zoadam/detail/element.hpp"
#include "zoadam/lane/lane.hpp"
#include "zoadam/lane/sum.hpp"

namespace zoadam::detail {

template <class Tags>
using pointers = registers<float*, Tags>;

/// Runs body(i, n) over [0, n) in steps of the lane width; the last step may be partial.
template <class Lane, class Body>
ZOADAM_HOST_INLINE void for_lanes(index n, Body body) noexcept {
  constexpr index width = Lane::width;
  index i = 0;
  for (; i + width <= n; i += width) body(i, std::integral_constant<int, static_cast<int>(width)>{});
  if (i < n) body(i, static_cast<int>(n - i));
}

template <class Lane, class Count>
ZOADAM_HOST_INLINE Lane load(float const* from, Count count) noexcept {
  if constexpr (std::is_same_v<Count, int>) {
    return Lane::load(from, count);
  } else {
    return Lane::load(from);
  }
}
template <class Lane, class Count>
ZOADAM_HOST_INLINE void store(Lane value, float* to, Count count) noexcept {
  if constexpr (std::is_same_v<Count, int>) {
    value.store(to, count);
  } else {
    value.store(to);
  }
}
template <class Lane, class Count>
ZOADAM_HOST_INLINE void store_where(typename Lane::mask where, Lane value, float* to, Count count) noexcept {
  if (where.all()) {
    store(value, to, count);
  } else if (where.any()) {
    store(select(where, value, load<Lane>(to, count)), to, count);
  }
}

/// Loops whose tiles are summed and encoded before the next one begins: meanwhile the processor's own prefetchers run
/// dry, so these ask for memory one KiB ahead of its use.
ZOADAM_HOST_INLINE void prefetch(float const* at) noexcept { __builtin_prefetch(at + 256); }

/// Elements [at, at + count) of a payload in one lane; quantizers may offer that themselves.
template <class Quantizer, class Lane, class Count>
ZOADAM_HOST_INLINE Lane decoded(std::byte const* payload, index at, Lane scale, Count count) noexcept {
  if constexpr (requires { Quantizer::decoded(payload, at, scale, count); }) {
    return Quantizer::decoded(payload, at, scale, count);
  } else {
    float values[Lane::width] = {};
    Quantizer::template decode<Lane>(payload, at, count, scale.first(), values);
    return Lane::load(values);
  }
}

/// Elements [skip, skip + n) of a sparse payload, which is that of a block of `length`.
template <class Isa, class Quantizer>
ZOADAM_NOINLINE void run_scatter(std::byte const* payload, index length, index skip, index n, float* out) noexcept {
  for (index i = 0; i < n; ++i) out[i] = 0.0f;
  int const room = Quantizer::room(length);
  for (int j = 0; j < room; ++j) {
    auto const each = Quantizer::decode(payload, j);
    index const at = each.position - skip;
    if (at >= 0 && at < n) out[at] = each.value;
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
  float* terms = nullptr;               ///< out: terms of a tensor_reduction, those of each result `stride` apart
  index stride = 0;
};

/// The fused loop of a segment over n elements. Down and Up: quantizers of the exchanges before and after it, or
/// void.
template <class Isa, class Segment, class Down, class Up>
ZOADAM_NOINLINE void run_segment(pointers<typename Segment::all> p, coefficients<float> const& host, index n,
                                 tile_io io, tally& counts) noexcept {
  using lane = lane_t<Isa>;
  using send = typename Segment::send;
  using loads = typename Segment::loads;
  constexpr bool compensated = [] {
    if constexpr (std::is_void_v<Up>)
      return false;
    else
      return Up::compensated;
  }();
  coefficients<lane> const k = host.as<lane>();
  [[maybe_unused]] lane const scale(io.scale);
  index active_count = 0, waiting_count = 0;
  registers<lane, typename Segment::scalars> scalar;
  for_each_tag(typename Segment::scalars{}, [&](auto tag) { scalar[tag] = lane(*p[tag]); });

  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    element<lane, Segment> e;
    for_each_tag(loads{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
      e.r[tag] = load<lane>(p[tag] + i, count);
      if constexpr (e.sends) prefetch(p[tag] + i);
    });
    for_each_tag(typename Segment::scalars{}, [&](auto tag) ZOADAM_LAMBDA_INLINE { e.r[tag] = scalar[tag]; });
    [[maybe_unused]] lane received(0.0f), error(0.0f);
    if constexpr (e.receives) received = decoded<Down>(io.received, io.skip + i, scale, count);
    if constexpr (compensated) {
      error = compensation<Up>(load<lane>(io.error + i, count));
      prefetch(io.error + i);
    }
    e.template run<compensated>(received, error, k);
    if constexpr (e.sends) {
      if constexpr (send::masked) {
        active_count += e.leaving.count();
        waiting_count += e.waiting.count();
      }
      store(e.value, io.compensated + i, count);
      if constexpr (bounded<send> && single_pass<Up>) {
        e.find_limit(k);
        store(e.limit, io.limit + i, count);
      }
    }
    if constexpr (Segment::reduces) {
      registers<lane, typename send::results> out;
      send::formula::terms(e.r, out, k);
      float* to = io.terms + i;
      for_each_tag(typename send::results{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
        store(out[tag], to, count);
        to += io.stride;
      });
    }
    for_each_tag(typename Segment::stores{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
      if constexpr (e.template partly<decltype(tag)>) {
        store_where(e.stored(tag), e.r[tag], p[tag] + i, count);
      } else {
        store(e.r[tag], p[tag] + i, count);
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
  float const* sum;                  ///< of the messages, where they are sparse
  float const* error;                ///< owner error, with compensation
  float* compensated;                ///< out: what is to be encoded
  float* limit;                      ///< out: bounds for the residual
};

/// Adds the values of a message, bounded, to the sum of those before it, or starts it.
template <class Isa, class Form>
ZOADAM_NOINLINE void run_add(pointers<typename Form::bound_reads> p, coefficients<float> const& host, index n,
                             float const* values, float* sum, bool starts) noexcept {
  using lane = lane_t<Isa>;
  coefficients<lane> const k = host.as<lane>();
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    owner_element<lane, Form> e;
    if constexpr (bounded<Form>) {
      registers<lane, typename Form::bound_reads> b;
      for_each_tag(typename Form::bound_reads{}, [&](auto tag) { b[tag] = load<lane>(p[tag] + i, count); });
      e.begin(b, k);
    }
    lane const value = e.bounded_value(load<lane>(values + i, count));
    store(starts ? value : load<lane>(sum + i, count) + value, sum + i, count);
  });
}

/// Counts active elements.
template <class Isa, class Form, class Up, class Down>
ZOADAM_NOINLINE index run_own(pointers<typename Form::bound_reads> bound_fields,
                              pointers<unite<typename Form::own_reads, typename Form::own_writes>> p,
                              coefficients<float> const& host, index n, owner_io io) noexcept {
  using lane = lane_t<Isa>;
  coefficients<lane> const k = host.as<lane>();
  // Dividing by a power of two is multiplying by its inverse, bit by bit, at a fraction of the time.
  bool const nobody = io.count == 0, exact_inverse = std::has_single_bit(static_cast<std::uint64_t>(io.count));
  float const ranks = nobody ? 1.0f : static_cast<float>(io.count);
  lane const divisor(ranks), inverse(1.0f / ranks);
  index active_count = Form::masked ? 0 : n;
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
    owner_element<lane, Form> e;
    if constexpr (bounded<Form>) {
      registers<lane, typename Form::bound_reads> b;
      for_each_tag(typename Form::bound_reads{}, [&](auto tag) ZOADAM_LAMBDA_INLINE {
        b[tag] = load<lane>(bound_fields[tag] + i, count);
        prefetch(bound_fields[tag] + i);
      });
      e.begin(b, k);
      store(e.limit, io.limit + i, count);
      if constexpr (Form::masked) active_count += e.active.count();
    }
    lane sum(0.0f);
    if constexpr (sparse<Up>) {
      if (!nobody) sum = load<lane>(io.sum + i, count);
    } else {
      auto const from = [&](index rank) ZOADAM_LAMBDA_INLINE {
        std::byte const* const message = io.messages[rank];
        float scale = 0;
        if constexpr (Up::has_scale) __builtin_memcpy(&scale, message + io.scale, sizeof scale);
        return e.bounded_value(decoded<Up>(message + io.payload, io.skip + i, lane(scale), count));
      };
      if (!nobody) sum = from(0);
      for (index rank = 1; rank < io.count; ++rank) sum = sum + from(rank);
    }
    registers<lane, unite<typename Form::own_reads, typename Form::own_writes>> r;
    for_each_tag(typename Form::own_reads{},
                 [&](auto tag) ZOADAM_LAMBDA_INLINE { r[tag] = load<lane>(p[tag] + i, count); });
    [[maybe_unused]] lane error(0.0f);
    if constexpr (Down::compensated) {
      error = compensation<Down>(load<lane>(io.error + i, count));
      prefetch(io.error + i);
    }
    lane const mean = exact_inverse ? sum * inverse : sum / divisor;
    store(e.template finish<Down::compensated>(r, mean, nobody, error, k), io.compensated + i, count);
    for_each_tag(typename Form::own_writes{}, [&](auto tag) { store(r[tag], p[tag] + i, count); });
  });
  return active_count;
}

/// Encodes n elements and, where `error` is given, keeps what stays of c there.
template <class Isa, class Quantizer, bounds Bounds>
ZOADAM_NOINLINE void run_encode(float const* c, float const* limit, float* error, index n, float scale,
                                std::byte* payload) noexcept {
  using lane = lane_t<Isa>;
  if constexpr (sparse<Quantizer>) {
    typename Quantizer::picks sent{};
    Quantizer::encode(lone_thread<Isa>{}, c, static_cast<int>(n), payload, sent);
    if constexpr (Quantizer::compensated) {  // c and error may be one array
      for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE {
        lane bound(0.0f);
        if constexpr (Bounds != bounds::none) bound = load<lane>(limit + i, count);
        store(residual<Bounds>(load<lane>(c + i, count), lane(0.0f), bound), error + i, count);
      });
      for (int j = 0; j < sent.count; ++j) {
        int const i = sent.position[j];
        f32 bound(0.0f);
        if constexpr (Bounds != bounds::none) bound = f32(limit[i]);
        error[i] = residual<Bounds>(f32(sent.value[j]), f32(sent.decoded[j]), bound).v;
      }
    }
  } else if constexpr (!Quantizer::compensated) {
    Quantizer::template encode<lane>(c, n, scale, payload);
  } else {
    auto const keep = [&](index i, auto count, lane value, lane q) ZOADAM_LAMBDA_INLINE {
      lane bound(0.0f);
      if constexpr (Bounds != bounds::none) bound = load<lane>(limit + i, count);
      store(residual<Bounds>(value, q, bound), error + i, count);
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

/// The largest of n floats and +0.
template <class Isa>
ZOADAM_NOINLINE float tile_max(float const* c, index n) noexcept {
  using lane = lane_t<Isa>;
  lane most(0.0f);
  for_lanes<lane>(n, [&](index i, auto count) ZOADAM_LAMBDA_INLINE { most = max(load<lane>(c + i, count), most); });
  float each[lane::width];
  most.store(each);
  f32 all(0.0f);
  for (float const x : each) all = max(f32(x), all);
  return all.v;
}

}  // namespace zoadam::detail
