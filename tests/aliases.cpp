// SPDX-License-Identifier: Apache-2.0
// Every alias against its plain reference, on random inputs.
#include "suite/oracle.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using zero_one = zero_one_adam<thread_transport>;
using paper = zero_one_adam_paper<thread_transport>;
using onebit = onebit_adam<thread_transport>;
using plain = adam<thread_transport>;
using local = local_adam<thread_transport>;

constexpr auto by_local_steps = [](index t, index last, double) {
  return reference::local_steps{3, 4, 4}.due(t, last);
};

template <class Optimizer>
auto reference_of() {
  if constexpr (std::is_same_v<Optimizer, zero_one>) {
    return expect_zero_one({}, by_local_steps);
  } else if constexpr (std::is_same_v<Optimizer, paper>) {
    reference::zero_one_options o;
    o.space = reference::exchange_space::momentum_sum;
    o.rule = reference::momentum_rule::replace;
    return expect_zero_one(o, by_local_steps);
  } else if constexpr (std::is_same_v<Optimizer, onebit>) {
    return expect_onebit();
  } else if constexpr (std::is_same_v<Optimizer, plain>) {
    return expect_adam();
  } else {
    return expect_local_adam();
  }
}

template <class Optimizer>
job<Optimizer> job_of(int ranks) {
  job<Optimizer> run;
  run.ranks = ranks;
  run.steps = 16;
  run.sizes = {70, 0, 33, 1, 160};
  if constexpr (requires { run.settings.sync.period; }) run.settings.sync = {3, 4, 4};
  if constexpr (requires { run.settings.state.freeze.step; }) run.settings.state.freeze.step = 5;
  if constexpr (requires { run.settings.state.variance_schedule; }) run.settings.state.variance_schedule.kappa = 2;
  run.rate = [](int t) { return 1e-2 / (1 + 0.1 * t); };
  return run;
}

TEST_CASE_TEMPLATE("aliases: defaults equal the reference", Optimizer, zero_one, paper, onebit, plain, local) {
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    compare_with_reference(job_of<Optimizer>(ranks), reference_of<Optimizer>());
  }
}

TEST_CASE_TEMPLATE("aliases: other hyper-parameters equal the reference", Optimizer, zero_one, paper, onebit, plain,
                   local) {
  auto run = job_of<Optimizer>(2);
  SUBCASE("epsilon inside") {
    run.settings.epsilon_inside = true;
    run.settings.epsilon = 1e-3;
  }
  SUBCASE("large epsilon") { run.settings.epsilon = 0.1; }
  SUBCASE("weight decay") { run.settings.weight_decay = 0.5; }
  SUBCASE("betas") {
    run.settings.beta1 = 0.5;
    run.settings.beta2 = 0.9;
  }
  SUBCASE("beta1 = 0") { run.settings.beta1 = 0; }
  SUBCASE("bias correction the other way") { run.settings.bias_correction = !run.settings.bias_correction; }
  SUBCASE("learning rate 0 at first, in between and for a whole window") {
    run.rate = [](int t) { return t <= 2 || t == 5 || (t >= 10 && t <= 13) ? 0.0 : 1e-2; };
  }
  compare_with_reference(run, reference_of<Optimizer>());
}

TEST_CASE("aliases: the limit on displacements") {
  for (double const limit : {0.0, 0.5, 1.0}) {
    CAPTURE(limit);
    auto run = job_of<zero_one>(2);
    run.settings.limit = limit;
    compare_with_reference(run, reference_of<zero_one>());
  }
}

TEST_CASE("aliases: a limit cuts, and more of a limit cuts more") {
  auto run = job_of<zero_one>(2);
  auto const one = run.run();
  run.settings.limit = 0.5;
  auto const half = run.run();
  run.settings.limit = 0;
  auto const off = run.run();
  CHECK(!same_bits(one[0], half[0]));
  CHECK(!same_bits(one[0], off[0]));
}

TEST_CASE_TEMPLATE("aliases: elements without a gradient at first join in with the variance", Optimizer, zero_one,
                   paper, onebit, plain) {
  auto run = job_of<Optimizer>(2);
  run.adjust = [](int step, flat& g) {
    for (std::size_t k = 1; k < g.size(); k += 3)
      if (step < 3 + static_cast<int>(k % 4)) g[k] = 0;
  };
  compare_with_reference(run, reference_of<Optimizer>());
}

TEST_CASE_TEMPLATE("aliases: a tensor without gradients counts as zeros", Optimizer, zero_one, paper, onebit, plain,
                   local) {
  auto run = job_of<Optimizer>(2);
  run.gradient = [](int rank, int step, std::size_t n) {
    flat g = noisy_gradient(3, rank, step, n);
    for (std::size_t k = 70; k < 103; ++k) g[k] = 0;
    return g;
  };
  auto const zeros = run.run();
  std::vector<flat> absent(2);
  on_all_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine(run.sizes, {}, run.start);
    auto list = mine.tensors();
    list[2].gradient = {};
    Optimizer o(list, run.settings, std::move(link));
    for (int t = 1; t <= run.steps; ++t) {
      mine.set_gradient(noisy_gradient(3, me, t, mine.elements()));
      (void)o.step(run.rate(t));
    }
    absent[nth(me)] = mine.parameters();
  });
  CHECK(same_bits(absent[0], zeros[0]));
  CHECK(same_bits(absent[1], zeros[1]));
}

// Scales for each tensor: nothing but the groups connects tensors, so each is a run of its own.
template <class Optimizer>
struct per_tensor_of;
template <class Groups, class Norm, class Sync, class State, class Backend, class Transport>
struct per_tensor_of<optimizer<error_feedback<sign_quantizer<Groups, Norm>>, Sync, State, Backend, Transport>> {
  using type = optimizer<sign_with_feedback<per_tensor, Norm>, Sync, State, Backend, Transport>;
};
template <class Sync, class State, class Backend, class Transport>
struct per_tensor_of<optimizer<identity_quantizer, Sync, State, Backend, Transport>> {
  using type = optimizer<identity_quantizer, Sync, State, Backend, Transport>;
};

TEST_CASE_TEMPLATE("aliases: groups with their own weight decay and learning rate", Alias, zero_one, paper, onebit,
                   plain, local) {
  using optimizer_type = typename per_tensor_of<Alias>::type;
  std::vector<index> const sizes{70, 33, 64};
  std::vector<parameter_group> const groups{{0.3, 1.0}, {0.0, 0.5}};
  auto together = job_of<optimizer_type>(3);
  together.sizes = sizes;
  together.groups = {1, 0, 1};
  together.settings.groups = groups;
  together.gradient = [](int rank, int step, std::size_t n) { return noisy_gradient(4, rank, step, n); };
  auto const x = together.run();
  std::size_t first = 0;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    parameter_group const& own = groups[nth(together.groups[t])];
    auto alone = job_of<optimizer_type>(3);
    alone.sizes = {sizes[t]};
    alone.settings.weight_decay = own.weight_decay;
    alone.rate = [&](int step) { return own.lr_factor * together.rate(step); };
    alone.start = [&](std::size_t k) { return together.start(first + k); };
    alone.gradient = [&](int rank, int step, std::size_t n) {
      flat const all = noisy_gradient(4, rank, step, 167);
      return flat(all.begin() + static_cast<std::ptrdiff_t>(first),
                  all.begin() + static_cast<std::ptrdiff_t>(first + n));
    };
    auto const y = alone.run();
    for (std::size_t i = 0; i < 3; ++i) {
      flat const part(x[i].begin() + static_cast<std::ptrdiff_t>(first),
                      x[i].begin() + static_cast<std::ptrdiff_t>(first + nth(sizes[t])));
      CHECK(same_bits(part, y[i]));
    }
    first += nth(sizes[t]);
  }
}

TEST_CASE("aliases: every alias is only a composition, and says which") {
  auto const name = []<class Optimizer>(std::type_identity<Optimizer>) {
    buffers mine({3}, {}, [](std::size_t) { return 1.0f; });
    typename Optimizer::options_type settings;
    if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 7;
    return make<Optimizer>(mine, settings, single_transport{}).name();
  };
  CHECK(name(std::type_identity<zero_one_adam<>>{}) ==
        "error_feedback sign l1 block(2048) local_steps(0, 512, 16) frozen_variance displacement(1) correct bfloat16 "
        "doubling_interval(8, never)");
  CHECK(name(std::type_identity<zero_one_adam_paper<>>{}) ==
        "error_feedback sign l1 whole local_steps(0, 512, 16) frozen_variance momentum_sum replace identity "
        "doubling_interval(8, never)");
  CHECK(name(std::type_identity<onebit_adam<>>{}) ==
        "error_feedback sign l1 block(2048) every_step onebit_adam freeze_at(7)");
  CHECK(name(std::type_identity<adam<>>{}) == "identity every_step adam");
  CHECK(name(std::type_identity<lamb<>>{}) == "identity every_step lamb(0, 0)");
  CHECK(name(std::type_identity<lars<>>{}) == "identity every_step lars(0.001)");
  CHECK(name(std::type_identity<onebit_lamb<>>{}) ==
        "error_feedback sign l1 block(2048) every_step onebit_lamb freeze_at(7) "
        "ratios(0.01, 10, 0.9, 0.5, 4, 0.1)");
  CHECK(name(std::type_identity<local_adam<>>{}) == "identity fixed_interval(4, 0) local_adam");
  CHECK(name(std::type_identity<sgd<>>{}) == "identity every_step sgd");
  CHECK(name(std::type_identity<momentum_sgd<>>{}) == "identity every_step momentum");
  CHECK(name(std::type_identity<nesterov_sgd<>>{}) == "identity every_step nesterov");
  CHECK(name(std::type_identity<adagrad<>>{}) == "identity every_step adagrad");
  CHECK(name(std::type_identity<rmsprop<>>{}) == "identity every_step rmsprop");
  CHECK(name(std::type_identity<nadam<>>{}) == "identity every_step nadam(0.004, 0.999837)");
  CHECK(name(std::type_identity<amsgrad<>>{}) == "identity every_step amsgrad");
  CHECK(name(std::type_identity<diloco<>>{}) == "identity fixed_interval(4, 0) outer nesterov(0.9, 0.7)");
  CHECK(name(std::type_identity<sparse_loco<>>{}) ==
        "error_feedback(19, 20) top_k(64) block(4096) fixed_interval(4, 0) outer outer_average");
  CHECK(name(std::type_identity<adafactor<>>{}) == "identity every_step adafactor(0.8, 0, 0.001, 1, 1, 0)");
  CHECK(name(std::type_identity<sm3<>>{}) == "identity every_step sm3");
}

}  // namespace
