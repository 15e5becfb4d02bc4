// SPDX-License-Identifier: Apache-2.0
// Adafactor against optax.
#include "zoadam/state/adafactor.hpp"

#include "suite/factored.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using plain = adafactor<thread_transport>;
using with_momentum = optimizer<identity_quantizer, every_step, adafactor_state<true>, cpu_backend, thread_transport>;
using scalar = adafactor<thread_transport, basic_cpu_backend<isa::scalar>>;

TEST_CASE("adafactor: optax; with momentum, relative steps and weight decay too") {
  compare_with_peer<plain>("adafactor0", 0);
  compare_with_peer<with_momentum>("adafactor1", 0.1, [](auto& settings) { settings.state.relative_step = true; });
}

TEST_CASE("adafactor: threads, ranks and instruction sets") { check_bits<plain, scalar>(); }
TEST_CASE("adafactor: bad gradients") {
  check_bad_gradients<plain>();
  check_bad_gradients<with_momentum>();
}
TEST_CASE("adafactor: large gradients") { check_largest_gradients<plain>(); }
TEST_CASE("adafactor: the hash of replicas tells a bit of a mean square") {
  check_hash<plain>(at::row_mean_square);
  check_hash<plain>(at::column_mean_square);
  check_hash<plain>(at::matrix_mean_square);
}

TEST_CASE("adafactor: rows and columns of the last two axes, and of a vector its elements") {
  job<plain> run;
  set_shapes(run, {{1000, 500}, {4, 30, 20}, {77}, {0, 5}});
  run.steps = 0;
  run.at_end = [](plain& o, buffers&) {
    CHECK(o.values(at::row_mean_square).size() == 1000 + 120 + 77);
    CHECK(o.values(at::column_mean_square).size() == 500 + 80 + 1);
    CHECK(o.values(at::matrix_mean_square).size() == 1 + 4 + 1);
    CHECK(o.memory().fields == bytes_of_fields({1000 + 120 + 77, 500 + 80 + 1, 1 + 4 + 1, 4}));
  };
  (void)run.run();
}

// The order of every sum: terms into 128 partial sums, blocks of 2048, neighbours pairwise, blocks in float64.
template <class Real>
Real pairwise(std::vector<Real> p) {
  for (std::size_t stride = 1; stride < 128; stride *= 2)
    for (std::size_t i = 0; i < 128; i += 2 * stride) p[i] += p[i + stride];
  return p[0];
}
float mean_square(flat const& g) {
  std::vector<double> blocks(128);
  for (std::size_t b = 0; b < g.size(); b += 2048) {
    std::vector<float> partial(128);
    for (std::size_t k = b; k < std::min(g.size(), b + 2048); ++k) {
      float const square = g[k] * g[k];
      partial[k % 128] += square;
    }
    blocks[b / 2048 % 128] += double(pairwise(partial));
  }
  return static_cast<float>(pairwise(blocks) / double(g.size()) + 1e-30);
}

TEST_CASE("adafactor: sums are in the order of every sum, on columns too") {
  constexpr std::size_t rows = 2500, columns = 37;
  job<plain> run;
  set_shapes(run, {{rows, columns}});
  run.steps = 1;
  flat const g = noisy_gradient(9, 0, 1, rows * columns);
  run.gradient = [&](int, int, std::size_t) { return g; };
  run.at_end = [&](plain& o, buffers&) {
    flat row, column;
    for (std::size_t i = 0; i < rows; ++i) {
      auto const at = g.begin() + static_cast<std::ptrdiff_t>(i * columns);
      row.push_back(mean_square(flat(at, at + columns)));
    }
    for (std::size_t j = 0; j < columns; ++j) {
      flat each;
      for (std::size_t i = 0; i < rows; ++i) each.push_back(g[i * columns + j]);
      column.push_back(mean_square(each));
    }
    CHECK(same_bits(copy_of(o.values(at::row_mean_square)), row));
    CHECK(same_bits(copy_of(o.values(at::column_mean_square)), column));
    CHECK(same_bits(copy_of(o.values(at::matrix_mean_square)), {mean_square(g)}));
  };
  (void)run.run();
}

TEST_CASE("adafactor: clipping, and the scale of a parameter") {
  job<plain> run;
  set_shapes(run, {{2, 2}, {3}});
  run.steps = 1;
  run.start = [](std::size_t k) { return k < 4 ? 2.0f : 0.0f; };
  run.rate = [](int) { return 0.25; };
  run.gradient = [](int, int, std::size_t) { return flat{1, 1, 1, 1, 1, 1, 1}; };
  auto const scales = [&] {
    flat result;
    run.at_end = [&](plain& o, buffers&) { result = copy_of(o.values(at::step_scale)); };
    (void)run.run();
    return result;
  };
  CHECK(scales() == flat{0.5f, 0.25e-3f});
  run.settings.state.clipping_threshold = 0.5;  // the root mean square of u is 1
  CHECK(scales() == flat{0.25f, 0.125e-3f});
  run.settings.state.scale_parameter = false;
  CHECK(scales() == flat{0.125f, 0.125f});
  run.settings.state.clipping_threshold = 0;
  CHECK(scales() == flat{0.25f, 0.25f});
  run.settings.state.relative_step = true;
  run.rate = [](int) { return 4.0; };
  CHECK(scales() == flat{1.0f, 1.0f});
}

TEST_CASE("adafactor: powers by roots, and beta2 of an update") {
  for (double const power : {1e-3, 0.5, 0.8, 1.0})
    for (double const x : {1.0, 2.0, 3.0, 1e4, 1e9}) {
      CHECK(detail::inverse_power(f64(x), power).v == doctest::Approx(std::pow(x, -power)).epsilon(1e-12));
    }
  detail::hyper_numbers hyper{};
  hyper.decay_rate = 0.8;
  detail::progress now{};
  now.count = 1;
  CHECK(detail::coefficients_now(now, hyper, {}).beta2 == 0);
  now.count = 10;
  CHECK(detail::coefficients_now(now, hyper, {}).beta2 == doctest::Approx(1 - std::pow(10, -0.8)));
  CHECK(detail::coefficients_now(now, hyper, {}).updates == 10);
}

TEST_CASE("adafactor: settings that make no sense") {
  adafactor_state<> s;
  CHECK(s.defect() == nullptr);
  s.decay_rate = 0;
  CHECK(s.defect() != nullptr);
  s = {};
  s.epsilon1 = -1;
  CHECK(s.defect() != nullptr);
  s = {};
  s.clipping_threshold = std::numeric_limits<double>::infinity();
  CHECK(s.defect() != nullptr);
}

}  // namespace
