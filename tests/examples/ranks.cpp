// SPDX-License-Identifier: Apache-2.0
// The example's ranks: results in rank order, and the failure of one rank named as it was.
#include "../../examples/ranks.hpp"

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

namespace {

// What the ranks say to each other in these tests: one byte each.
template <class Transport>
std::vector<std::byte> gather(Transport& link) {
  auto const n = static_cast<std::size_t>(link.size());
  std::vector<zoadam::index> offsets(n + 1);
  for (std::size_t i = 0; i <= n; ++i) offsets[i] = static_cast<zoadam::index>(i);
  std::byte const mine{static_cast<unsigned char>(link.rank() + 10)};
  std::vector<std::byte> all(n);
  link.all_gather(offsets, &mine, all.data());
  return all;
}

}  // namespace

TEST_CASE("every rank runs, and results come in rank order") {
  for (int const n : {1, 2, 5}) {
    auto const results = example::on_every_rank<int>(n, std::chrono::seconds(20), [](auto link) {
      example::rank_result<int> r{link.rank(), {}};
      for (std::byte const b : gather(link)) r.series.push_back(static_cast<float>(b));
      return r;
    });
    REQUIRE(results.size() == static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
      auto const& r = results[static_cast<std::size_t>(i)];
      CHECK(r.totals == i);
      REQUIRE(r.series.size() == static_cast<std::size_t>(n));
      for (int j = 0; j < n; ++j) CHECK(r.series[static_cast<std::size_t>(j)] == static_cast<float>(j + 10));
    }
  }
}

TEST_CASE("the exception is the failing rank's own, not that of a peer that noticed") {
  for (int failing = 0; failing < 3; ++failing) {
    CHECK_THROWS_WITH_AS(example::on_every_rank<int>(3, std::chrono::seconds(20),
                                                     [failing](auto link) {
                                                       gather(link);
                                                       if (link.rank() == failing)
                                                         throw std::runtime_error("rank fell over");
                                                       gather(link);
                                                       return example::rank_result<int>{};
                                                     }),
                         "rank fell over", std::runtime_error);
  }
}
