// SPDX-License-Identifier: Apache-2.0
// The CPU backend below its loops over all elements: memory, and the work on one tile or one group.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "zoadam/backend/cpu_kernels.hpp"
#include "zoadam/backend/thread_pool.hpp"
#include "zoadam/backend/view.hpp"
#include "zoadam/quantizer/identity.hpp"

namespace zoadam::detail {

/// Zeroed memory, aligned to 64 bytes.
class cpu_memory {
 public:
  cpu_memory() = default;
  explicit cpu_memory(index bytes)
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

/// Fields of slice values that one loop reads at most.
inline constexpr int most_slice_fields = 3;

/// Sums over slices side by side, in the order of every sum, term by term.
class slice_partials {
 public:
  static constexpr index width = 16;

  void clear(index slice) noexcept {
    for (f64& each : blocks_[slice]) each = f64(0.0);
    clear_block(slice);
  }
  /// Term k of a slice.
  void add(index slice, index k, float term) noexcept {
    f32& partial = terms_[slice][k % sum_partials];
    partial = partial + f32(term);
  }
  void end_block(index slice, index block) noexcept {
    f64& partial = blocks_[slice][block % sum_partials];
    partial = partial + f64(pairwise(terms_[slice]));
    clear_block(slice);
  }
  f64 total(index slice) noexcept { return pairwise(blocks_[slice]); }

 private:
  void clear_block(index slice) noexcept {
    for (f32& each : terms_[slice]) each = f32(0.0f);
  }
  template <class Real>
  static Real pairwise(Real (&p)[sum_partials]) noexcept {
    for (index stride = 1; stride < sum_partials; stride *= 2) {
      for (index i = 0; i < sum_partials; i += 2 * stride) p[i] = p[i] + p[i + stride];
    }
    return p[0];
  }
  f32 terms_[width][sum_partials];
  f64 blocks_[width][sum_partials];
};

template <class Isa>
class cpu_tiles {
 protected:
  explicit cpu_tiles(int threads) : pool_(threads) {}

  void reserve_tiles(index elements) {
    capacity_ = (elements + sum_partials - 1) / sum_partials * sum_partials;
    workspace_ = cpu_memory(tile_bytes());
    tallies_.resize(static_cast<std::size_t>(pool_.size()));
  }
  /// Working memory for slices, once tiles have theirs.
  void reserve_slices() {
    if (!partials_.empty()) return;
    partials_.resize(static_cast<std::size_t>(pool_.size()));
    slice_values_ = cpu_memory(slice_value_bytes());
  }
  index slice_bytes() const noexcept {
    return partials_.empty() ? 0
                             : static_cast<index>(partials_.size() * sizeof(slice_partials)) + slice_value_bytes();
  }
  index tile_bytes() const noexcept { return pool_.size() * capacity_ * buffers_ * index{sizeof(float)}; }

  /// Calls f with the counts of every thread, from zero, and returns their sum.
  template <class Loops>
  tally counted(Loops const& f) {
    for (tally& each : tallies_) each = {};
    f();
    tally all;
    for (tally const& each : tallies_) {
      all.active += each.active;
      all.waiting += each.waiting;
      all.bad |= each.bad;
    }
    return all;
  }
  tally& tally_of(int thread) noexcept { return tallies_[static_cast<std::size_t>(thread)]; }

  static index smaller(index a, index b) noexcept { return a < b ? a : b; }
  index slice_value_bytes() const noexcept {
    return pool_.size() * capacity_ * most_slice_fields * index{sizeof(float)};
  }
  float* slice_buffer(int thread, int which) const noexcept {
    return reinterpret_cast<float*>(slice_values_.data()) + (thread * most_slice_fields + which) * capacity_;
  }
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
    if (view.now->bad || g.size() == 0) {
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
    bool const plain = !view.now->bad && g.size() > 0 && g.type() == dtype::float32;
    if (!plain || (j - i) % sum_partials != 0 || j > view.tensors->first(t + 1)) return nullptr;
    return static_cast<float const*>(g.data()) + (i - view.tensors->first(t));
  }

  // Pointers to worker and replica fields at flat position i.
  template <class Tags, class View>
  static pointers<Tags> fields_at(View const& view, index i) noexcept {
    pointers<Tags> p;
    for_each_tag(Tags{}, [&](auto tag) { p[tag] = view.field[tag] + i; });
    return p;
  }

  // Where an owner's formula finds a value of flat position i in tensor t, which is `own` among the owner's elements.
  template <class Tag, class View>
  static float* owner_place(View const& view, [[maybe_unused]] index t, [[maybe_unused]] index i,
                            [[maybe_unused]] index own) {
    if constexpr (!std::is_same_v<Tag, at::parameter_t>) {
      return view.field[Tag{}] + (View::template at_owner<Tag> ? own : i);
    } else if constexpr (View::has_master) {
      return view.field[at::master] + own;
    } else {
      return (*view.tensors)[t].parameter.data() + (i - view.tensors->first(t));
    }
  }

  template <class Segment, class View, class In, class Out>
  void segment_tile(View const& view, In const& in, Out const& out, index t, index first, index last,
                    [[maybe_unused]] piece const& p, int thread, tally& count) {
    using up = typename Out::quantizer;
    tile_io io;
    if constexpr (!std::is_void_v<up>) {
      // What is to be encoded takes the place of the error, whose line is in the cache anyway.
      if constexpr (up::compensated) io.error = out.carry + first;
      io.compensated = needs_carry<up> ? out.carry + first : buffer(thread, 1);
      io.limit = buffer(thread, 2);
    }
    if constexpr (Segment::reduces) {
      io.terms = buffer(thread, 0);
      io.stride = capacity_;
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
        tile_io part = io;
        if constexpr (sparse<typename In::quantizer>) {
          float* const values = buffer(thread, 3);
          run_scatter<Isa, typename In::quantizer>(message + from.payload, from.last - from.first, i - from.first,
                                                   end - i, values);
          part.received = reinterpret_cast<std::byte const*>(values);
        } else {
          part.received = message + from.payload;
          part.skip = i - from.first;
          part.scale = scale_at<typename In::quantizer>(message, from);
        }
        if (io.error) part.error += i - first;
        if (io.compensated) part.compensated += i - first;
        if (io.limit) part.limit += i - first;
        if (io.terms) part.terms += i - first;
        using received =
            std::conditional_t<sparse<typename In::quantizer>, identity_quantizer, typename In::quantizer>;
        segment_part<Segment, received, up>(view, t, i, end, part, thread, count);
        i = end;
      }
    }
    if constexpr (!std::is_void_v<up>) {
      if constexpr (single_pass<up>) {
        using form = typename Segment::send;
        index const n = last - first;
        std::byte* const message = out.messages + out.cut->offsets()[static_cast<std::size_t>(p.owner)];
        float const scale = group_scale<up>(io.compensated, n, form::masked ? count.active - before : n, thread);
        encode<form, up>(message, p, first - p.first, n, scale, io.compensated, io.limit,
                         up::compensated ? out.carry + first : nullptr);
      }
    }
  }

  template <class Segment, class Down, class Up, class View>
  void segment_part(View const& view, index t, index first, index last, tile_io const& io, int thread, tally& count) {
    static_assert(size_of<typename Segment::slices> <= most_slice_fields,
                  "zoadam: a loop reads at most 3 fields of slice values");
    pointers<typename Segment::all> fields;
    for_each_tag(typename Segment::all{}, [&](auto tag) {
      if constexpr (std::is_same_v<decltype(tag), at::parameter_t>) {
        // Where owners have the masters, a tensor may have nothing but a working copy.
        float* const x = (*view.tensors)[t].parameter.data();
        fields[tag] = View::has_master && x == nullptr ? buffer(thread, 5) : x + (first - view.tensors->first(t));
      } else if constexpr (std::is_same_v<decltype(tag), at::gradient_t>) {
        // Formulas only read it.
        fields[tag] = const_cast<float*>(gradient(view, t, first, last, buffer(thread, 4)));
      } else if constexpr (is_tensor_scalar<decltype(tag)>) {
        fields[tag] = view.field[tag] + t;
      } else if constexpr (is_slice_value<decltype(tag)>) {
        fields[tag] = slice_buffer(thread, place_of<decltype(tag)>(typename Segment::slices{}));
        least_of_slices(view.slices[tag], view.field[tag], t, first - view.tensors->first(t),
                        last - view.tensors->first(t), fields[tag]);
      } else if constexpr (is_transient<decltype(tag)>) {
        fields[tag] = nullptr;
      } else {
        fields[tag] = view.field[tag] + first;
      }
    });
    run_segment<Isa, Segment, Down, Up>(fields, coefficients_of(view, t), last - first, io, count);
    if constexpr (contains<typename Segment::stores, at::parameter_t>) {
      (*view.tensors)[t].working.visit([&](auto* working) {
        narrow(fields[at::parameter], working + (first - view.tensors->first(t)), last - first);
      });
    }
  }

  // For elements [first, last) of tensor t the least of the values of their slices.
  static void least_of_slices(slice_list const& slices, float const* values, index t, index first, index last,
                              float* to) noexcept {
    for (index s = slices.begin[t]; s < slices.begin[t + 1]; ++s) {
      bool const begins = s == slices.begin[t];
      for_slice_runs(slices.all[s], first, last, [&](index i, index n, index place, index step) {
        for (index j = 0; j < n; ++j) {
          float const value = values[place + j * step];
          float& least = to[i - first + j];
          least = begins ? value : min(f32(value), f32(least)).v;
        }
      });
    }
  }

  // Maxima over slices take in the terms, none below +0, of elements [first, first + n) of tensor t.
  template <class View>
  void raise_maxima(View const& view, slice_list const& slices, index t, index first, index n, int thread) {
    float const* const terms = buffer(thread, 0);
    // Floats that are not negative are in the order of their bits; threads may meet at a slice.
    auto const raise = [&](index place, float term) {
      auto* const at = reinterpret_cast<std::uint32_t*>(view.slice_maxima + place);
      auto const bits = std::bit_cast<std::uint32_t>(term);
      std::uint32_t now = __atomic_load_n(at, __ATOMIC_RELAXED);
      while (now < bits && !__atomic_compare_exchange_n(at, &now, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      }
    };
    for (index s = slices.begin[t]; s < slices.begin[t + 1]; ++s) {
      for_slice_runs(slices.all[s], first, first + n, [&](index i, index count, index place, index step) {
        float const* const from = terms + (i - first);
        if (step == 0) return raise(place, tile_max<Isa>(from, count));
        for (index j = 0; j < count; ++j) raise(place + j, from[j]);
      });
    }
  }

  // Sums over slices [first, last) of a slicing, which lie side by side; sums(slice, total) takes them.
  template <class Segment, class View, class In, class Take>
  void sum_slices(View const& view, In const& in, placed_slicing const& s, index first, index last, int thread,
                  Take const& take) {
    slice_partials& p = partials_[static_cast<std::size_t>(thread)];
    index const width = last - first, n = s.size(), base = view.tensors->first(s.tensor);
    for (index g = 0; g < width; ++g) p.clear(g);
    for (index k = 0; k < n;) {
      // One run per step of k where neighbours are summed together, else a piece of a block.
      index const run =
          s.stride == 1 ? 1 : smaller(smaller(s.stride - k % s.stride, n - k), sum_block - k % sum_block);
      index const begin = base + s.element(first, k), length = s.stride == 1 ? width : run;
      segment_tile<Segment>(view, in, no_messages{}, s.tensor, begin, begin + length, piece{}, thread,
                            tally_of(thread));
      float const* const terms = buffer(thread, 0);
      for (index j = 0; j < length; ++j) p.add(s.stride == 1 ? j : 0, s.stride == 1 ? k : k + j, terms[j]);
      k += run;
      if (k % sum_block == 0 || k == n) {
        for (index g = 0; g < width; ++g) p.end_block(g, (k - 1) / sum_block);
      }
    }
    for (index g = 0; g < width; ++g) take(first + g, p.total(g));
  }

  // The same for all slices of a slicing.
  template <class Segment, class View, class In, class Take>
  void for_slice_sums(View const& view, In const& in, placed_slicing const& s, Take const& take) {
    // Neighbours within a row of slices.
    index const together = s.stride == 1 ? smaller(s.count, slice_partials::width) : 1;
    index const groups = (s.count + together - 1) / together;
    pool_.parallel(s.values / s.count * groups, 1, [&](index first, index last, int thread) {
      for (index i = first; i < last; ++i) {
        index const row = i / groups * s.count, begin = i % groups * together;
        sum_slices<Segment>(view, in, s, row + begin, row + smaller(begin + together, s.count), thread, take);
      }
    });
  }

  // Block sums and maxima of the n terms that segment_tile() has left.
  template <class Formula, class View>
  void reduce_block(View const& view, index b, index n, int thread) {
    float* to = view.block_sums + b;
    int which = 0;
    for_each_tag(typename Formula::sums{}, [&](auto) {
      *to = tile_sum<Isa, plain_term>(buffer(thread, which++), n, buffer(thread, most_results));
      to += view.tensors->blocks();
    });
    for_each_tag(typename Formula::maxima{}, [&](auto) {
      *to = tile_max<Isa>(buffer(thread, which++), n);
      to += view.tensors->blocks();
    });
  }

  // Tensor t's sums in float64, and its maxima.
  template <class Formula, class View>
  registers<f64, typename reducing<Formula>::results> results_of(View const& view, index t) {
    registers<f64, typename reducing<Formula>::results> all;
    float const* from = view.block_sums + view.tensors->first_block(t);
    index const n = view.tensors->first_block(t + 1) - view.tensors->first_block(t);
    for_each_tag(typename Formula::sums{}, [&](auto tag) {
      all[tag] = f64(pairwise_sum<Isa>(from, n));
      from += view.tensors->blocks();
    });
    for_each_tag(typename Formula::maxima{}, [&](auto tag) {
      all[tag] = f64(static_cast<double>(tile_max<Isa>(from, n)));
      from += view.tensors->blocks();
    });
    return all;
  }

  template <class Form, class Up, class Down, class View>
  void own_tile(View const& view, std::vector<std::byte const*> const& messages, piece const& from, piece const& to,
                std::byte* message, float* carry, index first, index last, int thread) {
    index const n = last - first, at = first - to.first;
    owner_io io;
    io.messages = messages.data();
    io.count = static_cast<index>(messages.size());
    io.scale = from.scale;
    io.payload = from.payload;
    io.skip = at;
    if constexpr (sparse<Up>) {
      float* const values = buffer(thread, 4);
      float* const sum = buffer(thread, 0);
      for (index i = 0; i < io.count; ++i) {
        run_scatter<Isa, Up>(io.messages[i] + from.payload, from.last - from.first, at, n, values);
        run_add<Isa, Form>(fields_at<typename Form::bound_reads>(view, first),
                           coefficients_of(view, view.tensors->find(first)), n, values, sum, i == 0);
      }
      io.sum = sum;
    }
    io.error = Down::compensated ? carry + to.own + at : nullptr;
    io.compensated = needs_carry<Down> ? carry + to.own + at : buffer(thread, 1);
    io.limit = buffer(thread, 2);
    index const t = view.tensors->find(first);
    pointers<unite<typename Form::own_reads, typename Form::own_writes>> fields;
    for_each_tag(unite<typename Form::own_reads, typename Form::own_writes>{},
                 [&](auto tag) { fields[tag] = owner_place<decltype(tag)>(view, t, first, to.own + at); });
    [[maybe_unused]] index const active = run_own<Isa, Form, Up, Down>(
        fields_at<typename Form::bound_reads>(view, first), fields, coefficients_of(view, t), n, io);
    if constexpr (single_pass<Down>) {
      encode<Form, Down>(message, to, at, n, group_scale<Down>(io.compensated, n, active, thread), io.compensated,
                         io.limit, Down::compensated ? carry + to.own + at : nullptr);
    }
  }

  // Pieces [first, last) share a scale; c holds their compensated values, contiguous, and takes their errors.
  template <class Form, class Quantizer, class View, class Message>
  void finish_group(View const& view, partition<Quantizer> const& cut, index first, index last, float* c,
                    Message const& message) {
    index const begin = cut[first].first, end = cut[last - 1].last;
    if (begin == end) return;
    index const n = end - begin;
    index const active = counted([&] {
                           pool_.parallel(n, sum_block, [&](index a, index b, int thread) {
                             for (index i = a; i < b; i += sum_block) {
                               index const m = smaller(sum_block, b - i);
                               tally_of(thread).active += bounds<Form>(view, begin + i, m, buffer(thread, 2));
                               view.block_sums[i / sum_block] =
                                   tile_sum<Isa, typename Quantizer::norm::term>(c + i, m, buffer(thread, 3));
                             }
                           });
                         }).active;
    float const scale =
        Quantizer::norm::scale(pairwise_sum<Isa>(view.block_sums, (n + sum_block - 1) / sum_block), active);
    for (index k = first; k < last; ++k) {
      piece const p = cut[k];
      pool_.parallel(p.last - p.first, sum_block, [&](index a, index b, int thread) {
        for (index i = a; i < b; i += sum_block) {
          index const m = smaller(sum_block, b - i);
          float* const values = c + (p.first - begin) + i;
          bounds<Form>(view, p.first + i, m, buffer(thread, 2));
          encode<Form, Quantizer>(message(p.owner), p, i, m, scale, values, buffer(thread, 2),
                                  Quantizer::compensated ? values : nullptr);
        }
      });
    }
  }

  template <class Form, class View>
  static index bounds(View const& view, index first, index n, float* limit) {
    index active = 0;
    for_tensors(view, first, first + n, n, [&](index t, index i, index j) {
      active += run_bounds<Isa, Form>(fields_at<typename Form::bound_reads>(view, i), coefficients_of(view, t), j - i,
                                      limit + (i - first));
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
        sums[b] = tile_sum<Isa, typename Quantizer::norm::term>(
            c + b * sum_block, smaller(sum_block, n - b * sum_block), buffer(thread, 3));
      }
      return Quantizer::norm::scale(blocks == 1 ? static_cast<double>(sums[0]) : pairwise_sum<Isa>(sums, blocks),
                                    active);
    }
  }

  // Encodes c, elements [at, at + n) of piece p, and leaves the error where asked; c and error may be one array.
  template <class Form, class Quantizer>
  static void encode(std::byte* message, piece const& p, index at, index n, float scale, float const* c,
                     float const* limit, float* error) {
    if constexpr (Quantizer::has_scale) {
      if (at == 0) std::memcpy(message + p.scale, &scale, sizeof scale);
    }
    run_encode<Isa, Quantizer, bounds_of<Form>>(c, limit, error, n, scale,
                                                message + p.payload + Quantizer::payload_bytes(at));
  }

  thread_pool pool_;

 private:
  static constexpr index buffers_ = 6;  // per thread

  index capacity_ = 0;  // elements of a buffer
  cpu_memory workspace_;
  std::vector<tally> tallies_;
  std::vector<slice_partials> partials_;  // one per thread where there are slices
  cpu_memory slice_values_;               // as many tiles per thread as a loop reads fields of slice values
};

}  // namespace zoadam::detail
