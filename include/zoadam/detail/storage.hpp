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

template <class StateFields, program Program, class Backend>
class storage {
  using plans_type = plan_of<Program>;

 public:
  using fields = join<StateFields, typename plans_type::fields>;

  void plan(std::vector<tensor> tensors, index groups, int ranks, int me, Backend& backend) {
    layout_ = std::make_unique<layout>(std::move(tensors), groups);
    plans_ = std::make_unique<typename plans_type::plans const>(plans_type::make(*layout_, ranks));
    index const elements = layout_->elements();
    for_each_tag(typename fields::tags{},
                 [&](auto tag) { size_[tag] = is_tensor_scalar<decltype(tag)> ? layout_->size() : elements; });
    index traffic = 0, result = 0;
    std::apply([&](auto const&... each) { (measure(each, me, traffic, result), ...); }, *plans_);

    index const sums = largest(elements / sum_block + 1, layout_->blocks() * plans_type::tensor_results);
    auto const bytes_of = [](index n, std::size_t size) { return n * static_cast<index>(size); };
    index const coefficient_bytes = bytes_of(groups, sizeof(coefficients<float>));
    index const number_bytes = bytes_of(groups, sizeof(group_numbers));
    index const progress_bytes = bytes_of(1, sizeof(progress));
    for_each_tag(typename fields::tags{}, [&](auto tag) { use_.fields += field_bytes(4 * size_[tag]); });
    for (index t : layout_->alone()) use_.masters += rounded(4 * (*layout_)[t].working.size());
    use_.messages = 2 * rounded(traffic) + rounded(result);
    use_.workspace = rounded(4 * sums) + rounded(coefficient_bytes) + rounded(number_bytes) +
                     rounded(progress_bytes) + rounded(ranks);
    arena_ = backend.allocate(use_.total());

    std::byte* at = arena_.data();
    auto const take = [&](index bytes) { return std::exchange(at, at + rounded(bytes)); };
    auto const take_field = [&](index bytes) { return std::exchange(at, at + field_bytes(bytes)); };
    for_each_tag(typename fields::tags{},
                 [&](auto tag) { view_.field[tag] = reinterpret_cast<float*>(take_field(4 * size_[tag])); });
    for (index t : layout_->alone()) {
      layout_->set_master(t, reinterpret_cast<float*>(take(4 * (*layout_)[t].working.size())));
    }
    for (std::byte*& each : traffic_) each = take(traffic);
    result_ = take(result);
    view_.block_sums = reinterpret_cast<float*>(take(4 * sums));
    view_.group = reinterpret_cast<coefficients<float>*>(take(coefficient_bytes));
    view_.numbers = reinterpret_cast<group_numbers*>(take(number_bytes));
    view_.groups = groups;
    view_.now = reinterpret_cast<progress*>(take(progress_bytes));
    view_.contributes = reinterpret_cast<unsigned char*>(take(ranks));
    view_.tensors = layout_.get();
    backend.reserve(plans_type::tile);
    if constexpr (requires { backend.plan(*layout_, *plans_, me); }) backend.plan(*layout_, *plans_, me);
    use_.workspace += backend.workspace_bytes();
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
    return {traffic_[0], traffic_[1], result_};
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

  /// Masters of this object follow the user's working copies.
  void read_working(Backend& backend) {
    for (index t : layout_->alone()) backend.widen((*layout_)[t].working, (*layout_)[t].parameter.data());
  }
  /// Working copies follow the parameters.
  void write_working(Backend& backend) {
    for (index t = 0; t < layout_->size(); ++t) backend.narrow((*layout_)[t].parameter.data(), (*layout_)[t].working);
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
    for (index t : layout_->alone()) {
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
      std::span<float const> const x = (*layout_)[t].parameter;
      h += backend.hash(x.data(), static_cast<index>(x.size()), layout_->first(t));
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
  static index rounded(index bytes) noexcept { return (bytes + 63) / 64 * 64; }
  static index field_bytes(index bytes) noexcept { return rounded(bytes) + memory_use::field_gap; }

  template <class Plan>
  void measure(Plan const& plan, int me, index& traffic, index& result) {
    if constexpr (requires { typename Plan::owner; }) {
      traffic = largest(traffic, plan.traffic(me));
      result = largest(result, plan.result(me));
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
  std::byte* traffic_[2] = {};
  std::byte* result_ = nullptr;
  memory_use use_;
};

}  // namespace zoadam::detail
