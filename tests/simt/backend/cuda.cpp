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
  partition<sign_quantizer<whole>> const grouped(l, 2);
  auto const reach = [&](std::vector<detail::device_tile> const& tiles) {
    index covered = 0;
    for (detail::device_tile const& each : tiles) covered += each.count;
    CHECK(tiles.back().first + tiles.back().count == n);
    return covered;
  };
  CHECK(reach(detail::plain_tiles(l)) == n);
  CHECK(reach(detail::outgoing_tiles(l, exact)) == n);
  CHECK(reach(detail::outgoing_tiles(l, signs)) == n);
  CHECK(reach(detail::outgoing_group_tiles(l, grouped)) == n);
  CHECK(reach(detail::outgoing_code_tiles(l, grouped)) == n);
  CHECK(reach(detail::owner_tiles(l, grouped, grouped, 1)) == grouped.elements(1));
  detail::group_blocks const sums(detail::outgoing_group_tiles(l, grouped), 1);
  CHECK(sums.first == std::vector<index>{0, (n + block - 1) / block});
  CHECK(sums.blocks.back().tile == sums.count() - 1);
  CHECK(sums.blocks.back().count == 5);
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

/// What steps enqueue, each with its number: launches by kernel and phase, copies, fills.
using work = std::map<std::string, std::size_t>;

/// The work of the steps 1, 2, ... of one rank.
template <class Optimizer>
std::vector<work> work_of_steps(int steps, typename Optimizer::options_type const& options = {}) {
  constexpr std::size_t n = 5000;
  auto const so_far = [] {
    work all = simt::launches();
    for (char const* call : {"cudaMemcpyAsync", "cudaMemsetAsync"}) all[call] = simt::calls(call);
    return all;
  };
  device_stream const stream;
  device_array<float> const x(n), g(n);
  x.put(flat(n, 0.5f).data(), stream);
  g.put(noisy_gradient(3, 0, 1, n).data(), stream);
  cuda_thread_group group(1);
  Optimizer o({{"x", {}, x.span(), g.span()}}, options, group.rank(0, stream), cuda_backend(stream));
  std::vector<work> all;
  for (int step = 1; step <= steps; ++step) {
    work const before = so_far();
    (void)o.step(1e-2);
    work now = so_far();
    for (auto const& [name, count] : before) {
      if ((now[name] -= count) == 0) now.erase(name);
    }
    all.push_back(now);
  }
  return all;
}

/// Passes over elements of a step, and the launches of one thread block that every step or exchange has.
work with_small_ones(std::size_t exchanges, work passes) {
  passes.insert({{"begin_kernel", 1},
                 {"gradient_kernel in range zoadam: gradient", 1},
                 {"judge_kernel in range zoadam: gradient", 1},
                 {"refresh_kernel", 1}});
  for (char const* name : {"headers_up_kernel", "read_headers_up_kernel", "header_down_kernel",
                           "read_headers_down_kernel", "owner_kernel in range zoadam: owner"}) {
    if (exchanges > 0) passes[name] = exchanges;
  }
  passes["cudaMemcpyAsync"] = 1 + 2 * exchanges;  // the report, and the own message of each collective
  return passes;
}

void check_work(std::vector<work> const& done, std::vector<work> const& expected) {
  REQUIRE(done.size() == expected.size());
  for (std::size_t step = 0; step < done.size(); ++step) {
    std::string all;
    for (auto const& [name, count] : done[step]) all += std::to_string(count) + " " + name + "\n";
    INFO("step " << step + 1 << ":\n" << all);
    CHECK(done[step] == expected[step]);
  }
}

TEST_CASE("each loop is one launch: a second pass over memory would be another") {
  char const *const local = "segment_kernel in range zoadam: local step",
                    *const worker = "segment_kernel in range zoadam: worker side",
                    *const apply = "segment_kernel in range zoadam: apply";
  // A variance round with an exchange, an exchange, a local step, an exchange that closes a window of two.
  auto const four_steps = [](auto options) {
    options.sync = {1, 1, 2};
    options.state.variance_schedule.stop = 1;
    return options;
  };
  auto const four_works = [&](work const& scales) {
    work first{{worker, 2}, {apply, 1}, {"refresh_kernel", 2}}, exchange{{worker, 1}, {apply, 1}};
    first.insert(scales.begin(), scales.end());
    exchange.insert(scales.begin(), scales.end());
    return std::vector{with_small_ones(2, first), with_small_ones(1, exchange), with_small_ones(0, {{local, 1}}),
                       with_small_ones(1, exchange)};
  };
  using zero_one = twin<zero_one_adam<>>::device<>;
  check_work(work_of_steps<zero_one>(4, four_steps(zero_one::options_type{})), four_works({}));
  // A scale of more than a tile waits for all of the group: further passes, on both sides.
  using paper = twin<zero_one_adam_paper<>>::device<>;
  work scales;
  for (char const* kernel : {"group_scales_kernel", "group_codes_kernel"}) {
    for (char const* side : {"worker side", "owner"}) scales[std::string(kernel) + " in range zoadam: " + side] = 1;
  }
  check_work(work_of_steps<paper>(4, four_steps(paper::options_type{})), four_works(scales));

  // The loop that takes in the mean takes the step, be the mean exact or in one bit.
  using onebit = twin<onebit_adam<>>::device<>;
  onebit::options_type freezing;
  freezing.state.freeze.step = 1;
  check_work(work_of_steps<onebit>(2, freezing),
             {with_small_ones(1, {{worker, 1}, {apply, 1}, {"refresh_kernel", 2}}),
              with_small_ones(1, {{worker, 1}, {apply, 1}})});
  check_work(work_of_steps<twin<adam<>>::device<>>(1),
             {with_small_ones(1, {{worker, 1}, {apply, 1}, {"refresh_kernel", 2}})});

  // Adam without an exchange, then with one.
  using averaged = twin<local_adam<>>::device<>;
  averaged::options_type rarely;
  rarely.sync.interval = 2;
  check_work(work_of_steps<averaged>(2, rarely),
             {with_small_ones(0, {{local, 1}, {"refresh_kernel", 2}}),
              with_small_ones(1, {{worker, 1}, {apply, 1}, {"refresh_kernel", 2}})});
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
