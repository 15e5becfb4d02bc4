// SPDX-License-Identifier: Apache-2.0
// Case 19: SIMD tails and unaligned views. Every instruction set of this target against scalar code, bit for bit.
#include <cstring>

#include "suite/job.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

/// All bits that five steps leave behind: parameters, state, and what lies around the spans.
template <class Optimizer>
flat trace_of(std::size_t n, std::size_t offset, int threads = 1) {
  constexpr float guard = 123.25f;
  std::size_t const other = offset * 7 % 15 + 1;  // gradients are misaligned in another way
  flat x(n + 32, guard), g(n + 32, guard);
  for (std::size_t k = 0; k < n; ++k) x[offset + k] = 0.1f * noise(5, k);
  // Two tensors, so that the second one begins anywhere.
  std::size_t const cut = n / 3;
  std::span<float> const parameter(x.data() + offset, n);
  std::span<float const> const gradient(g.data() + other, n);
  typename Optimizer::options_type settings;
  if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 2;
  if constexpr (requires { settings.sync.period; }) settings.sync.period = 2;
  settings.weight_decay = 0.01;
  settings.max_norm = 1;
  flat all;
  {
    Optimizer o({{"a", {}, parameter.first(cut), gradient.first(cut)},
                 {"b", {}, parameter.subspan(cut), gradient.subspan(cut)}},
                settings, single_transport{}, typename Optimizer::backend_type(threads));
    for (int t = 1; t <= 5; ++t) {
      flat const values = noisy_gradient(n, 0, t, n);
      for (std::size_t k = 0; k < n; ++k) g[other + k] = k % 9 == 3 ? 0.0f : values[k];
      step_report const r = o.step(1e-2);
      all.push_back(static_cast<float>(r.gradient_norm));
      all.push_back(static_cast<float>(r.waiting));
    }
    detail::for_each_tag(typename Optimizer::fields::tags{}, [&](auto tag) {
      for (float const value : o.values(tag)) all.push_back(value);
    });
  }
  all.insert(all.end(), parameter.begin(), parameter.end());
  int touched = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (k < offset || k >= offset + n) touched += x[k] != guard;
    if (k < other || k >= other + n) touched += g[k] != guard;
  }
  all.push_back(static_cast<float>(touched));
  return all;
}

template <template <class> class Composition, class Isa>
void compare() {
  using tested = Composition<basic_cpu_backend<Isa>>;
  using plain = Composition<basic_cpu_backend<isa::scalar>>;
  int different = 0, touched = 0;
  auto const check = [&](std::size_t n, std::size_t offset) {
    flat const a = trace_of<tested>(n, offset), b = trace_of<plain>(n, 0);
    different += !same_bits(a, b);
    touched += a.back() != 0;
  };
  for (std::size_t n = 1; n <= 300; ++n) check(n, n % 15 + 1);
  for (std::size_t const n : std::initializer_list<std::size_t>{1, 5, 16, 31, 33, 128, 257, 4500})
    for (std::size_t offset = 1; offset <= 15; ++offset) check(n, offset);
  CHECK(different == 0);
  CHECK(touched == 0);
}

template <class Backend>
using by_block = zero_one_adam<single_transport, Backend>;
template <class Backend>
using by_small_block = optimizer<sign_with_feedback<block<64>, l2>, fixed_interval,
                                 frozen_variance_state<displacement<power::half>>, Backend, single_transport>;
template <class Backend>
using by_buffer = zero_one_adam_paper<single_transport, Backend>;
template <class Backend>
using onebit = optimizer<sign_with_feedback<per_tensor>, every_step, onebit_adam_state<>, Backend, single_transport>;
template <class Backend>
using half = optimizer<cast_quantizer<bfloat16>, every_step, adam_state, Backend, single_transport>;

template <class Backend>
using layerwise = lars<single_transport, Backend>;

template <class Isa>
void compare_all() {
  SUBCASE("block scales") { compare<by_block, Isa>(); }
  SUBCASE("small blocks, l2, p = 1/2") { compare<by_small_block, Isa>(); }
  SUBCASE("one scale") { compare<by_buffer, Isa>(); }
  SUBCASE("a scale for each tensor") { compare<onebit, Isa>(); }
  SUBCASE("16 bits") { compare<half, Isa>(); }
  SUBCASE("reductions per tensor") { compare<layerwise, Isa>(); }
}

#if defined(ZOADAM_HAS_SSE2)
TEST_CASE("case 19: sse2 equals scalar") { compare_all<isa::sse2>(); }
#endif
#if defined(ZOADAM_HAS_AVX2)
TEST_CASE("case 19: avx2 equals scalar") { compare_all<isa::avx2>(); }
#endif
#if defined(ZOADAM_HAS_AVX512)
TEST_CASE("case 19: avx512 equals scalar") { compare_all<isa::avx512>(); }
#endif
TEST_CASE("case 19: scalar code does not depend on alignment") { compare_all<isa::scalar>(); }

template <template <class> class Composition>
void compare_threads() {
  using tested = Composition<cpu_backend>;
  for (std::size_t const n : std::initializer_list<std::size_t>{1, 33, 700, 3 * 2048 + 5, 40000}) {
    flat const one = trace_of<tested>(n, 3);
    CHECK(same_bits(one, trace_of<tested>(n, 3, 2)));
    CHECK(same_bits(one, trace_of<tested>(n, 3, 3)));
    CHECK(one.back() == 0);
  }
}
TEST_CASE("one, two and three threads per rank give the same bits") {
  SUBCASE("block scales") { compare_threads<by_block>(); }
  SUBCASE("one scale") { compare_threads<by_buffer>(); }
  SUBCASE("a scale for each tensor") { compare_threads<onebit>(); }
  SUBCASE("16 bits") { compare_threads<half>(); }
}

}  // namespace
