// SPDX-License-Identifier: Apache-2.0
// One bit per element and one scale per group.
#include "zoadam/quantizer/sign.hpp"

#include "quantizer/suite.hpp"

#include <cmath>

namespace {

using namespace quantizer_suite;
using zoadam::index;
using zoadam::sign_quantizer;
using by_mean = sign_quantizer<>;
using by_root = sign_quantizer<zoadam::whole, zoadam::l2>;

TEST_CASE_TEMPLATE_INVOKE(every_lane, by_mean, by_root);
TEST_CASE_TEMPLATE_INVOKE(additive, by_mean, by_root);
TEST_CASE_TEMPLATE_INVOKE(zeros, by_mean, by_root);
TEST_CASE_TEMPLATE_INVOKE(keeping_zero, by_mean, by_root);

using lane = zoadam::lane_t<zoadam::isa::native>;

template <class Quantizer>
std::vector<float> there_and_back(std::vector<float> const& c) {
  float const scale = scale_of<Quantizer>(c);
  return decoded<Quantizer, lane>(encoded<Quantizer, lane>(c, scale), 0, static_cast<index>(c.size()), scale);
}

double norm(std::vector<float> const& a) {
  double sum = 0;
  for (float x : a) sum += double(x) * double(x);
  return std::sqrt(sum);
}

TEST_CASE("the message: element k in bit k mod 32, 1 = negative, -0 positive, padding 0") {
  std::vector<float> c(40, 1.0f);
  c[0] = -1.0f;
  c[1] = -0.0f;
  c[2] = 0.0f;
  c[5] = -3.0f;
  c[31] = -1e-30f;
  c[33] = -1.0f;
  c[39] = -1.0f;
  auto const payload = encoded<by_mean, lane>(c, 1.0f);
  REQUIRE(payload.size() == 8);
  std::uint32_t words[2];
  std::memcpy(words, payload.data(), 8);
  CHECK(words[0] == 0x80000021u);
  CHECK(words[1] == 0x00000082u);
}

TEST_CASE("decoded values are plus or minus the scale") {
  auto const c = values(1000, 2);
  float const scale = scale_of<by_mean>(c);
  auto const out = there_and_back<by_mean>(c);
  for (std::size_t i = 0; i < c.size(); ++i) CHECK(out[i] == (c[i] < 0 ? -scale : scale));
}

TEST_CASE("with l1 the error is no longer than the input; its square is |c|^2 - |c|_1^2 / n") {
  for (index const n : {index{1}, index{2}, index{33}, index{300}, index{2048}}) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      auto const c = values(n, 100 + seed);
      auto const out = there_and_back<by_mean>(c);
      std::vector<float> error(c.size());
      double sum = 0;
      for (std::size_t i = 0; i < c.size(); ++i) {
        error[i] = c[i] - out[i];
        sum += std::abs(double(c[i]));
      }
      CHECK(norm(error) <= norm(c) * (1 + 1e-6));
      double const expected = norm(c) * norm(c) - sum * sum / double(n);
      CHECK(std::abs(norm(error) * norm(error) - expected) <= 1e-5 * norm(c) * norm(c));
    }
  }
}

TEST_CASE("with l2 decoded values have the input's length, and the error may be longer than the input") {
  auto const c = values(300, 8);
  CHECK(std::abs(norm(there_and_back<by_root>(c)) / norm(c) - 1) < 1e-6);
  std::vector<float> spike(300, 0.0f);
  spike[0] = 1.0f;
  auto const out = there_and_back<by_root>(spike);
  std::vector<float> error(300);
  for (std::size_t i = 0; i < 300; ++i) error[i] = spike[i] - out[i];
  CHECK(norm(error) > norm(spike));
}

TEST_CASE("case 25: a group of one or three equal elements comes back as it was") {
  for (index const n : {index{1}, index{3}}) {
    CHECK(there_and_back<by_mean>(std::vector<float>(nth(n), 1.0f)) == std::vector<float>(nth(n), 1.0f));
    CHECK(there_and_back<by_root>(std::vector<float>(nth(n), -1.0f)) == std::vector<float>(nth(n), -1.0f));
  }
}

TEST_CASE("case 4: the scale of nothing is 0, not 0 / 0") {
  CHECK(zoadam::l1::scale(0, 0) == 0.0f);
  CHECK(zoadam::l2::scale(0, 0) == 0.0f);
  CHECK(zoadam::l1::scale(0, 10) == 0.0f);
  CHECK(zoadam::l1::scale(6, 3) == 2.0f);
  CHECK(zoadam::l2::scale(12, 3) == 2.0f);
}

TEST_CASE("one bit per element") {
  CHECK(by_mean::payload_bytes(2048) == 256);
  CHECK(by_mean::payload_bytes(1) == 4);
  CHECK(by_mean::payload_bytes(0) == 0);
  CHECK(by_mean::payload_bytes((index{1} << 31) + 5) == (index{1} << 28) + 4);  // case 18
}

}  // namespace
