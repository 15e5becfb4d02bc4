// SPDX-License-Identifier: Apache-2.0
// The CPU backend: memory, hashes, and the same bits for every instruction set, thread count and alignment.
#include "zoadam/backend/cpu.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "zoadam/aliases.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/transport/single.hpp"

namespace {

using zoadam::basic_cpu_backend;
using zoadam::index;

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }

template <class F>
void for_every_set(F const& f) {
  f.template operator()<zoadam::isa::scalar>();
#if defined(ZOADAM_HAS_SSE2)
  f.template operator()<zoadam::isa::sse2>();
#endif
#if defined(ZOADAM_HAS_AVX2)
  f.template operator()<zoadam::isa::avx2>();
#endif
#if defined(ZOADAM_HAS_AVX512)
  f.template operator()<zoadam::isa::avx512>();
#endif
}

TEST_CASE("memory is zeroed and aligned to 64 bytes; none is asked for none") {
  zoadam::cpu_backend const backend;
  for (index const bytes : {1, 63, 64, 65, 4096, 100001}) {
    auto const memory = backend.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0);
    bool zero = true;
    for (index i = 0; i < bytes; ++i) zero &= memory.data()[i] == std::byte{0};
    CHECK(zero);
  }
  CHECK(backend.allocate(0).data() == nullptr);
}

TEST_CASE("working memory grows with the tile and the threads, and is counted") {
  zoadam::cpu_backend one(1), three(3);
  CHECK(one.workspace_bytes() == 0);
  one.reserve(2048);
  three.reserve(2048);
  CHECK(one.workspace_bytes() > 0);
  CHECK(three.workspace_bytes() == 3 * one.workspace_bytes());
  index const small = one.workspace_bytes();
  one.reserve(8192);
  CHECK(one.workspace_bytes() == 4 * small);
}

TEST_CASE("hashes of parts add up; a changed bit, value or place changes them") {
  std::mt19937 random(1);
  std::vector<float> x(1000);
  for (float& e : x) e = static_cast<float>(static_cast<std::int32_t>(random()));
  auto const hash = [](std::vector<float> const& v, index at = 0) {
    return zoadam::cpu_backend::hash(v.data(), static_cast<index>(v.size()), at);
  };
  auto const all = hash(x);
  CHECK(zoadam::cpu_backend::hash(x.data(), 300, 0) + zoadam::cpu_backend::hash(x.data() + 300, 700, 300) == all);
  CHECK(zoadam::cpu_backend::hash(x.data(), 0, 5) == 0);
  CHECK(hash(x, 1) != all);
  for (int bit = 0; bit < 32; ++bit) {
    auto y = x;
    y[17] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y[17]) ^ (std::uint32_t{1} << bit));
    CHECK(hash(y) != all);
  }
  auto y = x;
  std::swap(y[1], y[2]);
  CHECK(hash(y) != all);
  CHECK(hash({0.0f}) != hash({-0.0f}));
}

TEST_CASE("copy copies, and nothing of nothing") {
  std::vector<float> const from{1, 2, 3};
  std::vector<float> to(3);
  zoadam::cpu_backend::copy(from.data(), to.data(), 3);
  CHECK(to == from);
  zoadam::cpu_backend::copy(nullptr, nullptr, 0);
}

// All state after some steps, over tensors that begin `offset` floats into their memory.
template <class Optimizer>
std::vector<std::uint32_t> state_of(std::vector<index> const& sizes, index offset, int threads) {
  using namespace zoadam;
  std::vector<std::vector<float>> x, g;
  std::vector<tensor> tensors;
  std::mt19937 random(7);
  auto const value = [&] { return static_cast<float>(static_cast<std::int32_t>(random()) >> 8) * 0x1p-20f; };
  for (zoadam::index n : sizes) {
    x.emplace_back(nth(n + offset));
    g.emplace_back(nth(n + offset));
    for (zoadam::index i = 0; i < n; ++i) x.back()[nth(offset + i)] = value();
  }
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    tensors.push_back({std::to_string(t),
                       {},
                       std::span<float>(x[t]).subspan(nth(offset)),
                       std::span<float const>(g[t]).subspan(nth(offset))});
  }
  typename Optimizer::options_type options;
  options.max_norm = 3;
  options.weight_decay = 0.1;
  if constexpr (requires { options.sync.period; }) options.sync.period = 4;
  Optimizer optimizer(tensors, options, single_transport{}, typename Optimizer::backend_type(threads));
  for (int step = 0; step < 12; ++step) {
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      for (zoadam::index i = 0; i < sizes[t]; ++i) g[t][nth(offset + i)] = i % 5 == 2 ? 0.0f : value();
    }
    (void)optimizer.step(1e-2);
  }
  std::vector<std::uint32_t> state;
  auto const add = [&](std::span<float const> list) {
    for (float e : list) state.push_back(std::bit_cast<std::uint32_t>(e));
  };
  for (tensor const& t : tensors) add(t.parameter);
  detail::for_each_tag(typename Optimizer::fields::tags{}, [&](auto tag) { add(optimizer.values(tag)); });
  return state;
}

using zoadam::block;
using zoadam::error_feedback;
using zoadam::sign_quantizer;

template <class Isa>
using blocks = zoadam::zero_one_adam<zoadam::single_transport, basic_cpu_backend<Isa>>;
template <class Isa>
using small_blocks =
    zoadam::optimizer<error_feedback<sign_quantizer<block<32>>>, zoadam::local_steps, zoadam::frozen_variance_state<>,
                      basic_cpu_backend<Isa>, zoadam::single_transport>;
template <class Isa>
using one_group = zoadam::zero_one_adam_paper<zoadam::single_transport, basic_cpu_backend<Isa>>;
template <class Isa>
using exact = zoadam::adam<zoadam::single_transport, basic_cpu_backend<Isa>>;

template <template <class> class Composition>
void check_equal(std::vector<index> const& sizes) {
  auto const expected = state_of<Composition<zoadam::isa::scalar>>(sizes, 0, 1);
  for_every_set([&]<class Isa>() {
    for (index const offset : {0, 1, 7, 15}) {
      CAPTURE(Isa::name);
      CAPTURE(offset);
      CHECK(state_of<Composition<Isa>>(sizes, offset, offset == 7 ? 3 : 1) == expected);
    }
  });
}

TEST_CASE("case 19: instruction sets, threads and alignments give the same bits") {
  for (std::vector<index> const& sizes :
       {std::vector<index>{1}, {300}, {33, 0, 64}, {2048, 1}, {5000, 31, 2049}, {16, 15, 17, 127, 128, 129}}) {
    CAPTURE(sizes[0]);
    check_equal<blocks>(sizes);
    check_equal<one_group>(sizes);
    check_equal<exact>(sizes);
  }
}

TEST_CASE("many small blocks: one loop reads a result and writes messages that lie elsewhere in memory") {
  // 4,000 blocks: their scales alone are longer than the exact values of many blocks.
  auto const expected = state_of<small_blocks<zoadam::isa::native>>({128000}, 0, 1);
  CHECK(state_of<small_blocks<zoadam::isa::native>>({128000}, 0, 3) == expected);
  // The same blocks in two tensors.
  CHECK(state_of<small_blocks<zoadam::isa::native>>({64000, 64000}, 0, 2) == expected);
}

}  // namespace
