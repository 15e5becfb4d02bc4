// SPDX-License-Identifier: Apache-2.0
// Shards on a device: the bits of the CPU.
#include "simt/device.hpp"
#include "zoadam/loss_scaler.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/sharded.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using flat_adam = threaded<identity_quantizer, every_step, zero_shard<>>;
using flat_nadam = threaded<identity_quantizer, every_step, zero_shard<nadam_state>>;
using flat_half = threaded<cast_quantizer<bfloat16>, every_step, zero_shard<adam_state, cast_quantizer<bfloat16>>>;
template <class Groups>
using flat_sign = threaded<sign_with_feedback<Groups>, every_step, zero_shard<onebit_adam_state<>>>;

TEST_CASE_TEMPLATE("flat shards", Optimizer, flat_adam, flat_nadam, flat_sign<block<64>>, flat_sign<per_tensor>) {
  compare_many<Optimizer>();
}

TEST_CASE("flat shards: tensors given in 16 bits alone, masters at owners") {
  pair_job<flat_half> job;
  job.ranks = 3;
  job.steps = 9;
  job.working = dtype::bfloat16;
  compare_with_cpu(job);
}

/// Two nodes of two ranks, on the CPU and on a device: parameters after every step.
TEST_CASE("two levels") {
  constexpr int nodes = 2, ranks = 2, steps = 9;
  std::vector<std::size_t> const sizes{4100, 0, 33, 700};
  using host_type = sharded<zero_one_adam<thread_transport>, thread_transport>;
  using device_type = sharded<zero_one_adam<cuda_thread_transport, cuda_backend>, cuda_thread_transport>;
  std::vector<thread_group> within, across;
  std::vector<cuda_thread_group> device_within, device_across;
  for (int i = 0; i < 2; ++i) {
    within.emplace_back(ranks), across.emplace_back(nodes);
    device_within.emplace_back(ranks), device_across.emplace_back(nodes);
  }
  std::atomic<int> wrong{0};
  std::vector<ending> endings(nodes * ranks);
  std::vector<std::thread> threads;
  auto const work = [&](int node, int rank) {
    device_stream const stream;
    std::vector<flat> x, g;
    std::vector<std::unique_ptr<device_array<float>>> dx, dg;
    std::vector<std::vector<tensor>> host(2), device(2);
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      x.emplace_back(sizes[k]), g.emplace_back(sizes[k]);
      for (std::size_t i = 0; i < sizes[k]; ++i) x[k][i] = 0.1f * noise(5, k, i);
      dx.push_back(std::make_unique<device_array<float>>(sizes[k]));
      dg.push_back(std::make_unique<device_array<float>>(sizes[k]));
      dx[k]->put(x[k].data(), stream);
    }
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      host[k / 3].push_back({"t", {}, x[k], g[k]});
      device[k / 3].push_back({"t", {}, dx[k]->span(), dg[k]->span()});
    }
    host_type::options_type options;
    quick_schedules(options);
    options.max_norm = 0;  // there are two layers
    auto const i = nth(node), j = nth(rank);
    host_type c(std::move(host), options, within[i].rank(rank), across[j].rank(node));
    device_type d(std::move(device), options, device_within[i].rank(rank, stream),
                  device_across[j].rank(node, stream), [&] { return cuda_backend(stream); });
    for (int step = 1; step <= steps; ++step) {
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        flat const now = noisy_gradient(k, nodes * node + rank, step, sizes[k]);
        std::copy(now.begin(), now.end(), g[k].begin());
        if (step == 4 && rank == 0 && k == 0) g[k][5] = std::numeric_limits<float>::infinity();
        dg[k]->put(g[k].data(), stream);
      }
      if (step % 2 == 0) {
        c.reduce(1, 1e-2);
        d.reduce(1, 1e-2);
      }
      step_report const a = c.step(1e-2), b = d.step(1e-2).get();
      wrong += a.exchanged != b.exchanged || a.skipped_here != b.skipped_here || a.bytes_sent != b.bytes_sent;
      for (std::size_t k = 0; k < sizes.size(); ++k) wrong += !same_bits(dx[k]->get(stream), x[k]);
    }
    (void)c.synchronize();
    (void)d.synchronize().get();
    for (std::size_t k = 0; k < sizes.size(); ++k) wrong += !same_bits(dx[k]->get(stream), x[k]);
  };
  for (int node = 0; node < nodes; ++node) {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(
          [&, node, rank] { endings[nth(node * ranks + rank)] = ending_of([&] { work(node, rank); }); });
    }
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

TEST_CASE("parameters on demand: the moments of Adam on shards of one node, and the loss scale") {
  constexpr int ranks = 2, steps = 9;
  std::vector<std::size_t> const sizes{2100, 33};
  using host_type = sharded<lone_adam<>, thread_transport, residence::on_demand>;
  using device_type =
      sharded<lone_adam<cuda_thread_transport, cuda_backend>, cuda_thread_transport, residence::on_demand>;
  thread_group group(ranks);
  cuda_thread_group device_group(ranks), alone[ranks] = {cuda_thread_group(1), cuda_thread_group(1)};
  std::atomic<int> wrong{0};
  on_all_ranks(ranks, [&](thread_transport link) {
    int const rank = link.rank();
    device_stream const stream;
    std::vector<flat> x, g;
    std::vector<device_array<float>> dx, dg;
    std::vector<std::vector<tensor>> host(2), device(2);
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      x.emplace_back(sizes[k]), g.emplace_back(sizes[k]);
      for (std::size_t i = 0; i < sizes[k]; ++i) x[k][i] = 0.1f * noise(5, k, i);
      dx.emplace_back(sizes[k]), dg.emplace_back(sizes[k]);
      dx[k].put(x[k].data(), stream);
    }
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      host[k].push_back({"t", {}, x[k], g[k]});
      device[k].push_back({"t", {}, dx[k].span(), dg[k].span()});
    }
    host_type c(std::move(host), {}, std::move(link), {});
    device_type d(std::move(device), {}, device_group.rank(rank, stream), alone[rank].rank(0, stream),
                  [&] { return cuda_backend(stream); });
    loss_scaler here({.interval = 3}), there({.interval = 3});
    for (int step = 1; step <= steps; ++step) {
      for (index layer = 1; layer >= 0; --layer) {
        auto const k = nth(layer);
        c.materialize(layer);
        d.materialize(layer);
        wrong += !same_bits(dx[k].get(stream), x[k]);
        flat const now = noisy_gradient(k, rank, step, sizes[k]);
        std::copy(now.begin(), now.end(), g[k].begin());
        if (step == 4 && rank == 0 && k == 0) g[k][5] = std::numeric_limits<float>::infinity();
        if (step == 6 && k == 1) g[k][5] = std::numeric_limits<float>::infinity();
        dg[k].put(g[k].data(), stream);
        c.reduce(layer, 1e-2);
        d.reduce(layer, 1e-2);
        c.release(layer);
        d.release(layer);
      }
      step_report const a = c.step(1e-2), b = d.step(1e-2).get();
      wrong += a.skipped_here != (step == 6) || a.skipped_since != (step == 4 || step == 6);
      wrong += a.skipped_here != b.skipped_here || a.skipped_since != b.skipped_since || a.alone != b.alone;
      double const before = here.scale();
      here.update(a);
      wrong += (here.scale() < before) != (step == 4 || step == 6);
      there.update(b);
      wrong += here.scale() != there.scale();
    }
  });
  CHECK(wrong == 0);
}

}  // namespace
