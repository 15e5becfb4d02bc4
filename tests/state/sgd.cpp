// SPDX-License-Identifier: Apache-2.0
// SGD, momentum and Nesterov against PyTorch; local steps and compressed gradients against plain references.
#include "zoadam/state/sgd.hpp"

#include "suite/mean_gradient.hpp"
#include "suite/oracle.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using descent = sgd<thread_transport>;
using heavy = momentum_sgd<thread_transport>;
using ahead = nesterov_sgd<thread_transport>;
using compressed = threaded<sign_with_feedback<block<32>>, every_step, ef_momentum_state<>>;

template <class Optimizer>
typename Optimizer::options_type with_momentum(double beta1) {
  typename Optimizer::options_type o;
  o.beta1 = beta1;
  return o;
}
template <template <class...> class Alias>
void compare_alias(std::string const& name, double beta1, double weight_decay) {
  auto const compare = [&]<class Optimizer>(std::type_identity<Optimizer>) {
    auto o = with_momentum<Optimizer>(beta1);
    o.weight_decay = weight_decay;
    compare_with_pytorch<Optimizer>(name, o);
  };
  compare(std::type_identity<Alias<thread_transport>>{});
  compare(std::type_identity<Alias<single_transport>>{});
}

TEST_CASE("sgd: 50 steps of PyTorch") {
  compare_alias<sgd>("sgd", 0.9, 0.05);
  compare_alias<momentum_sgd>("momentum_sgd", 0.9, 0);
  compare_alias<nesterov_sgd>("nesterov_sgd", 0.8, 0);
}

TEST_CASE_TEMPLATE("sgd: elements without gradients", Optimizer, descent, heavy, ahead, compressed,
                   threaded<identity_quantizer, fixed_interval, local_momentum_state>) {
  check_zero_gradients<Optimizer>();
}

TEST_CASE("sgd: missing gradients") {
  auto const momentum = [](auto& o, std::size_t k) { return double(o.values(at::momentum)[k]); };
  check_missing_gradients<descent>([](auto&, std::size_t) { return 0.0; });
  check_missing_gradients<heavy>(momentum);
  check_missing_gradients<ahead>([&](auto& o, std::size_t k) { return 0.9 * momentum(o, k); });
}

TEST_CASE("sgd: gradients in 16 bits") {
  check_16_bits<descent, threaded<cast_quantizer<float16>, every_step, sgd_state>>();
}

TEST_CASE("sgd: it remembers nothing but what it says") {
  auto const bytes = []<class Optimizer>(std::type_identity<Optimizer>) {
    buffers mine({1000}, {}, [](std::size_t) { return 1.0f; });
    return make<Optimizer>(mine, {}, single_transport{}).memory().fields;
  };
  CHECK(bytes(std::type_identity<sgd<>>{}) == 0);
  CHECK(bytes(std::type_identity<momentum_sgd<>>{}) == bytes(std::type_identity<nesterov_sgd<>>{}));
}

// Local steps: each worker for itself, x the mean after every `interval` steps.
template <class State>
void compare_local(bool const has_momentum) {
  using optimizer_type = threaded<identity_quantizer, fixed_interval, State>;
  job<optimizer_type> run;
  run.ranks = 3;
  run.sizes = {50, 0, 41};
  run.settings.weight_decay = 0.3;
  run.settings.beta1 = 0.8;
  std::size_t const n = elements_of(run);
  std::vector<std::vector<std::vector<double>>> expected;
  reference::per_worker<double> x(3, start_of(run)), m(3, reference::array<double>(n));
  for (int t = 1; t <= run.steps; ++t) {
    auto const g = gradients_of(run, t);
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t k = 0; k < n; ++k) {
        m[i][k] = (has_momentum ? 0.8 : 0.0) * m[i][k] + g[i][k];
        x[i][k] -= run.rate(t) * (m[i][k] + 0.3 * x[i][k]);
      }
    }
    if (t % run.settings.sync.interval == 0) x.assign(3, reference::exact_mean(x));
    expected.push_back(x);
  }
  std::atomic<int> wrong{0};
  run.after = [&](int step, optimizer_type& o, step_report const&, buffers& mine) {
    flat const got = mine.parameters();
    for (std::size_t k = 0; k < n; ++k) {
      wrong += !(std::abs(double(got[k]) - expected[nth(step - 1)][nth(o.rank())][k]) < 1e-6);
    }
  };
  auto const last = run.run();
  CHECK(wrong == 0);
  CHECK(same_bits(last[0], last[2]));
}
TEST_CASE("sgd: local steps") {
  compare_local<local_sgd_state>(false);
  compare_local<local_momentum_state>(true);
}

TEST_CASE("sgd: a worker without a gradient keeps its momentum in local steps") {
  auto run = job<threaded<identity_quantizer, fixed_interval, local_momentum_state>>{};
  run.adjust = [](int step, flat& g) {
    if (step == 2) g[0] = std::numeric_limits<float>::infinity();
  };
  run.steps = 2;
  std::vector<flat> m;
  run.after = [&](int, auto& o, step_report const&, buffers&) { m.push_back(copy_of(o.values(at::momentum))); };
  (void)run.run();
  CHECK(same_bits(m[0], m[1]));
}

// Compressed gradients: m is a sum of compressed means.
TEST_CASE("sgd: compressed momentum equals its reference") {
  for (int const ranks : {1, 2, 3}) {
    job<compressed> run;
    run.ranks = ranks;
    run.sizes = {70, 0, 33, 1};
    run.settings.beta1 = 0.8;
    run.settings.weight_decay = 0.2;
    run.settings.state.variance_schedule = {2, 11};
    run.adjust = [](int step, flat& g) {  // some elements join in late, others never
      for (std::size_t k = 1; k < g.size(); k += 3)
        if (step < 3 + static_cast<int>(k % 4) || k % 5 == 0) g[k] = 0;
    };
    compare_with_reference(run, [](job<compressed> const& r, std::vector<std::vector<expectation>>& expected) {
      reference::adam_options o;
      copy_options(r, o);
      std::size_t const n = elements_of(r);
      reference::compressed_mean<double> mean(shape_of(r));
      reference::variance<double> second(o, n);
      auto x = start_of(r);
      reference::array<double> m(n);
      for (int t = 1; t <= r.steps; ++t) {
        auto const g = gradients_of(r, t);
        if (reference::doubling_interval{2, 11}.due(t)) second.update(reference::exact_mean(g));
        auto const c = mean(g, second.active());
        for (std::size_t k = 0; k < n; ++k) {
          m[k] = 0.8 * m[k] + c[k];
          x[k] -= r.rate(t) * (m[k] + 0.2 * x[k]);
        }
        expected.push_back(std::vector<expectation>(nth(r.ranks), {x, m, second.v}));
      }
      return mean.margin;
    });
  }
}

TEST_CASE("sgd: compressed momentum: one bit and few full rounds") {
  auto run = job<compressed>{};
  run.ranks = 2;
  run.sizes = {32 * 1024};
  run.settings.state.variance_schedule = {1, 5};
  index rounds = 0, bytes = 0;
  run.after = [&](int, compressed& o, step_report const& r, buffers&) {
    if (o.rank() != 0) return;
    rounds += r.variance_updated;
    bytes += r.payload_bytes;
  };
  (void)run.run();
  CHECK(rounds == 3);  // at steps 1, 2 and 4
  CHECK(bytes == 3 * 4 * run.sizes[0] + 20 * (run.sizes[0] / 8 + 4 * run.sizes[0] / 32));
}

}  // namespace
