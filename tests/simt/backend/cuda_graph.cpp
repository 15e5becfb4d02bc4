// SPDX-License-Identifier: Apache-2.0
// Steps that are recorded once and replayed compute what steps that are launched kernel by kernel compute.
#include "zoadam/backend/cuda_graph.hpp"

#include "simt/device.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using namespace suite;

/// Parameters after every step of one rank.
template <class Optimizer, class Step>
std::vector<flat> trajectory(typename Optimizer::options_type const& options, int steps, Step const& step) {
  device_stream const stream;
  cuda_thread_group group(1);
  std::size_t const n = 3000;
  device_array<float> const x(n), g(n);
  flat start(n);
  for (std::size_t i = 0; i < n; ++i) start[i] = 0.1f * noise(5, i);
  x.put(start.data(), stream);
  Optimizer o({{"x", {}, x.span(), g.span()}}, options, group.rank(0, stream), cuda_backend(stream));
  step_graphs graphs(stream);
  std::vector<flat> all;
  for (int t = 1; t <= steps; ++t) {
    flat now = noisy_gradient(3, 0, t, n);
    if (t % 9 == 4) now[17] = std::numeric_limits<float>::infinity();
    g.put(now.data(), stream);
    step_report const r = step(o, graphs, t == 7 ? 0.0 : 0.02 / t, t % 3 == 0 ? 0.5 : 1.0).get();
    CHECK(r.step == t);
    CHECK(r.skipped_here == (t % 9 == 4));
    all.push_back(x.get(stream));
  }
  if (graphs.size() > 0) CHECK(graphs.size() == 1);  // one path without an exchange
  return all;
}

TEST_CASE_TEMPLATE("replayed steps are the steps", Optimizer, zero_one_adam<cuda_thread_transport, cuda_backend>,
                   local_adam<cuda_thread_transport, cuda_backend>) {
  typename Optimizer::options_type options;
  options.max_norm = 1;
  options.weight_decay = 0.01;
  if constexpr (requires { options.sync.period; }) options.sync = {.start = 4, .period = 8};
  auto const direct = trajectory<Optimizer>(
      options, 40, [](Optimizer& o, step_graphs&, double lr, double scale) { return o.step(lr, scale); });
#if defined(ZOADAM_SIMT)
  for (char const* phase : {"zoadam: gradient", "zoadam: local step", "zoadam: worker side", "zoadam: all_to_all",
                            "zoadam: owner", "zoadam: all_gather", "zoadam: apply"}) {
    CHECK_MESSAGE(simt::nvtx_counts()[phase] > 0, phase);
  }
  simt::reset();
#endif
  auto const replayed = trajectory<Optimizer>(
      options, 40,
      [](Optimizer& o, step_graphs& graphs, double lr, double scale) { return o.step(lr, scale, graphs); });
#if defined(ZOADAM_SIMT)
  CHECK(simt::calls("cudaGraphLaunch") > 10);
  CHECK(simt::calls("cudaStreamBeginCapture") == 1);
#endif
  REQUIRE(direct.size() == replayed.size());
  for (std::size_t t = 0; t < direct.size(); ++t) CHECK(same_bits(direct[t], replayed[t]));
}

/// x <- x - lr |x| / |g| g on every tensor, without an exchange.
struct layerwise_descent_state {
  struct descent {
    using reads = tags<at::parameter_t, at::gradient_t, at::trust_ratio_t>;
    using writes = tags<at::parameter_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static void run(Registers& r, Coefficients const& k) noexcept {
      r[at::parameter] = r[at::parameter] - k.lr * r[at::trust_ratio] * formula::gradient(r, k);
    }
  };
  struct direction {
    using reads = tags<at::gradient_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto of(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
  };
  using fields = zoadam::fields<tensor_field<at::trust_ratio_t, home::worker>>;
  using agreed = at::parameter_t;
  void start(zoadam::clock&) const noexcept {}
  template <class Quantizer, class Sync>
  auto program(Quantizer, Sync) const {
    return std::tuple(tensor_reduction<lamb_ratio<direction>>{}, pass<descent>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("layerwise_descent");
  }
};

TEST_CASE("reductions per tensor are replayed, too") {
  using descent =
      optimizer<identity_quantizer, every_step, layerwise_descent_state, cuda_backend, cuda_thread_transport>;
  auto const direct = trajectory<descent>(
      {}, 12, [](descent& o, step_graphs&, double lr, double scale) { return o.step(lr, scale); });
  auto const replayed = trajectory<descent>(
      {}, 12, [](descent& o, step_graphs& graphs, double lr, double scale) { return o.step(lr, scale, graphs); });
  for (std::size_t t = 0; t < direct.size(); ++t) CHECK(same_bits(direct[t], replayed[t]));
  CHECK(!same_bits(direct[10], direct[11]));
}

TEST_CASE("the default stream cannot be recorded") { CHECK_THROWS_AS(step_graphs(nullptr), argument_error); }

TEST_CASE("a stream that is not the optimizer's records nothing, and says so") {
  using Optimizer = local_adam<cuda_thread_transport, cuda_backend>;
  device_stream const stream, other;
  cuda_thread_group group(1);
  device_array<float> const x(100), g(100);
  x.put(flat(100).data(), stream);
  g.put(flat(100).data(), stream);
  Optimizer o({{"x", {}, x.span(), g.span()}}, {}, group.rank(0, stream), cuda_backend(stream));
  step_graphs graphs(other);
  ending const e = ending_of([&] { (void)o.step(1e-2, 1.0, graphs); });
  CHECK(e.what == outcome::argument);
  CHECK_MESSAGE(e.text.find("step_graphs: stream: it is not the optimizer's") != std::string::npos, e.text);
  CHECK(ending_of([&] { (void)o.step(1e-2); }).what == outcome::poisoned);
}

TEST_CASE("what is not ready yet leaves no error behind for the caller's own checks") {
  using Optimizer = local_adam<cuda_thread_transport, cuda_backend>;
  device_stream const stream;
  cuda_thread_group group(1);
  device_array<float> const x(100), g(100);
  x.put(flat(100).data(), stream);
  g.put(flat(100).data(), stream);
  Optimizer o({{"x", {}, x.span(), g.span()}}, {}, group.rank(0, stream), cuda_backend(stream));
#if defined(ZOADAM_SIMT)
  simt::set_stream_order(simt::stream_order::lazy);  // nothing runs before somebody waits for it
  auto const asked = simt::calls("cudaEventQuery");
#endif
  for (int t = 1; t <= 5; ++t) {
    (void)o.step(1e-2);
    CHECK(cudaGetLastError() == cudaSuccess);
  }
  CHECK(o.step(1e-2).get().step == 6);
#if defined(ZOADAM_SIMT)
  CHECK(simt::calls("cudaEventQuery") > asked);
#endif
}

}  // namespace
