// SPDX-License-Identifier: Apache-2.0
// Full precision on the wire.
#include "zoadam/quantizer/identity.hpp"

#include "quantizer/suite.hpp"

namespace {

using namespace quantizer_suite;
using zoadam::identity_quantizer;
using zoadam::index;

TEST_CASE_TEMPLATE_INVOKE(every_lane, identity_quantizer);
TEST_CASE_TEMPLATE_INVOKE(additive, identity_quantizer);
TEST_CASE_TEMPLATE_INVOKE(zeros, identity_quantizer);
TEST_CASE_TEMPLATE_INVOKE(keeping_zero, identity_quantizer);

TEST_CASE("every bit comes back, those of NaN and denormals too") {
  std::vector<float> c(257);
  for (std::size_t i = 0; i < c.size(); ++i) {
    c[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 16711935u));
  }
  using lane = zoadam::lane_t<zoadam::isa::native>;
  auto const payload = encoded<identity_quantizer, lane>(c, 0);
  CHECK(payload.size() == 4 * c.size());
  auto const out = decoded<identity_quantizer, lane>(payload, 0, 257, 0);
  CHECK(std::memcmp(out.data(), c.data(), 4 * c.size()) == 0);
}

}  // namespace
