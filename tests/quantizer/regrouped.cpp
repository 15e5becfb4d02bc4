// SPDX-License-Identifier: Apache-2.0
#include "zoadam/quantizer/regrouped.hpp"

#include <doctest/doctest.h>

#include "zoadam/layout/partition.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"

namespace {

using namespace zoadam;
using zoadam::index;

template <class Quantizer, class Groups>
void check_same_chunks() {
  std::vector<float> x(3000);
  std::span<float> const all(x);
  layout const l({{"a", {}, all.first(700), {}}, {"b", {}, all.subspan(700, 0), {}}, {"c", {}, all.subspan(700), {}}},
                 1);
  for (int const ranks : {1, 2, 3, 5}) {
    partition<sign_quantizer<Groups>> const wanted(l, ranks);
    partition<regrouped<Quantizer, Groups>> const got(l, ranks);
    REQUIRE(got.pieces() == wanted.pieces());
    for (index k = 0; k < got.pieces(); ++k) {
      CHECK(got[k].first == wanted[k].first);
      CHECK(got[k].last == wanted[k].last);
      CHECK(got[k].owner == wanted[k].owner);
      CHECK(got[k].own == wanted[k].own);
    }
  }
}

TEST_CASE("regrouped: chunks of the groups, for every quantizer without a scale") {
  check_same_chunks<identity_quantizer, block<32>>();
  check_same_chunks<identity_quantizer, whole>();
  check_same_chunks<cast_quantizer<bfloat16>, per_tensor>();
  check_same_chunks<cast_quantizer<bfloat16>, block<>>();
}

}  // namespace
