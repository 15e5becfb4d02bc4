// SPDX-License-Identifier: Apache-2.0
// A composition of the CPU, run on a device behind the same interface: tests of the CPU run unchanged. Nothing here
// depends on the shim.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <typeindex>
#include <utility>

#include "simt/device_memory.hpp"
#include "zoadam/backend/cuda.cuh"
#include "zoadam/optimizer.hpp"
#include "zoadam/transport/cuda_thread.hpp"
#if ZOADAM_SUITE_NCCL
#include "simt/nccl_group.hpp"
#endif

namespace suite {

/// How the ranks of a hosted run talk; `enter(i)` makes the device of rank i current.
#if ZOADAM_SUITE_NCCL
using hosted_group = nccl_group;
#else
struct hosted_group : zoadam::cuda_thread_group {
  using cuda_thread_group::cuda_thread_group;
  static void enter(int) noexcept {}
};
#endif

template <class Optimizer>
class hosted;

/// Tensors and results lie in host memory, and are copied around each call; the link only brings the ranks of a
/// hosted_group together.
template <class Quantizer, class Sync, class State, class Backend, class Transport>
class hosted<zoadam::optimizer<Quantizer, Sync, State, Backend, Transport>> {
  using device_link = decltype(std::declval<hosted_group&>().rank(0, cudaStream_t{}));
  using inner = zoadam::optimizer<Quantizer, Sync, State, zoadam::cuda_backend, device_link>;
  using index = zoadam::index;

 public:
  using quantizer_type = Quantizer;
  using sync_type = Sync;
  using state_type = State;
  using transport_type = Transport;
  using options_type = typename inner::options_type;
  using program_type = typename inner::program_type;
  using fields = typename inner::fields;
  struct backend_type {
    explicit backend_type(int = 1) {}
  };

  hosted(std::vector<zoadam::tensor> tensors, options_type options, Transport link, backend_type = backend_type())
      : link_(std::move(link)), host_(std::move(tensors)) {
    auto device = enter_group();
    std::vector<zoadam::tensor> there = host_;
    for (zoadam::tensor& each : there) {
      parameter_.emplace_back(each.parameter.size());
      each.parameter = parameter_.back().span();
      std::size_t const width = each.gradient.type() == zoadam::dtype::float32 ? 4 : 2;
      gradient_.emplace_back(static_cast<std::size_t>(each.gradient.size()) * width);
      each.gradient = view_of(each.gradient, gradient_.back().span().data());
    }
    put_parameters();
    run_.emplace(std::move(there), std::move(options), std::move(device), zoadam::cuda_backend(stream_));
  }

  zoadam::step_report step(double lr, double grad_scale = 1) {
    for (std::size_t t = 0; t < host_.size(); ++t) {
      gradient_[t].put(static_cast<std::byte const*>(host_[t].gradient.data()), stream_);
    }
    return with_parameters([&] { return run_->step(lr, grad_scale).get(); });
  }
  zoadam::step_report synchronize() {
    return with_parameters([&] { return run_->synchronize().get(); });
  }
  void rebase() {
    put_parameters();
    run_->rebase();
  }
  void reopen_variance() requires(requires(inner& o) { o.reopen_variance(); }) { run_->reopen_variance(); }

  bool will_exchange(double lr) const noexcept { return run_->will_exchange(lr); }
  bool will_exchange() const noexcept { return run_->will_exchange(); }
  std::span<float const> agreed(index t) const { return fetch(agreed_[t], run_->agreed(t)); }
  template <class Tag>
  std::span<float const> values(Tag tag) const {
    return fetch(values_[typeid(Tag)], run_->values(tag));
  }
  std::uint64_t replica_hash() const { return run_->replica_hash(); }
  index steps() const noexcept { return run_->steps(); }
  index elements() const { return run_->elements(); }
  int rank() const noexcept { return run_->rank(); }
  int workers() const noexcept { return run_->workers(); }
  index variance_updates() const { return run_->variance_updates(); }
  zoadam::memory_use memory() const noexcept { return run_->memory(); }
  index bytes_sent() const noexcept { return run_->bytes_sent(); }
  std::string name() const { return run_->name(); }

 private:
  // Rank 0 makes the group; the second round keeps its pointer until all have a copy.
  device_link enter_group() {
    auto const ranks = static_cast<std::size_t>(link_.size());
    std::vector<index> offsets;
    for (std::size_t i = 0; i <= ranks; ++i) offsets.push_back(static_cast<index>(i * sizeof(void*)));
    std::vector<std::byte> mine(sizeof(void*)), all(ranks * sizeof(void*));
    if (link_.rank() == 0) group_ = std::make_shared<hosted_group>(link_.size());
    void* at = &group_;
    std::memcpy(mine.data(), &at, sizeof at);
    link_.all_gather(offsets, mine.data(), all.data());
    std::memcpy(&at, all.data(), sizeof at);
    if (link_.rank() != 0) group_ = *static_cast<std::shared_ptr<hosted_group>*>(at);
    link_.all_gather(offsets, mine.data(), all.data());
    return group_->rank(link_.rank(), stream_);
  }
  static zoadam::gradient_view view_of(zoadam::gradient_view const& g, std::byte* at) {
    auto const n = static_cast<std::size_t>(g.size());
    if (g.type() == zoadam::dtype::float32) return std::span(reinterpret_cast<float const*>(at), n);
    if (g.type() == zoadam::dtype::bfloat16) return std::span(reinterpret_cast<zoadam::bfloat16 const*>(at), n);
    return std::span(reinterpret_cast<zoadam::float16 const*>(at), n);
  }
  void put_parameters() const {
    for (std::size_t t = 0; t < host_.size(); ++t) parameter_[t].put(host_[t].parameter.data(), stream_);
  }
  void get_parameters() const {
    for (std::size_t t = 0; t < host_.size(); ++t) {
      auto const x = parameter_[t].get(stream_);
      std::copy(x.begin(), x.end(), host_[t].parameter.begin());
    }
  }
  template <class Call>
  zoadam::step_report with_parameters(Call const& call) {
    try {
      auto const report = call();
      get_parameters();
      return report;
    } catch (...) {
      get_parameters();  // what a failed call has left
      throw;
    }
  }
  std::span<float const> fetch(std::vector<float>& to, std::span<float const> from) const {
    to.resize(from.size());
    if (!from.empty()) {
      ZOADAM_CUDA(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDeviceToHost, stream_));
      stream_.wait();
    }
    return to;
  }

  Transport link_;
  std::shared_ptr<hosted_group> group_;
  device_stream stream_ = (hosted_group::enter(link_.rank()), device_stream());
  std::vector<zoadam::tensor> host_;
  std::vector<device_array<float>> parameter_;
  std::vector<device_array<std::byte>> gradient_;
  mutable std::map<std::type_index, std::vector<float>> values_;
  mutable std::map<index, std::vector<float>> agreed_;
  std::optional<inner> run_;
};

}  // namespace suite
