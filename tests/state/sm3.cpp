// SPDX-License-Identifier: Apache-2.0
// SM3 against optax.
#include "zoadam/state/sm3.hpp"

#include "suite/factored.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

using plain = sm3<thread_transport>;
using with_momentum = optimizer<identity_quantizer, every_step, sm3_state<true>, cpu_backend, thread_transport>;
using scalar = sm3<thread_transport, basic_cpu_backend<isa::scalar>>;

TEST_CASE("sm3: optax, with and without momentum") {
  compare_with_peer<plain>("sm30", 0);
  compare_with_peer<with_momentum>("sm31", 0.1);
}

TEST_CASE("sm3: threads, ranks and instruction sets") { check_bits<plain, scalar>(); }
TEST_CASE("sm3: bad gradients") {
  check_bad_gradients<plain>();
  check_bad_gradients<with_momentum>();
}
TEST_CASE("sm3: large gradients") { check_largest_gradients<plain>(); }
TEST_CASE("sm3: the hash of replicas tells a bit of a maximum") { check_hash<plain>(at::axis_maximum); }

TEST_CASE("sm3: of a matrix it remembers one value per row and column, of a vector one per element") {
  job<plain> run;
  set_shapes(run, {{1000, 500}, {30, 20, 10}, {77}, {0, 5}});
  run.steps = 0;
  run.at_end = [](plain& o, buffers&) {
    CHECK(o.values(at::axis_maximum).size() == 1500 + 60 + 77);
    CHECK(o.memory().fields == bytes_of_fields({1500 + 60 + 77}));
  };
  (void)run.run();
}

TEST_CASE("sm3: maxima by hand") {
  job<plain> run;
  set_shapes(run, {{2, 3}});
  run.steps = 2;
  run.gradient = [](int, int step, std::size_t) {
    return step == 1 ? flat{1, 2, 3, 4, 0, 0} : flat{1, 0, 0, 0, 0, 5};
  };
  // Rows: 9, 16; columns: 16, 4, 9. Then nu = 10, 4, 9; 16, 4, 34.
  run.at_end = [](plain& o, buffers&) { CHECK(copy_of(o.values(at::axis_maximum)) == flat{10, 34, 16, 4, 34}); };
  (void)run.run();
}

TEST_CASE("sm3: a vector's is AdaGrad") {
  flat x[2];
  auto const run = [&]<class Optimizer>(std::type_identity<Optimizer>) {
    job<Optimizer> j;
    j.sizes = {70, 3};
    return j.run()[0];
  };
  x[0] = run(std::type_identity<plain>{});
  x[1] = run(std::type_identity<adagrad<thread_transport>>{});
  CHECK(same_bits(x[0], x[1]));
}

}  // namespace
