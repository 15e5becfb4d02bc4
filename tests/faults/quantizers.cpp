// SPDX-License-Identifier: Apache-2.0
// Faults of quantizers, seen from outside: through the compressed mean.
#include <atomic>

#include "suite/job.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

template <class Quantizer>
using mean_of = threaded<Quantizer, every_step, mean_state>;

/// The bound that each quantizer documents, for a group and for both phases of a mean of equal inputs.
template <class Quantizer>
double bound(flat const& c) {
  double square = 0;
  for (float const x : c) square += double(x) * double(x);
  if constexpr (std::is_same_v<Quantizer, identity_quantizer>)
    return std::sqrt(square) * 0x1p-22;  // sums of eight round
  if constexpr (std::is_same_v<Quantizer, cast_quantizer<bfloat16>>) return std::sqrt(square) * 0x1p-9;
  if constexpr (std::is_same_v<Quantizer, cast_quantizer<float16>>) return std::sqrt(square) * 0x1p-12;
  return std::sqrt(square);
}

template <class Quantizer>
flat one_mean(flat const& g, int ranks) {
  job<mean_of<Quantizer>> run;
  run.sizes = {static_cast<index>(g.size())};
  run.ranks = ranks;
  run.steps = 1;
  run.gradient = [&](int, int, std::size_t) { return g; };
  auto const all = run.run();
  for (flat const& x : all) CHECK(same_bits(x, all[0]));
  return all[0];
}

double distance(flat const& a, flat const& b) {
  double square = 0;
  for (std::size_t k = 0; k < a.size(); ++k) square += std::pow(double(a[k]) - double(b[k]), 2);
  return std::sqrt(square);
}

TEST_CASE("case 14: error feedback is used: 100 means of [1, -0.1] on one rank") {
  using optimizer_type =
      placed<optimizer<sign_with_feedback<>, every_step, mean_state, cpu_backend, single_transport>>;
  job<optimizer_type> run;
  run.sizes = {2};
  run.steps = 100;
  run.gradient = [](int, int, std::size_t) { return flat{1, -0.1f}; };
  double sum[2] = {0, 0}, scale = 0;
  int wrong = 0;
  run.after = [&](int step, optimizer_type&, step_report const&, buffers& mine) {
    for (std::size_t k = 0; k < 2; ++k) {
      double const x = double(mine.parameter[0][k]);
      sum[k] += x;
      scale = std::max(scale, std::abs(x));
      wrong += std::abs(sum[k] - step * (k == 0 ? 1.0 : -double(0.1f))) > scale + 1e-4;
    }
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(scale < 2.5);
}

TEST_CASE("case 14: without it the small element is never heard") {
  // What the test above would see if errors were dropped: both magnitudes are 0.55.
  using optimizer_type = placed<optimizer<sign_quantizer<>, every_step, mean_state, cpu_backend, single_transport>>;
  job<optimizer_type> run;
  run.sizes = {2};
  run.gradient = [](int, int, std::size_t) { return flat{1, -0.1f}; };
  CHECK(same_bits(run.run()[0], {0.55f, -0.55f}));
}

TEST_CASE_TEMPLATE("case 15: eight ranks with the same gradient: the error stays within the documented bound",
                   Quantizer, identity_quantizer, cast_quantizer<bfloat16>, cast_quantizer<float16>,
                   sign_quantizer<block<1024>>, sign_with_feedback<block<1024>>, sign_quantizer<whole>,
                   sign_with_feedback<per_tensor>) {
  flat constant(1024, 0.75f), varied(1024);
  for (std::size_t k = 0; k < 1024; ++k) varied[k] = noise(7, k);
  CHECK(same_bits(one_mean<Quantizer>(constant, 8), constant));
  CHECK(distance(one_mean<Quantizer>(varied, 8), varied) <= bound<Quantizer>(varied));
  if (Quantizer::has_scale) CHECK(distance(one_mean<Quantizer>(varied, 8), varied) >= 0.1 * bound<Quantizer>(varied));
}

TEST_CASE_TEMPLATE("case 15: over rounds, the sum stays within a bound that does not grow", Quantizer,
                   sign_with_feedback<block<1024>>, sign_with_feedback<whole>) {
  job<mean_of<Quantizer>> run;
  run.sizes = {1024};
  run.ranks = 8;
  run.steps = 60;
  run.gradient = [](int, int, std::size_t n) {
    flat g(n);
    for (std::size_t k = 0; k < n; ++k) g[k] = noise(7, k);
    return g;
  };
  std::vector<double> sum(1024);
  double early = 0, late = 0;
  run.after = [&](int step, auto& o, step_report const&, buffers& mine) {
    if (o.rank() != 0) return;
    double square = 0;
    for (std::size_t k = 0; k < 1024; ++k) {
      sum[k] += double(mine.parameter[0][k]);
      square += std::pow(sum[k] - step * double(noise(7, k)), 2);
    }
    (step <= 30 ? early : late) = std::max(step <= 30 ? early : late, std::sqrt(square));
  };
  (void)run.run();
  CHECK(late < 2 * early);
}

template <class Quantizer>
void expect_first_output_of_one() {
  for (std::size_t const n : std::initializer_list<std::size_t>{1, 3})
    CHECK(same_bits(one_mean<Quantizer>(flat(n, 1.0f), 2), flat(n, 1.0f)));
}
TEST_CASE_TEMPLATE("case 25: padding does not dilute the scale: the first output of 1.0 is 1.0", Quantizer,
                   sign_with_feedback<>, sign_with_feedback<per_tensor>, sign_with_feedback<whole>,
                   sign_with_feedback<block<>, l2>, sign_with_feedback<whole, l2>, sign_quantizer<>,
                   identity_quantizer, cast_quantizer<bfloat16>) {
  expect_first_output_of_one<Quantizer>();
}

TEST_CASE_TEMPLATE("case 26: all-negative, constant and single inputs", Quantizer, identity_quantizer,
                   cast_quantizer<bfloat16>, cast_quantizer<float16>, sign_quantizer<>, sign_with_feedback<>,
                   sign_with_feedback<whole, l2>, sign_with_feedback<per_tensor>) {
  flat negative(1001);
  for (std::size_t k = 0; k < negative.size(); ++k) negative[k] = -1000 + 0.0005f * static_cast<float>(k);
  flat const got = one_mean<Quantizer>(negative, 2);
  CHECK(all_finite(got));
  CHECK(distance(got, negative) <= bound<Quantizer>(negative));
  double worst = 0;
  for (std::size_t k = 0; k < got.size(); ++k) worst = larger(worst, std::abs(double(got[k]) - double(negative[k])));
  CHECK(worst <= (std::is_same_v<Quantizer, cast_quantizer<bfloat16>> ? 2.0 : 0.2501));

  for (float const value : {-1000.0f, -0.5f, 0.0f, 3.0f}) {
    for (std::size_t const n : std::initializer_list<std::size_t>{1, 2, 33, 4096}) {
      flat const constant(n, value);
      CHECK(same_bits(one_mean<Quantizer>(constant, 2), constant));
    }
  }
}

}  // namespace
