// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: loops of a program as kernels on the user's stream. No call but construction, reduce(), hash(),
// now() and explain() waits for the device.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "zoadam/backend/cuda.hpp"
#include "zoadam/backend/cuda_kernels.cuh"
#include "zoadam/backend/cuda_numbers.cuh"
#include "zoadam/backend/cuda_tables.hpp"
#include "zoadam/concepts/backend.hpp"
#include "zoadam/detail/agreement.hpp"

namespace zoadam {
namespace detail {

/// The one place where kernels are launched. Errors: cuda_error.
template <class... Parameters>
void launch(char const* name, void (*kernel)(Parameters...), index blocks, int threads, std::size_t shared,
            cudaStream_t stream, std::type_identity_t<Parameters>... arguments) {
  constexpr index most = index{1} << 20;  // kernels stride over what is beyond
  dim3 const grid(static_cast<unsigned>(blocks < most ? blocks : most)), block(static_cast<unsigned>(threads));
#if defined(ZOADAM_SIMT)
  cudaError_t const status = simt::launch(kernel, grid, block, shared, stream, arguments...);
#else
  void* pointers[] = {static_cast<void*>(&arguments)...};
  cudaError_t const status =
      cudaLaunchKernel(reinterpret_cast<void const*>(kernel), grid, block, pointers, shared, stream);
#endif
  if (status != cudaSuccess) throw cuda_error((std::string("launch of ") + name).c_str(), status);
}

/// Device tables of one exchange.
struct exchange_tables {
  void const* up;  ///< the partitions that they belong to
  void const* down;
  device_cut in;  ///< of the messages that everybody gathers
  device_tile const* out_tiles;
  device_tile const* own_tiles;
  index out_count, own_count;
  index const* up_offsets;
  index const* down_offsets;
  // groups larger than a tile; what is summed are the tiles above
  struct groups {
    device_sum_block const* blocks;
    index const* first;        ///< block of each group, and the end
    device_tile const* codes;  ///< tiles that are encoded
    index block_count, group_count, code_count;
  } up_groups, down_groups;
};

}  // namespace detail

/// @tparam Allocator  plain_allocator or pool_allocator
///
/// Execution: device; everything on the stream given, in order. What lies between two collectives or reductions
///            is one kernel and one pass over memory; a scale of more than a tile (per_tensor, whole) takes another,
///            for 8 bytes per element, or 12 where the bound on decoded values reads the variance
/// Accuracy:  the bits of the CPU backend
template <device_allocator Allocator = plain_allocator>
class basic_cuda_backend {
 public:
  using memory = detail::device_memory<Allocator>;

  /// Uses the current device. The stream is the user's and must outlive the optimizer; it may not be the default
  /// stream, with which it could not overlap anything.
  explicit basic_cuda_backend(cudaStream_t stream) : stream_(stream) {
    ZOADAM_EXPECTS(detail::is_created(stream), "cuda_backend(stream)", "the default stream serializes; create one");
    ZOADAM_CUDA(cudaGetDevice(&device_));
    int processors = 0;
    ZOADAM_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_));
    resident_ = index{processors} * 16;
    ring_ = std::make_unique<detail::report_ring>(stream);
  }

  cudaStream_t stream() const noexcept { return stream_; }

  memory allocate(index bytes) const { return memory(bytes, stream_); }
  void reserve(index) noexcept {}
  index workspace_bytes() const noexcept { return table_bytes_ + slice_bytes_; }

  /// Where kernels find the table. Waits.
  detail::slice_list place(detail::slice_table const& table) {
    detail::table_packer packer;
    index const all = packer.add(table.all()), begin = packer.add(table.begin());
    std::vector<std::byte> const& bytes = packer.bytes();
    memory const& to = slices_.emplace_back(allocate(static_cast<index>(bytes.size())));
    slice_bytes_ += static_cast<index>(bytes.size());
    ZOADAM_CUDA(cudaMemcpyAsync(to.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_));
    ZOADAM_CUDA(cudaStreamSynchronize(stream_));
    detail::slice_list list = table.list();
    list.all = reinterpret_cast<detail::placed_slicing const*>(to.data() + all);
    list.begin = reinterpret_cast<index const*>(to.data() + begin);
    return list;
  }

  /// Builds the tables of all exchanges of a program.
  template <class... Plans>
  void plan(layout const& tensors, std::tuple<Plans...> const& plans, int me) {
    expect_device_pointers(tensors);
    detail::table_packer packer;
    std::vector<std::pair<index, void const**>> places;
    auto const put = [&]<class T>(std::vector<T> const& values, T const*& pointer) {
      places.push_back(
          {packer.add(values), const_cast<void const**>(reinterpret_cast<void const* const*>(&pointer))});
      return static_cast<index>(values.size());
    };
    exchanges_.assign(sizeof...(Plans), {});
    tensor_count_ = static_cast<int>(put(detail::tensor_table(tensors), tensors_));
    plain_count_ = put(detail::plain_tiles(tensors), plain_);
    index scratch_blocks = 1, scratch_groups = 1, k = 0;
    std::apply(
        [&](auto const&... each) {
          (plan_exchange(tensors, each, me, exchanges_[static_cast<std::size_t>(k++)], put, scratch_blocks,
                         scratch_groups),
           ...);
        },
        plans);
    index const tables = static_cast<index>(packer.bytes().size());
    index const sums = (scratch_blocks * 4 + 63) / 64 * 64, groups = (scratch_groups * 8 + 63) / 64 * 64;
    table_bytes_ = tables + sums + 2 * groups + 64;
    tables_ = allocate(table_bytes_);
    ZOADAM_CUDA(cudaMemcpyAsync(tables_.data(), packer.bytes().data(), packer.bytes().size(), cudaMemcpyHostToDevice,
                                stream_));
    ZOADAM_CUDA(cudaStreamSynchronize(stream_));
    for (auto const& [at, pointer] : places) *pointer = tables_.data() + at;
    std::byte* at = tables_.data() + tables;
    group_sums_ = reinterpret_cast<float*>(at);
    group_actives_ = reinterpret_cast<unsigned long long*>(at + sums);
    group_scales_ = reinterpret_cast<float*>(at + sums + groups);
    total_ = reinterpret_cast<double*>(at + sums + 2 * groups);
  }

  // ---- numbers of a step ----

  template <class View>
  void start(View const& view) {
    detail::launch("start", detail::start_kernel<>, 1, 1, 0, stream_, view.now);
  }
  template <class View>
  void begin(View const& view, double gradient_scale, std::vector<detail::group_numbers> const& numbers) {
    using chunk_type = detail::numbers_chunk;
    auto const groups = static_cast<index>(numbers.size());
    for (index first = 0; first < groups; first += chunk_type::capacity) {
      chunk_type chunk{};
      int const n = static_cast<int>(groups - first < chunk_type::capacity ? groups - first : chunk_type::capacity);
      for (int i = 0; i < n; ++i) chunk.each[i] = numbers[static_cast<std::size_t>(first + i)];
      detail::launch("begin", detail::begin_kernel<>, 1, chunk_type::capacity, 0, stream_, view.now, gradient_scale,
                     view.numbers, chunk, first, n);
    }
  }
  template <class View>
  void refresh(View const& view, detail::advance when) {
    detail::launch("refresh", detail::refresh_kernel<>, 1, detail::tile_threads, 0, stream_, view.now, view.hyper,
                   view.numbers, view.group, view.groups, when);
  }
  /// See detail::learn_missing().
  template <class View, class Other>
  void learn_missing(View const& view, Other const& from, bool alone) {
    detail::launch("learn_missing", detail::learn_missing_kernel<>, 1, 1, 0, stream_, view.now, from.now, alone);
  }
  /// Waits for the device.
  template <class View>
  detail::progress now(View const& view) const {
    detail::progress p;
    fetch(view.now, &p, sizeof p);
    return p;
  }
  template <class View, class Transport>
  auto report(View const& view, step_report const& known, Transport const& link) {
    return cuda_report(known, *ring_, ring_->send(view.now, stream_), link.watch());
  }
  /// Errors: argument_error where another device is current; what reports that have arrived would throw.
  void poll(char const* call) const {
    if (!ring_) return;  // moved from
    int device = 0;
    ZOADAM_CUDA(cudaGetDevice(&device));
    ZOADAM_EXPECTS(device == device_, call, "the current device is not the backend's");
    ring_->poll();
  }
  /// After a failure of the transport: throws what all reports would.
  void explain() const { ring_->poll(true); }
  /// Errors: argument_error for a transport on another stream.
  template <class Transport>
  void expect_transport(Transport const& link) const {
    if constexpr (requires { link.stream(); }) {
      ZOADAM_EXPECTS(link.stream() == stream_, "optimizer(link)", "link: its stream is not the backend's");
    }
  }
  /// All-gather of a few bytes of the host, over device memory. Waits.
  template <class Transport>
  void all_gather(Transport& link, std::span<index const> offsets, std::byte const* send, std::byte* receive) const {
    auto const me = static_cast<std::size_t>(link.rank());
    auto const own = static_cast<std::size_t>(offsets[me + 1] - offsets[me]),
               all = static_cast<std::size_t>(offsets.back());
    memory const from = allocate(static_cast<index>(own)), to = allocate(static_cast<index>(all));
    ZOADAM_CUDA(cudaMemcpyAsync(from.data(), send, own, cudaMemcpyHostToDevice, stream_));
    link.all_gather(offsets, from.data(), to.data());
    fetch(to.data(), receive, all);
    // What a collective that was given up has left behind is no message.
    if constexpr (requires { link.check(); }) link.check();
  }

  template <class View, class Cut>
  void write_headers_up(View const& view, message_header const& mine, bool carries_gradient, Cut const& cut,
                        std::byte* messages) {
    detail::launch("headers_up", detail::headers_up_kernel<>, 1, detail::tile_threads, 0, stream_, view.now, mine,
                   carries_gradient, tables_of(cut).up_offsets, cut.ranks(), messages);
  }
  template <class View, class Cut>
  void read_headers_up(View const& view, message_header const& mine, Cut const& cut, int me,
                       std::byte const* messages) {
    detail::launch("read_headers_up", detail::read_headers_up_kernel<>, 1, 1, 0, stream_, view.now, view.contributes,
                   mine, cut.ranks(), message_bytes(cut, me), messages);
  }
  template <class View>
  void write_header_down(View const& view, message_header const& mine, std::byte* message) {
    detail::launch("header_down", detail::header_down_kernel<>, 1, 1, 0, stream_, view.now, mine, message);
  }
  template <class View, class Cut>
  void read_headers_down(View const& view, message_header const& mine, Cut const& cut, std::byte const* messages) {
    detail::launch("read_headers_down", detail::read_headers_down_kernel<>, 1, 1, 0, stream_, view.now, mine,
                   tables_of(cut).down_offsets, cut.ranks(), messages);
  }

  // ---- loops ----

  template <class Segment, class Fields, class In, class Out>
  void run(detail::view<Fields> const& view, In const& in, Out const& out) {
    if constexpr (Segment::empty) {
      return;
    } else {
      using down = typename In::quantizer;
      using up = typename Out::quantizer;
      detail::phase const range(Segment::reduces        ? "zoadam: norms"
                                : !std::is_void_v<up>   ? "zoadam: worker side"
                                : !std::is_void_v<down> ? "zoadam: apply"
                                                        : "zoadam: local step");
      detail::segment_arguments<Fields> a = arguments_of(view, in);
      if constexpr (!std::is_void_v<up>) {
        detail::exchange_tables const& t = tables_of(*out.cut);
        a.out_messages = out.messages;
        a.carry = out.carry;
        a.tiles = t.out_tiles;
        a.tile_count = t.out_count;
        a.sums = sums_of(t.up_groups);
      }
      launch_tiles("segment", detail::segment_kernel<Segment, down, In::optional, up, Out::optional, Fields>,
                   thread_blocks<up>(a), detail::segment_memory_bytes<Segment, down, up>, a);
      if constexpr (!std::is_void_v<up> && !detail::single_pass<up>) {
        finish_groups<typename Segment::send, up>(view, tables_of(*out.cut).up_groups, Out::optional, false,
                                                  out.messages, out.carry);
      }
    }
  }

  template <class Form, class Up, class Down, class Fields>
  void own(detail::view<Fields> const& view, partition<Up> const& up, partition<Down> const&, int me,
           std::byte const* received, std::byte* message, float* carry) {
    detail::phase const range("zoadam: owner");
    detail::exchange_tables const& t = tables_of(up);
    detail::owner_arguments<Fields> a{};
    a.field = view.field;
    a.tensors = tensors_;
    a.group = view.group;
    a.now = view.now;
    a.contributes = view.contributes;
    a.tiles = t.own_tiles;
    a.tile_count = t.own_count;
    a.ranks = up.ranks();
    a.stride = message_bytes(up, me);
    a.received = received;
    a.message = message;
    a.carry = carry;
    a.sums = sums_of(t.down_groups);
    launch_tiles("owner", detail::owner_kernel<Form, Up, Down, Fields>, thread_blocks<Down>(a),
                 detail::owner_memory_bytes<Up, Down>, a);
    if constexpr (!detail::single_pass<Down>) {
      finish_groups<Form, Down>(view, t.down_groups, false, !Form::unconditional, message, carry);
    }
  }

  template <class View>
  void check(View const& view) {
    detail::phase const range("zoadam: gradient");
    index const n = view.tensors->elements();
    launch_warps("gradient", detail::gradient_kernel<>, sum_blocks(n), tensors_, tensor_count_, n, view.now,
                 view.block_sums);
    detail::launch("judge", detail::judge_kernel<>, 1, detail::tile_threads, total_shared, stream_, view.now,
                   view.block_sums, sum_blocks(n), view.hyper.max_norm);
  }

  /// Waits for the device, since the host's schedule follows from the value.
  template <class Formula, class Fields>
  double reduce(detail::view<Fields> const& view) {
    index const n = view.tensors->elements();
    launch_warps("reduce", detail::reduce_kernel<Formula, Fields>, sum_blocks(n), view.field, tensors_, tensor_count_,
                 view.group, n, view.block_sums);
    detail::launch("total", detail::total_kernel<>, 1, detail::tile_threads, total_shared, stream_, view.block_sums,
                   sum_blocks(n), total_);
    double total = 0;
    fetch(total_, &total, sizeof total);
    return total;
  }

  /// A segment that ends in the terms of a tensor_reduction, then its finish() for every tensor.
  template <class Segment, class Fields, class In, class Formula>
  void reduce_tensors(detail::view<Fields> const& view, In const& in, Formula const& formula) {
    run<Segment>(view, in, detail::no_messages{});
    layout const& l = *view.tensors;
    detail::scalar_arguments<Fields> a{};
    a.field = view.field;
    a.tensors = tensors_;
    a.group = view.group;
    a.now = view.now;
    a.block_sums = view.block_sums;
    a.tensor_count = l.size();
    a.blocks = l.blocks();
    for (index t = 0; t < l.size(); ++t) a.filled += l.first(t + 1) > l.first(t);
    detail::launch("finish", detail::finish_kernel<Formula, Fields>, l.size(), detail::tile_threads, total_shared,
                   stream_, a, formula);
    if constexpr (requires { typename Formula::united; }) {
      detail::launch("unite", detail::unite_kernel<Formula, Fields>, 1, detail::tile_threads, total_shared, stream_,
                     a, formula);
    }
  }

  /// The loops of a segment that ends in the terms of a slice_reduction, then its finish() for every slice.
  template <class Segment, class Fields, class In, class Formula>
  void reduce_slices(detail::view<Fields> const& view, In const& in, Formula const& formula) {
    detail::segment_arguments<Fields> const a = arguments_of(view, in);
    detail::for_each_tag(typename Formula::slices{}, [&](auto tag) {
      using tag_type = decltype(tag);
      index const n = view.slices[tag].values;
      if (n == 0) return;
      if constexpr (Formula::maximum) {
        ZOADAM_CUDA(cudaMemsetAsync(view.slice_maxima, 0, static_cast<std::size_t>(n) * sizeof(float), stream_));
        run<Segment>(view, in, detail::no_messages{});
        launch_elements("slice_maxima", detail::slice_maxima_kernel<tag_type, Formula, Fields>, n, a, formula);
      } else {
        detail::launch(
            "slice_sums",
            detail::slice_sums_kernel<Segment, typename In::quantizer, In::optional, tag_type, Formula, Fields>, n,
            detail::tile_threads, sizeof(detail::slice_memory), stream_, a, formula);
      }
    });
  }

  /// The hash of basic_cpu_backend. Waits for the device.
  template <class Element>
  std::uint64_t hash(Element const* x, index n, index at) const {
    unsigned long long sum = 0;
    auto* const place = reinterpret_cast<unsigned long long*>(total_);
    ZOADAM_CUDA(cudaMemsetAsync(place, 0, sizeof sum, stream_));
    if (n > 0) launch_elements("hash", detail::hash_kernel<Element>, n, x, n, at, place);
    fetch(place, &sum, sizeof sum);
    return sum;
  }
  void copy(float const* from, float* to, index n) const {
    if (n == 0) return;
    ZOADAM_CUDA(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(n) * sizeof(float), cudaMemcpyDeviceToDevice, stream_));
  }
  void widen(working_view const& from, float* to) const {
    from.visit([&]<class Half>(Half const* values) {
      launch_elements("widen", detail::widen_kernel<Half>, from.size(), values, to, from.size());
    });
  }
  void narrow(float const* from, working_view const& to) const {
    to.visit([&]<class Half>(Half* values) {
      launch_elements("narrow", detail::narrow_kernel<Half>, to.size(), from, values, to.size());
    });
  }

 private:
  template <class Fields, class In>
  detail::segment_arguments<Fields> arguments_of(detail::view<Fields> const& view, In const& in) const {
    detail::segment_arguments<Fields> a{};
    a.field = view.field;
    a.tensors = tensors_;
    a.group = view.group;
    a.now = view.now;
    a.tiles = plain_;
    a.tile_count = plain_count_;
    a.block_sums = view.block_sums;
    a.slices = view.slices;
    a.slice_maxima = view.slice_maxima;
    if constexpr (!std::is_void_v<typename In::quantizer>) {
      a.in = tables_of(*in.cut).in;
      a.in_messages = in.messages;
    }
    return a;
  }

  // A kernel that strides over n > 0 elements.
  template <class Kernel, class... Arguments>
  void launch_elements(char const* name, Kernel kernel, index n, Arguments const&... arguments) const {
    index const blocks = (n + detail::tile_threads - 1) / detail::tile_threads;
    detail::launch(name, kernel, blocks < resident_ ? blocks : resident_, detail::tile_threads, 0, stream_,
                   arguments...);
  }

  static constexpr std::size_t total_shared = sizeof(detail::pairwise_memory);
  detail::device_sums sums_of(detail::exchange_tables::groups const& g) const noexcept {
    return {g.blocks, g.block_count, group_sums_, group_actives_};
  }
  // Thread blocks that a kernel which feeds Quantizer has work for.
  template <class Quantizer, class Arguments>
  static index thread_blocks(Arguments const& a) noexcept {
    return std::is_void_v<Quantizer> || detail::single_pass<Quantizer> ? a.tile_count : a.sums.block_count;
  }

  static index sum_blocks(index n) noexcept { return (n + sum_block - 1) / sum_block; }
  template <class Cut>
  static index message_bytes(Cut const& cut, int rank) noexcept {
    auto const j = static_cast<std::size_t>(rank);
    return cut.offsets()[j + 1] - cut.offsets()[j];
  }

  // With nothing to do there is nothing to launch.
  template <class Argument>
  void launch_tiles(char const* name, void (*kernel)(Argument), index blocks, std::size_t shared,
                    std::type_identity_t<Argument> const& argument) const {
    if (blocks == 0) return;
    if (shared > 48 * 1024) {
      ZOADAM_CUDA(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
    }
    detail::launch(name, kernel, blocks, detail::tile_threads, shared, stream_, argument);
  }
  template <class... Parameters>
  void launch_warps(char const* name, void (*kernel)(Parameters...), index warps,
                    std::type_identity_t<Parameters>... arguments) const {
    constexpr index per_block = detail::tile_threads / 32;
    index const blocks = (warps + per_block - 1) / per_block;
    if (blocks > 0) detail::launch(name, kernel, blocks, detail::tile_threads, 0, stream_, arguments...);
  }

  template <class Form, class Quantizer, class Fields>
  void finish_groups(detail::view<Fields> const& view, detail::exchange_tables::groups const& g, bool optional_up,
                     bool optional_down, std::byte* messages, float* carry) {
    detail::group_arguments<Fields> a{};
    a.field = view.field;
    a.tensors = tensors_;
    a.coefficient = view.group;
    a.now = view.now;
    a.optional_up = optional_up;
    a.optional_down = optional_down;
    a.sums = sums_of(g);
    a.first_block = g.first;
    a.group_count = g.group_count;
    a.tiles = g.codes;
    a.tile_count = g.code_count;
    a.scales = group_scales_;
    a.messages = messages;
    a.carry = carry;
    launch_tiles("group_scales", detail::group_scales_kernel<Quantizer, Fields>, g.group_count, total_shared, a);
    launch_tiles("group_codes", detail::group_codes_kernel<Form, Quantizer, Fields>, g.code_count, 0, a);
  }

  template <class Plan, class Put>
  void plan_exchange(layout const& tensors, Plan const& plan, int me, detail::exchange_tables& t, Put const& put,
                     index& blocks, index& groups) {
    if constexpr (requires { plan.up; }) {
      using up = typename Plan::up_type;
      using down = typename Plan::down_type;
      t.up = &plan.up;
      t.down = &plan.down;
      (void)put(plan.up.offsets(), t.up_offsets);
      (void)put(plan.down.offsets(), t.down_offsets);
      (void)put(detail::piece_table(plan.down), t.in.pieces);
      auto const regions = detail::region_table(tensors, plan.down);
      (void)put(regions, t.in.regions);
      t.in.per_tensor = regions.size() > 1;
      auto const own = detail::owner_tiles(tensors, plan.up, plan.down, me);
      t.own_count = put(own, t.own_tiles);
      auto const put_groups = [&](std::vector<detail::device_tile> const& summed, index count,
                                  std::vector<detail::device_tile> const& encoded,
                                  detail::exchange_tables::groups& g) {
        detail::group_blocks const all(summed, count);
        g.block_count = put(all.blocks, g.blocks);
        g.group_count = put(all.first, g.first) - 1;
        g.code_count = put(encoded, g.codes);
        blocks = blocks < g.block_count ? g.block_count : blocks;
        groups = groups < g.group_count ? g.group_count : groups;
      };
      if constexpr (detail::single_pass<up>) {
        t.out_count = put(detail::outgoing_tiles(tensors, plan.up), t.out_tiles);
      } else {
        auto const out = detail::outgoing_group_tiles(tensors, plan.up);
        t.out_count = put(out, t.out_tiles);
        put_groups(out, plan.up.pieces() / plan.up.ranks(), detail::outgoing_code_tiles(tensors, plan.up),
                   t.up_groups);
      }
      if constexpr (!detail::single_pass<down>) {
        put_groups(own, plan.down.owned(me), detail::owner_code_tiles(tensors, plan.down, me), t.down_groups);
      }
    }
  }

  detail::exchange_tables const& tables_of(auto const& cut) const noexcept {
    std::size_t k = 0;
    while (exchanges_[k].up != &cut && exchanges_[k].down != &cut) ++k;
    return exchanges_[k];
  }

  void fetch(void const* from, void* to, std::size_t bytes) const {
    ZOADAM_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    ZOADAM_CUDA(cudaStreamSynchronize(stream_));
  }

  void expect_device_pointers(layout const& tensors) const {
    for (index t = 0; t < tensors.size(); ++t) {
      tensor const& each = tensors[t];
      auto const expect = [&](void const* p, char const* what) {
        cudaPointerAttributes about{};
        ZOADAM_CUDA(cudaPointerGetAttributes(&about, p));
        bool const reachable =
            about.type == cudaMemoryTypeManaged || (about.type == cudaMemoryTypeDevice && about.device == device_);
        ZOADAM_EXPECTS(reachable, "optimizer(tensors)",
                       "tensors: '" + each.name + "': " + what + " is not in the memory of the backend's device");
      };
      if (each.parameter.size() > 0) expect(each.parameter.data(), "parameter");
      if (each.gradient.size() > 0) expect(each.gradient.data(), "gradient");
      if (each.working.size() > 0) expect(each.working.data(), "working");
    }
  }

  cudaStream_t stream_;
  int device_ = 0;
  index resident_ = 0;  // thread blocks that keep a device busy
  std::unique_ptr<detail::report_ring> ring_;

  memory tables_;
  std::vector<memory> slices_;  // tables of slice values
  index slice_bytes_ = 0;
  index table_bytes_ = 0;
  detail::device_tensor const* tensors_ = nullptr;
  int tensor_count_ = 0;
  detail::device_tile const* plain_ = nullptr;
  index plain_count_ = 0;
  std::vector<detail::exchange_tables> exchanges_;
  float* group_sums_ = nullptr;
  unsigned long long* group_actives_ = nullptr;
  float* group_scales_ = nullptr;
  double* total_ = nullptr;
};

using cuda_backend = basic_cuda_backend<>;
static_assert(backend<cuda_backend>);

}  // namespace zoadam
