// SPDX-License-Identifier: Apache-2.0
// Loops on the CPU: tiles that stay in the first-level cache, SIMD lanes, threads.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "zoadam/backend/cpu_tiles.hpp"
#include "zoadam/concepts/backend.hpp"
#include "zoadam/detail/agreement.hpp"
#include "zoadam/options.hpp"

namespace zoadam {

/// @tparam Isa  instruction set of the kernels; the target flags choose it for cpu_backend
///
/// Every fused loop works tile by tile: compute a tile, sum it, encode it, keep its error, while it is in the cache,
/// so that memory sees one pass. Results do not depend on Isa, on the number of threads, or on alignment.
template <class Isa = isa::native>
class basic_cpu_backend : detail::cpu_tiles<Isa> {
 public:
  explicit basic_cpu_backend(int threads = 1) : detail::cpu_tiles<Isa>(threads) {}

  using memory = detail::cpu_memory;
  memory allocate(index bytes) const { return memory(bytes); }

  /// Working memory for tiles of that many elements, per thread.
  void reserve(index elements) { this->reserve_tiles(elements); }
  index workspace_bytes() const noexcept { return this->tile_bytes() + this->slice_bytes(); }

  /// Where loops find the table, which outlives them.
  detail::slice_list place(detail::slice_table const& table) {
    this->reserve_slices();
    return table.list();
  }

  // ---- numbers of a step; see detail/progress.hpp ----

  template <class View>
  void start(View const& view) noexcept {
    *view.now = {};
  }
  template <class View>
  void begin(View const& view, double gradient_scale, std::vector<detail::group_numbers> const& numbers) noexcept {
    detail::begin_step(*view.now, gradient_scale);
    std::memcpy(view.numbers, numbers.data(), numbers.size() * sizeof numbers[0]);
  }
  /// Counts an update where one is due, and makes the coefficients.
  template <class View>
  void refresh(View const& view, detail::advance when) noexcept {
    detail::advance_moments(*view.now, view.hyper, when);
    for (index g = 0; g < view.groups; ++g) {
      view.group[g] = detail::coefficients_now(*view.now, view.hyper, view.numbers[g]);
    }
  }
  /// See detail::learn_missing().
  template <class View, class Other>
  void learn_missing(View const& view, Other const& from, bool alone) noexcept {
    detail::learn_missing(*view.now, *from.now, alone);
  }
  template <class View>
  detail::progress const& now(View const& view) const noexcept {
    return *view.now;
  }
  template <class View, class Transport>
  step_report report(View const& view, step_report const& known, Transport const&) const noexcept {
    return detail::complete(known, *view.now);
  }
  /// Before a call: what has gone wrong since the last one; after a failure of the transport: what was behind it; at
  /// construction: a transport that cannot serve this backend. Here nothing goes on between calls.
  static void poll(char const*) noexcept {}
  static void explain() noexcept {}
  template <class Transport>
  static void expect_transport(Transport const&) noexcept {}
  /// All-gather of a few bytes of the host.
  template <class Transport>
  void all_gather(Transport& link, std::span<index const> offsets, std::byte const* send, std::byte* receive) const {
    link.all_gather(offsets, send, receive);
  }

  /// Headers of an exchange: in front of every message up, of this owner's message down; and those received, which
  /// must equal this rank's own. Errors: mismatch_error.
  template <class View, class Cut>
  void write_headers_up(View const& view, message_header const& mine, bool carries_gradient, Cut const& cut,
                        std::byte* messages) noexcept {
    message_header const h = detail::header_up(mine, *view.now, carries_gradient);
    for (int j = 0; j < cut.ranks(); ++j) detail::write_header(messages + offset(cut, j), h);
  }
  template <class View, class Cut>
  void read_headers_up(View const& view, message_header const& mine, Cut const& cut, int me,
                       std::byte const* messages) {
    index const stride = offset(cut, me + 1) - offset(cut, me);
    detail::begin_headers_up(*view.now);
    for (int i = 0; i < cut.ranks(); ++i) {
      message_header const theirs = detail::read_header(messages + i * stride);
      detail::expect_same(detail::take_header_up(*view.now, view.contributes[i], theirs, mine), i);
    }
    detail::end_headers_up(*view.now, mine);
  }
  template <class View>
  void write_header_down(View const& view, message_header const& mine, std::byte* message) noexcept {
    detail::write_header(message, detail::header_down(mine, *view.now));
  }
  template <class View, class Cut>
  void read_headers_down(View const& view, message_header const& mine, Cut const& cut, std::byte const* messages) {
    for (int j = 0; j < cut.ranks(); ++j) {
      message_header const theirs = detail::read_header(messages + offset(cut, j));
      detail::expect_same(detail::check_header_down(*view.now, theirs, mine), j);
    }
  }

  // ---- loops ----

  /// One fused loop over all elements: the result of an exchange comes in, passes run, the next exchange's messages
  /// go out. `in` and `out` are incoming/outgoing, or no_messages.
  template <class Segment, class View, class In, class Out>
  void run(View const& view, In const& in, Out const& out) {
    if constexpr (In::optional) {
      if (view.now->contributions == 0) {
        return run<typename Segment::without_receive>(view, detail::no_messages{}, out);
      }
    }
    if constexpr (Out::optional) {
      if (view.now->bad) return run<typename Segment::without_send>(view, in, detail::no_messages{});
    }
    if constexpr (!Segment::empty) view.now->waiting += loop<Segment>(view, in, out).waiting;
  }

 private:
  template <class Segment, class View, class In, class Out>
  detail::tally loop(View const& view, In const& in, Out const& out) {
    using up = typename Out::quantizer;
    constexpr bool sends = !std::is_void_v<up>;
    // Parts of threads begin where groups begin.
    auto const part = [&](index first, index last, int thread) {
      detail::tally& count = tally_of(thread);
      for (index i = first; i < last;) {
        index const t = view.tensors->find(i);
        index end = smaller(smaller(last, view.tensors->first(t + 1)), i + detail::tile_of<up>);
        if constexpr (sends) {
          if constexpr (detail::single_pass<up>) {
            piece const p = (*out.cut)[out.cut->find(i)];
            end = smaller(end, p.last);
            this->template segment_tile<Segment>(view, in, out, t, i, end, p, thread, count);
            i = end;
            continue;
          }
        }
        this->template segment_tile<Segment>(view, in, out, t, i, end, piece{}, thread, count);
        i = end;
      }
    };
    detail::tally const all = this->counted([&] {
      if constexpr (Segment::reduces) {
        layout const& l = *view.tensors;
        pool_.parallel(l.blocks(), 1, [&](index first, index last, int thread) {
          for (index b = first, t = l.find_block(first); b < last; ++b) {
            while (b >= l.first_block(t + 1)) ++t;
            index const i = l.first(t) + (b - l.first_block(t)) * sum_block;
            index const end = smaller(i + sum_block, l.first(t + 1));
            this->template segment_tile<Segment>(view, in, out, t, i, end, piece{}, thread, tally_of(thread));
            if constexpr (detail::is_slice_reducing<typename Segment::send>) {
              detail::for_each_tag(typename Segment::send::slices{}, [&](auto tag) {
                this->raise_maxima(view, view.slices[tag], t, i - l.first(t), end - i, thread);
              });
            } else {
              this->template reduce_block<typename Segment::send::formula>(view, b, end - i, thread);
            }
          }
        });
      } else if constexpr (detail::blockwise<up>) {
        pool_.parallel(out.cut->pieces(), 1, [&](index first, index last, int thread) {
          part((*out.cut)[first].first, (*out.cut)[last - 1].last, thread);
        });
      } else {
        pool_.parallel(view.tensors->elements(), 64, part);
      }
    });
    if constexpr (sends) {
      if constexpr (!detail::single_pass<up>) {
        auto const message = [&](int owner) {
          return out.messages + out.cut->offsets()[static_cast<std::size_t>(owner)];
        };
        for (index k = 0; k < out.cut->pieces(); k += out.cut->ranks()) {
          this->template finish_group<typename Segment::send, up>(view, *out.cut, k, k + out.cut->ranks(),
                                                                  out.carry + (*out.cut)[k].first, message);
        }
      }
    }
    return all;
  }

 public:
  /// The owner's side of an exchange: decode the ranks' messages, mean in rank order over the contributing ones, own
  /// formula, encode. `received` holds the messages one after the other. Does nothing if nobody contributed, unless
  /// the form is unconditional.
  template <class Form, class Up, class Down, class View>
  void own(View const& view, partition<Up> const& up, partition<Down> const& down, int me, std::byte const* received,
           std::byte* message, float* carry) {
    index const stride = offset(up, me + 1) - offset(up, me);
    counted_.clear();
    for (int i = 0; i < up.ranks(); ++i) {
      if (view.contributes[i]) counted_.push_back(received + i * stride);
    }
    if (counted_.empty() && !Form::unconditional) return;
    auto const tile = [&](piece const& from, piece const& to, index first, index last, int thread) {
      this->template own_tile<Form, Up, Down>(view, counted_, from, to, message, carry, first, last, thread);
    };
    if constexpr (detail::blockwise<Down>) {
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
          this->for_tensors(view, to.first + first, to.first + last, detail::tile_of<Down>,
                            [&](index, index a, index b) { tile(from, to, a, b, thread); });
        });
        if constexpr (!detail::single_pass<Down>) {
          index const k = down.find(to.first);
          if (to.last > to.first) {
            this->template finish_group<Form, Down>(view, down, k, k + 1, carry + to.own,
                                                    [&](int) { return message; });
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
        this->for_tensors(view, b, end, sum_block, [&](index t, index i, index j) {
          detail::run_terms<Isa, Formula>(this->template fields_at<typename Formula::reads>(view, i),
                                          this->coefficients_of(view, t), j - i, terms + (i - b));
        });
        view.block_sums[b / sum_block] = detail::tile_sum<Isa, abs_term>(terms, end - b, buffer(thread, 1));
      }
    });
    return pairwise_sum<Isa>(view.block_sums, (n + sum_block - 1) / sum_block);
  }

  /// One loop of a segment that ends in the terms of a tensor_reduction, then its finish() for every tensor.
  template <class Segment, class View, class In, class Formula>
  void reduce_tensors(View const& view, In const& in, Formula const& formula) {
    run<Segment>(view, in, detail::no_messages{});
    layout const& l = *view.tensors;
    index filled = 0;
    for (index t = 0; t < l.size(); ++t) {
      index const n = l.first(t + 1) - l.first(t);
      filled += n > 0;
      detail::update_scalars<typename Formula::scalars>(
          view.field, t, this->coefficients_of(view, t), [&](auto& scalars, auto const& k) {
            formula.finish(this->template results_of<Formula>(view, t), f64(static_cast<double>(n)), scalars, k);
          });
    }
    if constexpr (requires { typename Formula::united; }) {
      using united = typename Formula::united;
      detail::registers<f64, united> all;
      detail::for_each_tag(united{}, [&](auto tag) { all[tag] = f64(pairwise_sum<Isa>(view.field[tag], l.size())); });
      for (index t = 0; t < l.size(); ++t) {
        detail::update_scalars<typename Formula::scalars>(
            view.field, t, this->coefficients_of(view, t),
            [&](auto& scalars, auto const& k) { formula.unite(all, f64(static_cast<double>(filled)), scalars, k); });
      }
    }
  }

  /// The loops of a segment that ends in the terms of a slice_reduction, then its finish() for every slice.
  template <class Segment, class View, class In, class Formula>
  void reduce_slices(View const& view, In const& in, Formula const& formula) {
    if constexpr (In::optional) {
      if (view.now->contributions == 0) {
        return reduce_slices<typename Segment::without_receive>(view, detail::no_messages{}, formula);
      }
    }
    auto const finish = [&](auto tag, detail::placed_slicing const& s, index slice, f64 result) {
      float& value = view.field[tag][s.first + slice];
      value = formula
                  .finish(result, f64(static_cast<double>(s.size())), f32(value),
                          this->coefficients_of(view, s.tensor).template as<f32>())
                  .v;
    };
    detail::for_each_tag(typename Formula::slices{}, [&](auto tag) {
      detail::slice_list const& slices = view.slices[tag];
      if constexpr (Formula::maximum) {
        std::memset(view.slice_maxima, 0, static_cast<std::size_t>(slices.values) * sizeof(float));
        run<Segment>(view, in, detail::no_messages{});
      }
      for (index i = 0; i < slices.count; ++i) {
        detail::placed_slicing const& s = slices.all[i];
        if constexpr (Formula::maximum) {
          for (index j = 0; j < s.values; ++j) {
            finish(tag, s, j, f64(static_cast<double>(view.slice_maxima[s.first + j])));
          }
        } else {
          this->template for_slice_sums<Segment>(view, in, s,
                                                 [&](index slice, f64 sum) { finish(tag, s, slice, sum); });
        }
      }
    });
  }

  /// One pass over the gradients: any NaN or magnitude beyond 2^56, and the norm.
  template <class View>
  void check(View const& view) {
    index const n = view.tensors->elements();
    float const grad_scale = static_cast<float>(view.now->gradient_scale);
    bool const bad = this->counted([&] {
                           pool_.parallel(n, sum_block, [&](index first, index last, int thread) {
                             float* const scaled = buffer(thread, 0);
                             bool any = false;
                             for (index b = first; b < last; b += sum_block) {
                               index const end = smaller(b + sum_block, last);
                               if (float const* const whole = this->plain_gradient(view, b, end)) {
                                 view.block_sums[b / sum_block] =
                                     detail::run_square_sum<Isa>(whole, grad_scale, end - b);
                                 // Squares only add up: no sum below 2^112 holds the square of anything beyond 2^56,
                                 // of an Inf or a NaN.
                                 if (std::bit_cast<std::uint32_t>(view.block_sums[b / sum_block]) <
                                     std::bit_cast<std::uint32_t>(0x1p112f)) {
                                   continue;
                                 }
                               }
                               this->for_tensors(view, b, end, sum_block, [&](index t, index i, index j) {
                                 float const* const g = this->gradient(view, t, i, j, buffer(thread, 1));
                                 any |= detail::run_scaled_gradient<Isa>(g, grad_scale, j - i, scaled + (i - b));
                               });
                               view.block_sums[b / sum_block] =
                                   detail::tile_sum<Isa, square_term>(scaled, end - b, buffer(thread, 1));
                             }
                             tally_of(thread).bad = any;
                           });
                         })
                         .bad;
    double const squares = bad ? 0.0 : pairwise_sum<Isa>(view.block_sums, (n + sum_block - 1) / sum_block);
    detail::judge_gradient(*view.now, bad, squares, view.hyper.max_norm);
  }

  /// A hash of n values, as float32, that begin at flat position `at`; hashes of parts add up to the hash of the
  /// whole.
  template <class Element>
  static std::uint64_t hash(Element const* x, index n, index at) noexcept {
    std::uint64_t sum = 0;
    for (index i = 0; i < n; ++i) {
      sum += detail::hash_of_element(std::bit_cast<std::uint32_t>(to_float(x[i])), at + i);
    }
    return sum;
  }

  static void copy(float const* from, float* to, index n) noexcept {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  }
  static void widen(working_view const& from, float* to) noexcept {
    from.visit([&](auto const* values) { zoadam::widen(values, to, from.size()); });
  }
  static void narrow(float const* from, working_view const& to) noexcept {
    to.visit([&](auto* values) { zoadam::narrow(from, values, to.size()); });
  }

 private:
  template <class Cut>
  static index offset(Cut const& cut, int rank) noexcept {
    return cut.offsets()[static_cast<std::size_t>(rank)];
  }

  using tiles = detail::cpu_tiles<Isa>;
  using tiles::buffer, tiles::pool_, tiles::smaller, tiles::tally_of;

  std::vector<std::byte const*> counted_;  // messages that enter the present mean
};

/// The CPU with the instruction set of the target flags.
using cpu_backend = basic_cpu_backend<>;
static_assert(backend<cpu_backend>);

}  // namespace zoadam
