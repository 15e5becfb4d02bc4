// SPDX-License-Identifier: Apache-2.0
// AdaGrad, RMSProp, NAdam and AMSGrad against PyTorch, and what they do without gradients.
#include "zoadam/state/adaptive.hpp"

#include "suite/mean_gradient.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using sums = adagrad<thread_transport>;
using squares = rmsprop<thread_transport>;
using ahead = nadam<thread_transport>;
using maxima = amsgrad<thread_transport>;

template <template <class...> class Alias, class Set>
void compare_alias(std::string const& name, Set const& set) {
  auto const compare = [&]<class Optimizer>(std::type_identity<Optimizer>) {
    typename Optimizer::options_type o;
    set(o);
    compare_with_pytorch<Optimizer>(name, o);
  };
  compare(std::type_identity<Alias<thread_transport>>{});
  compare(std::type_identity<Alias<single_transport>>{});
}

TEST_CASE("adaptive: 50 steps of PyTorch") {
  compare_alias<adagrad>("adagrad", [](auto& o) { o.epsilon = 1e-10; });
  compare_alias<rmsprop>("rmsprop", [](auto& o) { o.beta2 = 0.99; });
  compare_alias<nadam>("nadam", [](auto& o) { o.weight_decay = 0.05; });
  compare_alias<amsgrad>("amsgrad", [](auto& o) { o.beta2 = 0.99, o.weight_decay = 0.05; });
}

TEST_CASE_TEMPLATE("adaptive: elements without gradients", Optimizer, sums, squares, ahead, maxima) {
  check_zero_gradients<Optimizer>();
}

// m / D, as Adam's steps without a gradient go by.
template <class Optimizer>
double old_direction(Optimizer& o, std::size_t k) {
  double const v = double(o.values(at::variance)[k]), m = double(o.values(at::momentum)[k]);
  return v > 0 ? m / (std::sqrt(v / (1 - std::pow(0.999, o.variance_updates()))) + 1e-8) : 0;
}

TEST_CASE("adaptive: missing gradients") {
  auto const nothing = [](auto&, std::size_t) { return 0.0; };
  check_missing_gradients<sums>(nothing);
  check_missing_gradients<squares>(nothing);
  check_missing_gradients<maxima>(
      [](auto& o, std::size_t k) { return old_direction(o, k) / (1 - std::pow(0.9, o.variance_updates())); });
  check_missing_gradients<ahead>([](auto& o, std::size_t k) {
    double mu = 0, product = 1;
    for (index i = 1; i <= o.variance_updates() + 1; ++i) {
      mu = 0.9 * (1 - 0.5 * std::pow(0.96, 0.004 * double(i)));
      product *= mu;
    }
    return mu / (1 - product) * old_direction(o, k);
  });
}

TEST_CASE("adaptive: gradients in 16 bits") {
  check_16_bits<ahead, threaded<cast_quantizer<bfloat16>, every_step, nadam_state>>();
}

TEST_CASE("adaptive: AMSGrad keeps the largest mean square") {
  job<maxima> run;
  run.settings.beta2 = 0.5;
  flat largest_seen(100);
  int wrong = 0, fallen = 0;
  run.after = [&](int, maxima& o, step_report const&, buffers&) {
    for (std::size_t k = 0; k < 100; ++k) {
      float const s = o.values(at::mean_square)[k];
      largest_seen[k] = std::max(largest_seen[k], s);
      wrong += o.values(at::variance)[k] != largest_seen[k];
      fallen += s < largest_seen[k];
    }
  };
  (void)run.run();
  CHECK(wrong == 0);
  CHECK(fallen > 0);
}

TEST_CASE("adaptive: NAdam's momentum_decay") {
  auto const run = [](double decay) {
    job<ahead> j;
    j.settings.state.momentum_decay = decay;
    return j.run()[0];
  };
  CHECK(!same_bits(run(0.004), run(0)));
  for (double const bad : {-0.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto const e = on_ranks(1, [&](thread_transport link) {
      buffers mine({3}, {}, [](std::size_t) { return 1.0f; });
      typename ahead::options_type o;
      o.state.momentum_decay = bad;
      (void)make<ahead>(mine, o, std::move(link));
    })[0];
    CHECK(e.what == outcome::argument);
    CHECK(mentions(e, "options.state.momentum_decay must be finite and >= 0"));
  }
}

}  // namespace
