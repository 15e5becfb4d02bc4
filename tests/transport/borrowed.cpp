// SPDX-License-Identifier: Apache-2.0
#include "zoadam/transport/borrowed.hpp"

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

static_assert(transport<borrowed<thread_transport>>);
static_assert(transport<borrowed<single_transport>>);

TEST_CASE("borrowed: two optimizers take turns on one transport") {
  using exact = optimizer<identity_quantizer, every_step, adam_state, cpu_backend, borrowed<thread_transport>>;
  std::vector<flat> result(3);
  on_all_ranks(3, [&](thread_transport link) {
    int const rank = link.rank();
    flat x(50, 1.0f), y(70, 2.0f), g = noisy_gradient(1, rank, 1, 70);
    std::span<float const> const gradient(g);
    exact a({{"x", {}, x, gradient.first(50)}}, {}, borrowed(link));
    exact b({{"y", {}, y, gradient}}, {}, borrowed(link));
    for (int t = 0; t < 5; ++t) {
      (void)a.step(1e-2);
      (void)b.step(1e-2);
    }
    CHECK(a.workers() == 3);
    CHECK(a.bytes_sent() == link.bytes_sent());
    CHECK(a.bytes_sent() > 0);
    exact moved = std::move(b);
    CHECK(b.workers() == 0);
    x.insert(x.end(), y.begin(), y.end());
    result[nth(rank)] = x;
  });
  for (flat const& each : result) CHECK(same_bits(each, result[0]));
  CHECK(result[0][0] != 1.0f);
}

TEST_CASE("borrowed: what has failed for one has failed for all") {
  using exact = optimizer<identity_quantizer, every_step, adam_state, cpu_backend, borrowed<single_transport>>;
  single_transport link;
  flat x(50), y(50), g(50, 1.0f);
  std::span<float const> const gradient(g);
  exact a({{"x", {}, x, gradient}}, {}, borrowed(link));
  exact b({{"y", {}, y, gradient}}, {}, borrowed(link));
  a.abort();
  CHECK(ending_of([&] { (void)a.step(1e-2); }).what == outcome::poisoned);
  CHECK(ending_of([&] { (void)b.step(1e-2); }).what == outcome::aborted);
}

}  // namespace
