// SPDX-License-Identifier: Apache-2.0
// 16 bits per element on the wire.
#include "zoadam/quantizer/cast.hpp"

#include "quantizer/suite.hpp"

#include <cmath>

namespace {

using namespace quantizer_suite;
using zoadam::bfloat16;
using zoadam::cast_quantizer;
using zoadam::float16;
using zoadam::index;

TEST_CASE_TEMPLATE_INVOKE(every_lane, cast_quantizer<bfloat16>, cast_quantizer<float16>);
TEST_CASE_TEMPLATE_INVOKE(additive, cast_quantizer<bfloat16>, cast_quantizer<float16>);
TEST_CASE_TEMPLATE_INVOKE(zeros, cast_quantizer<bfloat16>, cast_quantizer<float16>);
TEST_CASE_TEMPLATE_INVOKE(keeping_zero, cast_quantizer<bfloat16>, cast_quantizer<float16>);

template <class Quantizer>
std::vector<float> there_and_back(std::vector<float> const& c) {
  using lane = zoadam::lane_t<zoadam::isa::native>;
  auto const payload = encoded<Quantizer, lane>(c, 0);
  CHECK(payload.size() == 2 * c.size());
  return decoded<Quantizer, lane>(payload, 0, static_cast<index>(c.size()), 0);
}

template <class Quantizer>
double largest_relative_error(std::vector<float> const& c) {
  auto const out = there_and_back<Quantizer>(c);
  double largest = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i] == 0) continue;
    largest = std::max(largest, std::abs(double(out[i]) - double(c[i])) / std::abs(double(c[i])));
  }
  return largest;
}

TEST_CASE("the stated accuracy is reached and kept") {
  auto const c = values(20000, 5);  // magnitudes within the normal range of both formats
  double const brief = largest_relative_error<cast_quantizer<bfloat16>>(c);
  double const half = largest_relative_error<cast_quantizer<float16>>(c);
  CHECK(brief <= 0x1p-8);
  CHECK(brief > 0x1p-9);
  CHECK(half <= 0x1p-11);
  CHECK(half > 0x1p-12);
}

TEST_CASE("case 26: large and constant blocks stay within the bound; float16 saturates") {
  std::vector<float> block(300);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = -1000.0f + 0.0017f * static_cast<float>(i);
  CHECK(largest_relative_error<cast_quantizer<bfloat16>>(block) <= 0x1p-8);
  CHECK(largest_relative_error<cast_quantizer<float16>>(block) <= 0x1p-11);
  CHECK(there_and_back<cast_quantizer<float16>>({1e30f, -1e30f, 65504.0f}) ==
        std::vector<float>{65504.0f, -65504.0f, 65504.0f});
}

}  // namespace
