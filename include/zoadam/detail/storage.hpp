// SPDX-License-Identifier: Apache-2.0
// The memory of one rank: tensors, fields, messages and coefficients, in one arena planned at construction.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "zoadam/backend/view.hpp"
#include "zoadam/detail/plan.hpp"
#include "zoadam/options.hpp"

namespace zoadam::detail {

/// Memory for the messages of several optimizers that take turns: as much as the largest exchange needs.
template <class Backend>
class shared_messages {
 public:
  /// Before anything was sent.
  void reserve(Backend const& backend, index bytes) {
    if (bytes <= bytes_) return;
    memory_ = {};
    memory_ = backend.allocate(bytes);
    bytes_ = bytes;
  }
  std::byte* data() const noexcept { return memory_.data(); }
  index bytes() const noexcept { return bytes_; }

 private:
  typename Backend::memory memory_;
  index bytes_ = 0;
};

template <class StateFields, program Program, class Backend>
class storage {
  using plans_type = plan_of<Program>;

 public:
  using fields = join<StateFields, typename plans_type::fields>;
  using slice_tags = slices_of<typename fields::tags>;
  /// Whether owners keep the parameters in float32.
  static constexpr bool has_master = zoadam::detail::view<fields>::has_master;

  /// messages: where they lie, if not in this object's arena.
  void plan(std::vector<tensor> tensors, index groups, int ranks, int me, Backend& backend,
            std::shared_ptr<shared_messages<Backend>> messages) {
    layout_ = std::make_unique<layout>(std::move(tensors), groups);
    plans_ = std::make_unique<typename plans_type::plans const>(plans_type::make(*layout_, ranks));
    index const elements = layout_->elements();
    for_each_tag(typename fields::tags{},
                 [&](auto tag) { size_[tag] = is_tensor_scalar<decltype(tag)> ? layout_->size() : elements; });
    index longest = 0;
    for_each_tag(slice_tags{}, [&](auto tag) {
      slices_[tag].template plan<decltype(tag)>(*layout_);
      size_[tag] = slices_[tag].values();
      longest = largest(longest, size_[tag]);
    });
    index const maxima = plans_type::slice_maximum ? longest : 0;
    index traffic = 0, result = 0;
    std::apply([&](auto const&... each) { (measure(each, me, traffic, result), ...); }, *plans_);

    index const sums = largest(elements / sum_block + 1, layout_->blocks() * plans_type::tensor_results);
    auto const bytes_of = [](index n, std::size_t size) { return n * static_cast<index>(size); };
    index const coefficient_bytes = bytes_of(groups, sizeof(coefficients<float>));
    index const number_bytes = bytes_of(groups, sizeof(group_numbers));
    index const progress_bytes = bytes_of(1, sizeof(progress));
    for_each_tag(typename fields::tags{}, [&](auto tag) { use_.fields += field_bytes(4 * size_[tag]); });
    for (index t : replicated_masters()) use_.masters += rounded(4 * (*layout_)[t].working.size());
    index const message_bytes = 2 * rounded(traffic) + rounded(result);
    if (messages) {
      messages->reserve(backend, message_bytes);
      shared_ = std::move(messages);
    } else {
      use_.messages = message_bytes;
    }
    use_.workspace = rounded(4 * sums) + rounded(4 * maxima) + rounded(coefficient_bytes) + rounded(number_bytes) +
                     rounded(progress_bytes) + rounded(ranks);
    arena_ = backend.allocate(use_.total());

    std::byte* at = arena_.data();
    auto const take = [&](index bytes) { return std::exchange(at, at + rounded(bytes)); };
    auto const take_field = [&](index bytes) { return std::exchange(at, at + field_bytes(bytes)); };
    for_each_tag(typename fields::tags{},
                 [&](auto tag) { view_.field[tag] = reinterpret_cast<float*>(take_field(4 * size_[tag])); });
    for (index t : replicated_masters()) {
      layout_->set_master(t, reinterpret_cast<float*>(take(4 * (*layout_)[t].working.size())));
    }
    own_messages_ = take(use_.messages);
    traffic_[1] = rounded(traffic);
    result_ = 2 * rounded(traffic);
    view_.block_sums = reinterpret_cast<float*>(take(4 * sums));
    view_.slice_maxima = reinterpret_cast<float*>(take(4 * maxima));
    view_.group = reinterpret_cast<coefficients<float>*>(take(coefficient_bytes));
    view_.numbers = reinterpret_cast<group_numbers*>(take(number_bytes));
    view_.groups = groups;
    view_.now = reinterpret_cast<progress*>(take(progress_bytes));
    view_.contributes = reinterpret_cast<unsigned char*>(take(ranks));
    view_.tensors = layout_.get();
    backend.reserve(plans_type::tile);
    for_each_tag(slice_tags{}, [&](auto tag) { view_.slices[tag] = backend.place(slices_[tag]); });
    if constexpr (requires { backend.plan(*layout_, *plans_, me); }) backend.plan(*layout_, *plans_, me);
    use_.workspace += backend.workspace_bytes();
    me_ = me;
    read_working(backend);
  }

  /// Errors: poisoned_error where the optimizer was moved from.
  layout const& tensors() const {
    if (!layout_) throw poisoned_error("zoadam: the optimizer was moved from");
    return *layout_;
  }
  zoadam::detail::view<fields>& view() noexcept { return view_; }
  zoadam::detail::view<fields> const& view() const noexcept { return view_; }
  template <std::size_t I>
  auto const& cut() const noexcept {
    return std::get<I>(*plans_);
  }
  memory_use const& use() const noexcept { return use_; }

  // An exchange sends from the buffer that does not hold the result of the one before, since one loop may read that
  // result while it writes the new messages; it receives into the other, and gathers over what it has sent.
  struct exchange_buffers {
    std::byte* outbox;
    std::byte* inbox;
    std::byte* result;  ///< this owner's message down
  };
  exchange_buffers next_exchange() noexcept {
    std::swap(traffic_[0], traffic_[1]);
    std::byte* const base = shared_ ? shared_->data() : own_messages_;
    return {base + traffic_[0], base + traffic_[1], base + result_};
  }

  template <class Tag>
  std::span<float const> values(Tag tag) const {
    (void)tensors();
    return {view_.field[tag], static_cast<std::size_t>(size_[tag])};
  }
  template <class Tag>
  std::span<float const> values(Tag tag, index t) const {
    auto const first = static_cast<std::size_t>(layout_->first(t)),
               last = static_cast<std::size_t>(layout_->first(t + 1));
    if constexpr (std::is_same_v<Tag, at::parameter_t>) {
      return (*layout_)[t].parameter;
    } else {
      return values(tag).subspan(first, last - first);
    }
  }

  /// Masters of this object follow the user's parameters.
  void read_working(Backend& backend) {
    if constexpr (has_master) {
      std::apply([&](auto const&... each) { (void)(read_masters(each, backend) || ...); }, *plans_);
    } else {
      for (index t : layout_->alone()) backend.widen((*layout_)[t].working, (*layout_)[t].parameter.data());
    }
  }
  /// Working copies follow the parameters.
  void write_working(Backend& backend) {
    if constexpr (!has_master) {  // else gathering them writes them
      for (index t = 0; t < layout_->size(); ++t) {
        backend.narrow((*layout_)[t].parameter.data(), (*layout_)[t].working);
      }
    }
  }

  void anchor_parameters(Backend& backend) {
    if constexpr (contains<typename fields::tags, at::anchor_t>) {
      for (index t = 0; t < layout_->size(); ++t) {
        std::span<float const> const x = (*layout_)[t].parameter;
        backend.copy(x.data(), view_.field[at::anchor] + layout_->first(t), static_cast<index>(x.size()));
      }
    }
  }

  /// The hash that the parameters will have after read_working().
  std::uint64_t working_hash(Backend const& backend) const {
    std::uint64_t h = parameter_hash(backend);
    for (index t : replicated_masters()) {
      tensor const& each = (*layout_)[t];
      index const n = each.working.size(), at = layout_->first(t);
      h -= backend.hash(each.parameter.data(), n, at);
      each.working.visit([&](auto const* half) { h += backend.hash(half, n, at); });
    }
    return h;
  }
  std::uint64_t parameter_hash(Backend const& backend) const {
    std::uint64_t h = 0;
    for (index t = 0; t < tensors().size(); ++t) {
      tensor const& each = (*layout_)[t];
      index const at = layout_->first(t);
      if constexpr (has_master) {
        if (each.parameter.empty()) {
          each.working.visit([&](auto const* half) { h += backend.hash(half, each.working.size(), at); });
          continue;
        }
      }
      h += backend.hash(each.parameter.data(), static_cast<index>(each.parameter.size()), at);
    }
    return h;
  }
  /// Adds the replica fields to a hash.
  std::uint64_t replica_hash(Backend const& backend, std::uint64_t h) const {
    (void)tensors();
    for_each_tag(at_home<fields, home::replica>{},
                 [&](auto tag) { h = h * 0x100000001b3u + backend.hash(view_.field[tag], size_[tag], 0); });
    return h;
  }

 private:
  // Tensors that were given in 16 bits alone and whose parameters this object keeps in float32.
  std::vector<index> const& replicated_masters() const noexcept {
    static std::vector<index> const none;
    return has_master ? none : layout_->alone();
  }

  template <class Plan>
  bool read_masters(Plan const& plan, Backend& backend) {
    if constexpr (requires { plan.up; }) {
      plan.up.for_runs(me_, *layout_, [&](index t, index first, index last, index own) {
        tensor const& each = (*layout_)[t];
        float* const to = view_.field[at::master] + own;
        if (each.parameter.empty()) {
          backend.widen(each.working.part(first, last - first), to);
        } else {
          backend.copy(each.parameter.data() + first, to, last - first);
        }
      });
      return true;
    }
    return false;
  }

  static index rounded(index bytes) noexcept { return (bytes + 63) / 64 * 64; }
  static index field_bytes(index bytes) noexcept { return rounded(bytes) + memory_use::field_gap; }

  template <class Plan>
  void measure(Plan const& plan, int me, index& traffic, index& result) {
    if constexpr (requires { typename Plan::owner; }) {
      traffic = largest(traffic, plan.traffic(me));
      result = largest(result, plan.result(me));
      // All exchanges of a program with owner fields cut alike; errors of an owner follow their own exchange.
      for_each_tag(at_home<StateFields, home::owner>{}, [&](auto tag) { size_[tag] = plan.up.elements(me); });
      if constexpr (contains<typename fields::tags, typename Plan::owner>) {
        size_[typename Plan::owner{}] = plan.up.elements(me);
      }
    }
  }

  std::unique_ptr<layout> layout_;
  std::unique_ptr<typename plans_type::plans const> plans_;
  typename Backend::memory arena_;
  zoadam::detail::view<fields> view_;
  registers<index, typename fields::tags> size_;
  registers<slice_table, slice_tags> slices_;
  std::shared_ptr<shared_messages<Backend>> shared_;
  std::byte* own_messages_ = nullptr;
  index traffic_[2] = {}, result_ = 0;  // from the beginning of the messages
  int me_ = 0;
  memory_use use_;
};

}  // namespace zoadam::detail
