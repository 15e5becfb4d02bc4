// SPDX-License-Identifier: Apache-2.0
// The CUDA backend against the CPU backend: the same bits in every parameter, field, hash and report.
#include "simt/device.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

TEST_CASE_TEMPLATE("every alias computes the bits of the CPU", Optimizer, zero_one_adam<>, zero_one_adam_paper<>,
                   onebit_adam<>, adam<>, local_adam<>) {
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    pair_job<Optimizer> job;
    job.ranks = ranks;
    compare_with_cpu(job);
  }
}

TEST_CASE_TEMPLATE("views that no vector access fits, gradients and working copies in 16 bits", Optimizer,
                   zero_one_adam<>, adam<>) {
  using pair = std::pair<dtype, dtype>;
  for (auto const& [type, working] : {pair{dtype::float32, dtype::float32}, pair{dtype::bfloat16, dtype::float16},
                                      pair{dtype::float16, dtype::bfloat16}}) {
    pair_job<Optimizer> job;
    job.sizes = {701, 3, 4099, 2049, 64};
    job.shifts = {0, 1, 2, 3, 1};
    job.type = type;
    job.working = working;
    job.steps = 12;
    compare_with_cpu(job);
  }
}

TEST_CASE("case 18: tables of 2^31 + 5 elements reach the last one") {
  // Nothing is read: the tables hold places alone.
  index const n = (index{1} << 31) + 5, block = 2048;
  layout const l({{"x", {}, {reinterpret_cast<float*>(64), static_cast<std::size_t>(n)}, {}}}, 1);
  partition<identity_quantizer> const exact(l, 2);
  partition<sign_quantizer<>> const signs(l, 2);
  auto const reach = [&](std::vector<detail::device_tile> const& tiles) {
    index covered = 0;
    for (detail::device_tile const& each : tiles) covered += each.count;
    CHECK(tiles.back().first + tiles.back().count == n);
    return covered;
  };
  CHECK(reach(detail::plain_tiles(l)) == n);
  CHECK(reach(detail::outgoing_tiles(l, exact)) == n);
  CHECK(reach(detail::outgoing_tiles(l, signs)) == n);
  CHECK(reach(detail::owner_tiles(l, exact, exact, 1)) == exact.elements(1));
  CHECK(reach(detail::owner_tiles(l, signs, signs, 1)) == signs.elements(1));
  detail::device_tile const last = detail::owner_tiles(l, exact, exact, 1).back();
  CHECK(last.own + last.count == exact.elements(1));

  auto const pieces = detail::piece_table(exact);
  CHECK(pieces.back().last == n);
  CHECK(pieces.back().payload + 4 * (n - pieces.back().first) == exact.offsets().back());
  CHECK(exact.offsets().back() > 4 * n);
  auto const blocks = detail::piece_table(signs);
  CHECK(static_cast<index>(blocks.size()) == (n + block - 1) / block);
  CHECK(blocks.back().first == n / block * block);
  CHECK(detail::tensor_table(l).back().last == n);
}

TEST_CASE_TEMPLATE("memory from the pool of the stream", Optimizer, zero_one_adam<>, adam<>) {
  pair_job<Optimizer> job;
  job.steps = 8;
  compare_with_cpu<Optimizer, cuda_thread_group, pool_allocator>(job);
}

TEST_CASE_TEMPLATE("case 19: n = 1 to 300, views off any border by 1 to 15 elements", Optimizer, zero_one_adam<>,
                   adam<>) {
  pair_job<Optimizer> job;
  job.sizes.clear();
  for (std::size_t n = 1; n <= 300; ++n) job.sizes.push_back(n), job.shifts.push_back(1 + n % 15);
  job.steps = 4;
  compare_with_cpu(job);
}

#if defined(ZOADAM_SIMT)

TEST_CASE_TEMPLATE("case 8: bytes reported are bytes of the device allocated", Optimizer, zero_one_adam<>,
                   zero_one_adam_paper<>, adam<>) {
  auto const allocated = [] {
    simt::world_lock const lock(simt::the_world().mutex);
    std::size_t bytes = 0;
    for (auto const& each : simt::the_memory().live) {
      if (each.second.kind == simt::memory::device) bytes += each.second.bytes;
    }
    return bytes;
  };
  device_stream const stream;
  device_array<float> const x(100003), g(100003);
  device_array<std::uint16_t> const half(5000);
  std::span<bfloat16> const alone(reinterpret_cast<bfloat16*>(half.span().data()), half.size());
  cuda_thread_group group(1);
  std::size_t const before = allocated();
  typename twin<Optimizer>::template device<> const o({{"x", {}, x.span(), g.span()}, {"h", {}, {}, {}, 0, alone}},
                                                      {}, group.rank(0, stream), cuda_backend(stream));
  CHECK(static_cast<index>(allocated() - before) == o.memory().total());
  CHECK(o.memory().masters == (4 * 5000 + 63) / 64 * 64);
}

#endif

// ---- in any order ----

#if defined(ZOADAM_SIMT)

template <class Optimizer>
void compare_here() {
  pair_job<Optimizer> job;
  job.ranks = 3;
  job.sizes = {300, 0, 2100, 5};
  job.steps = 8;
  job.set = [](auto& o) {
    quick_schedules(o);
    if constexpr (requires { o.sync.period; }) o.sync = {2, 2, 16};
    if constexpr (requires { o.state.freeze.step; }) o.state.freeze.step = 3;
  };
  compare_with_cpu(job);
}

TEST_CASE_TEMPLATE("orders of threads", Optimizer, zero_one_adam<>, zero_one_adam_paper<>, onebit_adam<>) {
  simt::set_thread_order(simt::order::reversed);
  compare_here<Optimizer>();
  for (unsigned const seed : {1u, 2u}) {
    simt::set_thread_order(simt::order::shuffled, seed);
    compare_here<Optimizer>();
  }
  simt::set_thread_order(simt::order::in_order);
}

TEST_CASE_TEMPLATE("streams that wait to be waited for", Optimizer, zero_one_adam<>, zero_one_adam_paper<>,
                   onebit_adam<>, adam<>) {
  simt::set_stream_order(simt::stream_order::lazy);
  compare_here<Optimizer>();
  simt::set_stream_order(simt::stream_order::eager);
}

#endif

}  // namespace
