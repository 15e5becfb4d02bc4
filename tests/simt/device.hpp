// SPDX-License-Identifier: Apache-2.0
// A device for tests: a stream, buffers on it, and one optimizer beside its twin on the CPU. Nothing here depends on
// the shim; the same tests run on a real device.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <memory>

#include "simt/device_memory.hpp"
#include "suite/job.hpp"
#include "zoadam/backend/cuda.cuh"
#include "zoadam/transport/cuda_thread.hpp"

namespace suite {

/// Early events of each schedule.
template <class Options>
void quick_schedules(Options& o) {
  o.max_norm = 1;
  if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 8;
  if constexpr (requires { o.state.freeze.warmup; }) o.state.freeze = {2, 2, 0.5};
  if constexpr (requires { o.state.variance_freeze_step; }) {
    o.state.variance_freeze_step = 6;
    o.state.variance_scaler = 2;
  }
  if constexpr (requires { o.sync.start; }) o.sync.start = 6;
  if constexpr (requires { o.sync.period; }) o.sync.period = 6;
  if constexpr (requires { o.state.variance_schedule.kappa; }) o.state.variance_schedule.kappa = 2;
}

/// The same composition on the CPU and on a device.
template <class Optimizer>
struct twin;
template <class Quantizer, class Sync, class State, class Backend, class Transport>
struct twin<zoadam::optimizer<Quantizer, Sync, State, Backend, Transport>> {
  using cpu = zoadam::optimizer<Quantizer, Sync, State, zoadam::cpu_backend, zoadam::thread_transport>;
  template <class Link = zoadam::cuda_thread_transport, class Allocator = zoadam::plain_allocator>
  using device = zoadam::optimizer<Quantizer, Sync, State, zoadam::basic_cuda_backend<Allocator>, Link>;
};

/// What a pair of runs is made of; see compare_with_cpu.
template <class Optimizer>
struct pair_job {
  int ranks = 2;
  int steps = 24;
  int groups = 2;  ///< tensors take turns
  std::vector<std::size_t> sizes{700, 0, 4099, 33, 2048};
  std::vector<std::vector<index>> shapes{};  ///< of the sizes above; empty: vectors
  std::vector<std::size_t> shifts{};         ///< elements by which each tensor is off a 16-byte border; empty: none
  zoadam::dtype type = zoadam::dtype::float32;  ///< of gradients
  /// Of copies in 16 bits, which every second tensor has alone; float32: there are none.
  zoadam::dtype working = zoadam::dtype::float32;
  std::function<void(typename twin<Optimizer>::cpu::options_type&)> set = [](auto& o) { quick_schedules(o); };
  std::function<flat(int rank, int step, std::size_t n)> gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(11, rank, step, n);
    for (std::size_t k = 0; k < n; ++k) g[k] *= k % 5 == 0 ? 0.0f : k % 3 == 0 ? 1e-3f : 1.0f;
    // Some gradients are bad, once on all ranks.
    if (step % 7 == 3 && (rank == 0 || step % 2 == 0) && n > 3) g[3] = std::numeric_limits<float>::quiet_NaN();
    return g;
  };
  std::function<float(int step)> rate = [](int step) { return step == 13 ? 0.0f : 0.02f / static_cast<float>(step); };
};

inline bool same_report(zoadam::step_report const& a, zoadam::step_report const& b) {
  return a.step == b.step && a.exchanged == b.exchanged && a.variance_updated == b.variance_updated &&
         a.skipped_here == b.skipped_here && a.skipped_workers == b.skipped_workers &&
         a.skipped_since == b.skipped_since && a.gradient_norm == b.gradient_norm && a.waiting == b.waiting &&
         a.bytes_sent == b.bytes_sent && a.payload_bytes == b.payload_bytes;
}

/// Runs both and compares every report, parameter, field and hash after every step, bit by bit.
///
/// @tparam Group  Group(n).rank(i, stream) is a transport over device memory; rank(i) is called with the device that
///                group.enter(i) makes current, if there is such a function
template <class Optimizer, class Group = zoadam::cuda_thread_group, class Allocator = zoadam::plain_allocator>
void compare_with_cpu(pair_job<Optimizer> const& job) {
  using cpu_type = typename twin<Optimizer>::cpu;
  using link_type = decltype(std::declval<Group&>().rank(0, cudaStream_t{}));
  using device_type = typename twin<Optimizer>::template device<link_type, Allocator>;
  zoadam::thread_group cpu_group(job.ranks);
  Group device_group(job.ranks);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  std::vector<ending> endings(nth(job.ranks));
  auto const work = [&](int rank) {
    if constexpr (requires { device_group.enter(rank); }) device_group.enter(rank);
    device_stream const stream;
    std::vector<flat> x, g;
    std::vector<std::unique_ptr<device_array<float>>> dx, dg;
    std::vector<std::unique_ptr<device_array<std::uint16_t>>> dh, dw;
    std::vector<std::vector<std::uint16_t>> h, w;
    std::vector<zoadam::tensor> host, device;
    bool const half = job.type != zoadam::dtype::float32;
    for (std::size_t k = 0; k < job.sizes.size(); ++k) {
      std::size_t const n = job.sizes[k], shift = job.shifts.empty() ? 0 : job.shifts[k];
      x.emplace_back(n), g.emplace_back(n), h.emplace_back(n);
      for (std::size_t i = 0; i < n; ++i) x[k][i] = 0.1f * noise(5, k, i);
      dx.push_back(std::make_unique<device_array<float>>(n, shift));
      dg.push_back(std::make_unique<device_array<float>>(n, shift));
      dh.push_back(std::make_unique<device_array<std::uint16_t>>(n, shift));
      dx[k]->put(x[k].data(), stream);
      w.emplace_back(n);
      for (std::size_t i = 0; i < n; ++i) w[k][i] = zoadam::to_bfloat16(x[k][i]).bits;
      dw.push_back(std::make_unique<device_array<std::uint16_t>>(n, shift));
      dw[k]->put(w[k].data(), stream);
    }
    for (std::size_t k = 0; k < job.sizes.size(); ++k) {
      auto const views = [&](auto type) -> std::pair<zoadam::gradient_view, zoadam::gradient_view> {
        using half_type = decltype(type);
        return {std::span<half_type const>(reinterpret_cast<half_type const*>(h[k].data()), h[k].size()),
                std::span<half_type const>(reinterpret_cast<half_type const*>(dh[k]->span().data()), h[k].size())};
      };
      std::pair<zoadam::gradient_view, zoadam::gradient_view> gradients{g[k], dg[k]->span()};
      if (job.type == zoadam::dtype::bfloat16) gradients = views(zoadam::bfloat16{});
      if (job.type == zoadam::dtype::float16) gradients = views(zoadam::float16{});
      int const group = static_cast<int>(k) % job.groups;
      auto const shape = job.shapes.empty() ? std::vector<index>{} : job.shapes[k];
      host.push_back({"t", shape, x[k], gradients.first, group});
      device.push_back({"t", shape, dx[k]->span(), gradients.second, group});
      auto const give_working = [&](auto type) {
        using half_type = decltype(type);
        host[k].working = std::span<half_type>(reinterpret_cast<half_type*>(w[k].data()), w[k].size());
        device[k].working = std::span<half_type>(reinterpret_cast<half_type*>(dw[k]->span().data()), w[k].size());
        if (k % 2 == 0) host[k].parameter = device[k].parameter = {};
      };
      if (job.working == zoadam::dtype::bfloat16) give_working(zoadam::bfloat16{});
      if (job.working == zoadam::dtype::float16) give_working(zoadam::float16{});
    }
    typename cpu_type::options_type options;
    options.groups.clear();
    for (int k = 0; k < job.groups; ++k) options.groups.push_back({k % 2 == 0 ? 0.01 : 0.0, 1.0 / (1 + k)});
    job.set(options);
    typename device_type::options_type device_options;
    static_assert(std::is_same_v<typename cpu_type::options_type, typename device_type::options_type>);
    device_options = options;

    cpu_type c(host, options, cpu_group.rank(rank));
    device_type d(device, device_options, device_group.rank(rank, stream),
                  zoadam::basic_cuda_backend<Allocator>(stream));
    auto const compare = [&](zoadam::step_report const& a, zoadam::step_report const& b) {
      wrong += !same_report(a, b);
      wrong += c.replica_hash() != d.replica_hash();
      wrong += c.variance_updates() != d.variance_updates();
      for (std::size_t k = 0; k < x.size(); ++k) {
        wrong += !same_bits(dx[k]->get(stream), x[k]);
        wrong += dw[k]->get(stream) != w[k];
      }
      zoadam::detail::for_each_tag(typename cpu_type::fields::tags{}, [&](auto tag) {
        auto const there = d.values(tag);
        flat copy(there.size());
        if (!copy.empty()) {
          ZOADAM_CUDA(cudaMemcpyAsync(copy.data(), there.data(), there.size_bytes(), cudaMemcpyDeviceToHost, stream));
          stream.wait();
        }
        wrong += !same_bits(copy, copy_of(c.values(tag)));
      });
    };
    for (int step = 1; step <= job.steps; ++step) {
      std::size_t at = 0, all = 0;
      for (std::size_t n : job.sizes) all += n;
      flat const now = job.gradient(rank, step, all);
      for (std::size_t k = 0; k < x.size(); ++k) {
        for (std::size_t i = 0; i < g[k].size(); ++i, ++at) {
          g[k][i] = now[at];
          if (half) {
            h[k][i] = job.type == zoadam::dtype::bfloat16 ? zoadam::to_bfloat16(now[at]).bits
                                                          : zoadam::to_float16(now[at]).bits;
          }
        }
        dg[k]->put(g[k].data(), stream);
        dh[k]->put(h[k].data(), stream);
      }
      double const scale = step % 4 == 0 ? 0.5 : 1.0;
      auto const a = c.step(static_cast<double>(job.rate(step)), scale);
      compare(a, d.step(static_cast<double>(job.rate(step)), scale).get());
    }
    auto const a = c.synchronize();
    compare(a, d.synchronize().get());
    c.rebase();
    d.rebase();
    compare({}, {});
    compare(c.step(1e-3), d.step(1e-3).get());
  };
  for (int rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] { endings[nth(rank)] = ending_of([&] { work(rank); }); });
  }
  for (std::thread& t : threads) t.join();
  for (ending const& e : endings) {
    INFO(e.text);
    CHECK(e.what == outcome::ok);
  }
  CHECK(wrong == 0);
#if defined(ZOADAM_SIMT)
  CHECK_NOTHROW(simt::expect_clean());
  CHECK(simt::default_stream_uses() == 0);
#endif
}

/// One to five ranks, single elements, more ranks than blocks, nothing at all.
template <class Optimizer>
void compare_many(std::vector<std::size_t> const& sizes = {300, 0, 1, 33, 129}, int steps = 14) {
  using sizes_type = std::vector<std::size_t>;
  for (auto const& run :
       {std::pair{1, sizes}, std::pair{2, sizes}, std::pair{3, sizes}, std::pair{5, sizes_type{40, 1}},
        std::pair{2, sizes_type{1}}, std::pair{3, sizes_type{0, 0}}}) {
    CAPTURE(run.first);
    CAPTURE(run.second.size());
    pair_job<Optimizer> job;
    job.ranks = run.first;
    job.sizes = run.second;
    job.steps = steps;
    compare_with_cpu(job);
  }
}

}  // namespace suite
