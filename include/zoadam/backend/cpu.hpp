// SPDX-License-Identifier: Apache-2.0
// Loops on the CPU: tiles that stay in the first-level cache, SIMD lanes, threads.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "zoadam/backend/cpu_kernels.hpp"
#include "zoadam/backend/thread_pool.hpp"
#include "zoadam/backend/view.hpp"
#include "zoadam/concepts/backend.hpp"

namespace zoadam {

/// @tparam Isa  instruction set of the kernels; the target flags choose it for cpu_backend
///
/// Every fused loop works tile by tile: compute a tile, sum it, encode it, keep its error, while it is in the cache,
/// so that memory sees one pass. Results do not depend on Isa, on the number of threads, or on alignment.
template <class Isa = isa::native>
class basic_cpu_backend {
 public:
  explicit basic_cpu_backend(int threads = 1) : pool_(threads) {}

  class memory {
   public:
    memory() = default;
    explicit memory(index bytes)
        : data_(bytes > 0
                    ? static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes + 63) / 64 * 64))
                    : nullptr) {
      if (bytes > 0 && !data_) throw std::bad_alloc();
      if (bytes > 0) std::memset(data_.get(), 0, static_cast<std::size_t>(bytes));
    }
    std::byte* data() const noexcept { return data_.get(); }

   private:
    struct deleter {
      void operator()(std::byte* p) const noexcept { std::free(p); }
    };
    std::unique_ptr<std::byte, deleter> data_;
  };
  memory allocate(index bytes) const { return memory(bytes); }

  /// Working memory for tiles of that many elements, per thread.
  void reserve(index elements) {
    capacity_ = (elements + sum_partials - 1) / sum_partials * sum_partials;
    workspace_ = allocate(workspace_bytes());
  }
  index workspace_bytes() const noexcept { return pool_.size() * capacity_ * buffers_ * index{sizeof(float)}; }

  /// One fused loop over all elements: the result of an exchange comes in, passes run, the next exchange's messages
  /// go out. `in` and `out` are incoming/outgoing, or no_messages.
  template <class Segment, class View, class In, class Out>
  detail::tally run(View const& view, In const& in, Out const& out) {
    using up = typename Out::quantizer;
    constexpr bool sends = !std::is_void_v<up>;
    std::vector<detail::tally> counts(static_cast<std::size_t>(pool_.size()));
    // Parts of threads begin where groups begin.
    auto const part = [&](index first, index last, int thread) {
      detail::tally& count = counts[static_cast<std::size_t>(thread)];
      for (index i = first; i < last;) {
        index const t = view.tensors->find(i);
        index end = smaller(smaller(last, view.tensors->first(t + 1)), i + detail::tile_of<up>);
        if constexpr (sends) {
          if constexpr (detail::single_pass<up>) {
            piece const p = (*out.cut)[out.cut->find(i)];
            end = smaller(end, p.last);
            segment_tile<Segment>(view, in, out, t, i, end, p, thread, count);
            i = end;
            continue;
          }
        }
        segment_tile<Segment>(view, in, out, t, i, end, piece{}, thread, count);
        i = end;
      }
    };
    if constexpr (detail::block_of < up >> 0) {
      pool_.parallel(out.cut->pieces(), 1, [&](index first, index last, int thread) {
        part((*out.cut)[first].first, (*out.cut)[last - 1].last, thread);
      });
    } else {
      pool_.parallel(view.tensors->elements(), 64, part);
    }
    if constexpr (sends) {
      if constexpr (!detail::single_pass<up>) {
        auto const message = [&](int owner) {
          return out.messages + out.cut->offsets()[static_cast<std::size_t>(owner)];
        };
        for (index k = 0; k < out.cut->pieces(); k += out.cut->ranks()) {
          finish_group<typename Segment::send, up>(view, *out.cut, k, k + out.cut->ranks(),
                                                   out.carry + (*out.cut)[k].first, message);
        }
      }
    }
    detail::tally all;
    for (detail::tally const& c : counts) all.active += c.active, all.waiting += c.waiting;
    return all;
  }

  /// The owner's side of an exchange: decode the ranks' messages, mean in rank order over the contributing ones, own
  /// formula, encode. `received` holds the messages one after the other; `contributes` says whose count.
  template <class Form, class Up, class Down, class View>
  void own(View const& view, partition<Up> const& up, partition<Down> const& down, int me, std::byte const* received,
           std::vector<bool> const& contributes, [[maybe_unused]] int contributions, std::byte* message,
           float* carry) {
    index const stride = up.offsets()[static_cast<std::size_t>(me) + 1] - up.offsets()[static_cast<std::size_t>(me)];
    std::vector<std::byte const*> counted;
    for (std::size_t i = 0; i < contributes.size(); ++i) {
      if (contributes[i]) counted.push_back(received + static_cast<index>(i) * stride);
    }
    auto const tile = [&](piece const& from, piece const& to, index first, index last, int thread) {
      own_tile<Form, Up, Down>(view, counted, from, to, message, carry, first, last, thread);
    };
    if constexpr (detail::block_of < Down >> 0) {
      pool_.parallel(up.owned(me), 1, [&](index first, index last, int thread) {
        for (index i = first; i < last; ++i) {
          piece const to = down.owned(me, i);
          tile(up.owned(me, i), to, to.first, to.last, thread);
        }
      });
    } else {
      for (index i = 0; i < up.owned(me); ++i) {
        piece const from = up.owned(me, i), to = down.owned(me, i);
        pool_.parallel(to.last - to.first, 64, [&](index first, index last, int thread) {
          for_tensors(view, to.first + first, to.first + last, detail::tile_of<Down>,
                      [&](index, index a, index b) { tile(from, to, a, b, thread); });
        });
        if constexpr (!detail::single_pass<Down>) {
          index const k = down.find(to.first);
          if (to.last > to.first) {
            finish_group<Form, Down>(view, down, k, k + 1, carry + to.own, [&](int) { return message; });
          }
        }
      }
    }
  }

  /// Sum of a formula's terms over all elements, in the order of every sum.
  template <class Formula, class View>
  double reduce(View const& view) {
    index const n = view.tensors->elements();
    pool_.parallel(n, sum_block, [&](index first, index last, int thread) {
      float* const terms = buffer(thread, 0);
      for (index b = first; b < last; b += sum_block) {
        index const end = smaller(b + sum_block, last);
        for_tensors(view, b, end, sum_block, [&](index t, index i, index j) {
          detail::run_terms<Isa, Formula>(pointers<typename Formula::reads>(view, i), coefficients_of(view, t), j - i,
                                          terms + (i - b));
        });
        view.block_sums[b / sum_block] = detail::tile_sum<Isa, abs_term>(terms, end - b, buffer(thread, 1));
      }
    });
    return pairwise_sum<Isa>(view.block_sums, (n + sum_block - 1) / sum_block);
  }

  struct gradient_facts {
    bool bad;
    double norm;  ///< of the scaled gradient; meaningless if bad
  };
  /// One pass over the gradients: any NaN or magnitude beyond 2^56, and the norm.
  template <class View>
  gradient_facts check(View const& view, float grad_scale) {
    index const n = view.tensors->elements();
    std::vector<char> bad(static_cast<std::size_t>(pool_.size()), 0);
    pool_.parallel(n, sum_block, [&](index first, index last, int thread) {
      float* const scaled = buffer(thread, 0);
      bool any = false;
      for (index b = first; b < last; b += sum_block) {
        index const end = smaller(b + sum_block, last);
        if (float const* const whole = plain_gradient(view, b, end)) {
          view.block_sums[b / sum_block] = detail::run_square_sum<Isa>(whole, grad_scale, end - b);
          // Squares only add up: no sum below 2^112 holds the square of anything beyond 2^56, of an Inf or a NaN.
          if (std::bit_cast<std::uint32_t>(view.block_sums[b / sum_block]) < std::bit_cast<std::uint32_t>(0x1p112f)) {
            continue;
          }
        }
        for_tensors(view, b, end, sum_block, [&](index t, index i, index j) {
          float const* const g = gradient(view, t, i, j, buffer(thread, 1));
          any |= detail::run_scaled_gradient<Isa>(g, grad_scale, j - i, scaled + (i - b));
        });
        view.block_sums[b / sum_block] = detail::tile_sum<Isa, square_term>(scaled, end - b, buffer(thread, 1));
      }
      bad[static_cast<std::size_t>(thread)] = any;
    });
    gradient_facts facts{false, 0};
    for (char b : bad) facts.bad |= b != 0;
    if (!facts.bad) facts.norm = std::sqrt(pairwise_sum<Isa>(view.block_sums, (n + sum_block - 1) / sum_block));
    return facts;
  }

  /// A hash of n floats that begin at flat position `at`; hashes of parts add up to the hash of the whole.
  static std::uint64_t hash(float const* x, index n, index at) noexcept {
    std::uint64_t sum = 0;
    for (index i = 0; i < n; ++i) {
      std::uint64_t h = std::bit_cast<std::uint32_t>(x[i]) + static_cast<std::uint64_t>(at + i) * 0x9e3779b97f4a7c15u;
      h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
      sum += h ^ (h >> 32);
    }
    return sum;
  }

  static void copy(float const* from, float* to, index n) noexcept {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  }

 private:
  static constexpr index buffers_ = 6;

  static index smaller(index a, index b) noexcept { return a < b ? a : b; }
  float* buffer(int thread, int which) const noexcept {
    return reinterpret_cast<float*>(workspace_.data()) + (thread * buffers_ + which) * capacity_;
  }

  // f(t, i, j) on the parts [i, j) of [first, last) that lie in one tensor and are at most `most` long.
  template <class View, class F>
  static void for_tensors(View const& view, index first, index last, index most, F const& f) {
    for (index i = first; i < last;) {
      index const t = view.tensors->find(i);
      index const end = smaller(smaller(last, view.tensors->first(t + 1)), i + most);
      f(t, i, end);
      i = end;
    }
  }

  template <class View>
  static coefficients<float> const& coefficients_of(View const& view, index t) noexcept {
    return view.group[(*view.tensors)[t].group];
  }

  // Gradient of [i, j), which lies in tensor t, as float32: in place, or widened into `buffer`.
  template <class View>
  static float const* gradient(View const& view, index t, index i, index j, float* buffer) noexcept {
    gradient_view const& g = (*view.tensors)[t].gradient;
    index const at = i - view.tensors->first(t), n = j - i;
    if (!view.has_gradient || g.size() == 0) {
      std::memset(buffer, 0, static_cast<std::size_t>(n) * sizeof(float));
      return buffer;
    }
    switch (g.type()) {
      case dtype::float32:
        return static_cast<float const*>(g.data()) + at;
      case dtype::bfloat16:
        widen(static_cast<bfloat16 const*>(g.data()) + at, buffer, n);
        return buffer;
      case dtype::float16:
        widen(static_cast<float16 const*>(g.data()) + at, buffer, n);
        return buffer;
    }
    return buffer;
  }

  // Gradient of [i, j) where it lies in memory as float32, in one tensor, in full rows of partial sums; else null.
  template <class View>
  static float const* plain_gradient(View const& view, index i, index j) noexcept {
    index const t = view.tensors->find(i);
    gradient_view const& g = (*view.tensors)[t].gradient;
    bool const plain = view.has_gradient && g.size() > 0 && g.type() == dtype::float32;
    if (!plain || (j - i) % sum_partials != 0 || j > view.tensors->first(t + 1)) return nullptr;
    return static_cast<float const*>(g.data()) + (i - view.tensors->first(t));
  }

  // Pointers to worker and replica fields at flat position i.
  template <class Tags, class View>
  static detail::pointers<Tags> pointers(View const& view, index i) noexcept {
    detail::pointers<Tags> p;
    detail::for_each_tag(Tags{}, [&](auto tag) { p[tag] = view.field[tag] + i; });
    return p;
  }

  template <class Segment, class View, class In, class Out>
  void segment_tile(View const& view, In const& in, Out const& out, index t, index first, index last,
                    [[maybe_unused]] piece const& p, int thread, detail::tally& count) {
    using up = typename Out::quantizer;
    detail::tile_io io;
    if constexpr (!std::is_void_v<up>) {
      // What is to be encoded takes the place of the error, whose line is in the cache anyway.
      if constexpr (up::compensated) io.error = out.carry + first;
      io.compensated = detail::needs_carry<up> ? out.carry + first : buffer(thread, 1);
      io.limit = buffer(thread, 2);
    }
    [[maybe_unused]] index const before = count.active;
    if constexpr (std::is_void_v<typename In::quantizer>) {
      segment_part<Segment, void, up>(view, t, first, last, io, thread, count);
    } else {
      // A tile may lie in several pieces of the incoming exchange.
      for (index i = first; i < last;) {
        piece const from = (*in.cut)[in.cut->find(i)];
        index const end = smaller(last, from.last);
        std::byte const* const message = in.messages + in.cut->offsets()[static_cast<std::size_t>(from.owner)];
        detail::tile_io part = io;
        part.received = message + from.payload;
        part.skip = i - from.first;
        part.scale = scale_at<typename In::quantizer>(message, from);
        if (io.error) part.error += i - first;
        if (io.compensated) part.compensated += i - first;
        if (io.limit) part.limit += i - first;
        segment_part<Segment, typename In::quantizer, up>(view, t, i, end, part, thread, count);
        i = end;
      }
    }
    if constexpr (!std::is_void_v<up>) {
      if constexpr (detail::single_pass<up>) {
        using form = typename Segment::send;
        index const n = last - first;
        std::byte* const message = out.messages + out.cut->offsets()[static_cast<std::size_t>(p.owner)];
        float const scale = group_scale<up>(io.compensated, n, form::masked ? count.active - before : n, thread);
        encode<up>(message, p, first - p.first, n, scale, io.compensated, detail::bounded<form> ? io.limit : nullptr,
                   up::compensated ? out.carry + first : nullptr);
      }
    }
  }

  template <class Segment, class Down, class Up, class View>
  void segment_part(View const& view, index t, index first, index last, detail::tile_io const& io, int thread,
                    detail::tally& count) {
    detail::pointers<typename Segment::all> fields;
    detail::for_each_tag(typename Segment::all{}, [&](auto tag) {
      if constexpr (std::is_same_v<decltype(tag), at::parameter_t>) {
        fields[tag] = (*view.tensors)[t].parameter.data() + (first - view.tensors->first(t));
      } else if constexpr (std::is_same_v<decltype(tag), at::gradient_t>) {
        // Formulas only read it.
        fields[tag] = const_cast<float*>(gradient(view, t, first, last, buffer(thread, 4)));
      } else {
        fields[tag] = view.field[tag] + first;
      }
    });
    detail::run_segment<Isa, Segment, Down, Up>(fields, coefficients_of(view, t), last - first, io, count);
  }

  template <class Form, class Up, class Down, class View>
  void own_tile(View const& view, std::vector<std::byte const*> const& messages, piece const& from, piece const& to,
                std::byte* message, float* carry, index first, index last, int thread) {
    index const n = last - first, at = first - to.first;
    detail::owner_io io;
    io.messages = messages.data();
    io.count = static_cast<index>(messages.size());
    io.scale = from.scale;
    io.payload = from.payload;
    io.skip = at;
    io.error = Down::compensated ? carry + to.own + at : nullptr;
    io.compensated = detail::needs_carry<Down> ? carry + to.own + at : buffer(thread, 1);
    io.limit = buffer(thread, 2);
    detail::pointers<detail::unite<typename Form::own_reads, typename Form::own_writes>> fields;
    detail::for_each_tag(detail::unite<typename Form::own_reads, typename Form::own_writes>{},
                         [&](auto tag) { fields[tag] = view.field[tag] + to.own + at; });
    [[maybe_unused]] index const active =
        detail::run_own<Isa, Form, Up, Down>(pointers<typename Form::bound_reads>(view, first), fields,
                                             coefficients_of(view, view.tensors->find(first)), n, io);
    if constexpr (detail::single_pass<Down>) {
      encode<Down>(message, to, at, n, group_scale<Down>(io.compensated, n, active, thread), io.compensated,
                   detail::bounded<Form> ? io.limit : nullptr, Down::compensated ? carry + to.own + at : nullptr);
    }
  }

  // Pieces [first, last) share a scale; c holds their compensated values, contiguous, and takes their errors.
  template <class Form, class Quantizer, class View, class Message>
  void finish_group(View const& view, partition<Quantizer> const& cut, index first, index last, float* c,
                    Message const& message) {
    index const begin = cut[first].first, end = cut[last - 1].last;
    if (begin == end) return;
    index const n = end - begin;
    std::vector<index> active(static_cast<std::size_t>(pool_.size()), 0);
    pool_.parallel(n, sum_block, [&](index a, index b, int thread) {
      for (index i = a; i < b; i += sum_block) {
        index const m = smaller(sum_block, b - i);
        active[static_cast<std::size_t>(thread)] += bounds<Form>(view, begin + i, m, buffer(thread, 2));
        view.block_sums[i / sum_block] =
            detail::tile_sum<Isa, typename Quantizer::norm::term>(c + i, m, buffer(thread, 3));
      }
    });
    index count = 0;
    for (index each : active) count += each;
    float const scale =
        Quantizer::norm::scale(pairwise_sum<Isa>(view.block_sums, (n + sum_block - 1) / sum_block), count);
    for (index k = first; k < last; ++k) {
      piece const p = cut[k];
      pool_.parallel(p.last - p.first, sum_block, [&](index a, index b, int thread) {
        for (index i = a; i < b; i += sum_block) {
          index const m = smaller(sum_block, b - i);
          float* const values = c + (p.first - begin) + i;
          bounds<Form>(view, p.first + i, m, buffer(thread, 2));
          encode<Quantizer>(message(p.owner), p, i, m, scale, values,
                            detail::bounded<Form> ? buffer(thread, 2) : nullptr,
                            Quantizer::compensated ? values : nullptr);
        }
      });
    }
  }

  template <class Form, class View>
  static index bounds(View const& view, index first, index n, float* limit) {
    index active = 0;
    for_tensors(view, first, first + n, n, [&](index t, index i, index j) {
      active += detail::run_bounds<Isa, Form>(pointers<typename Form::bound_reads>(view, i), coefficients_of(view, t),
                                              j - i, limit + (i - first));
    });
    return active;
  }

  template <class Quantizer>
  static float scale_at(std::byte const* message, piece const& p) noexcept {
    float scale = 0;
    if constexpr (Quantizer::has_scale) std::memcpy(&scale, message + p.scale, sizeof scale);
    return scale;
  }

  // Scale of the tile c of one block.
  template <class Quantizer>
  float group_scale(float const* c, index n, index active, int thread) {
    if constexpr (!Quantizer::has_scale) {
      return 0;
    } else {
      index const blocks = (n + sum_block - 1) / sum_block;
      float* const sums = buffer(thread, 5);
      for (index b = 0; b < blocks; ++b) {
        sums[b] = detail::tile_sum<Isa, typename Quantizer::norm::term>(
            c + b * sum_block, smaller(sum_block, n - b * sum_block), buffer(thread, 3));
      }
      return Quantizer::norm::scale(blocks == 1 ? static_cast<double>(sums[0]) : pairwise_sum<Isa>(sums, blocks),
                                    active);
    }
  }

  // Encodes c, elements [at, at + n) of piece p, and leaves the error where asked; c and error may be one array.
  template <class Quantizer>
  static void encode(std::byte* message, piece const& p, index at, index n, float scale, float const* c,
                     float const* limit, float* error) {
    if constexpr (Quantizer::has_scale) {
      if (at == 0) std::memcpy(message + p.scale, &scale, sizeof scale);
    }
    detail::run_encode<Isa, Quantizer>(c, limit, error, n, scale, message + p.payload + Quantizer::payload_bytes(at));
  }

  detail::thread_pool pool_;
  index capacity_ = 0;
  memory workspace_;
};

/// The CPU with the instruction set of the target flags.
using cpu_backend = basic_cpu_backend<>;
static_assert(backend<cpu_backend>);

}  // namespace zoadam
