// SPDX-License-Identifier: Apache-2.0
// The fused kernels of the CUDA backend, one by one, against a device-to-device copy in the same run.
//
// The kernels are those that optimizers run: the same segments over the same views, without a transport between them.
#include "zoadam/backend/cuda.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "measure.hpp"
#include "zoadam/detail/plan.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/error_feedback.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"
#include "zoadam/state/frozen_variance.hpp"
#include "zoadam/state/local_adam.hpp"
#include "zoadam/state/mean.hpp"
#include "zoadam/state/momentum_sum.hpp"
#include "zoadam/sync/every_step.hpp"

namespace bench {
namespace {

using namespace zoadam;
using zoadam::index;

constexpr int ranks = 4;

using space = displacement<power::one>;
using sign = error_feedback<sign_quantizer<>>;
using whole_sign = error_feedback<sign_quantizer<whole>>;
using cast = cast_quantizer<bfloat16>;
using worker_error = at::worker_error_t<space>;
using owner_error = at::owner_error_t<space>;
using fields = zoadam::fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::replica>,
                              field<at::anchor_t, home::replica>, field<at::momentum_sum_t, home::worker>,
                              field<worker_error, home::worker>, field<owner_error, home::owner>>;
using sign_plan = detail::stage_plan<exchange<space, every_step, sign>>;
using mean_plan = detail::stage_plan<exchange<moments_update, every_step, identity_quantizer>>;
using whole_plan = detail::stage_plan<exchange<space, every_step, whole_sign>>;
using variance_plan = detail::stage_plan<exchange<variance_update, every_step, cast>>;

template <class Receive, class Send, class... Formulas>
using segment = detail::segment<Receive, Send, Formulas...>;
using detail::no_messages;
using detail::nothing;

template <class... Tags>
constexpr double float_bytes(tags<Tags...>) {
  return 4.0 * sizeof...(Tags);
}
template <class Form>
constexpr double bound_bytes() {
  if constexpr (detail::bounded<Form>) return float_bytes(typename Form::bound_reads{});
  return 0;
}
/// Bytes per element of what a loop hands to a quantizer: codes, the error in and out, and, where a scale has to wait
/// for all of a group, the value out and in again and what bounds it.
template <class Form, class Quantizer>
constexpr double encoded_bytes() {
  double const again = detail::single_pass<Quantizer> ? 0 : 8 + bound_bytes<Form>();
  return Quantizer::code_bits / 8.0 + (Quantizer::compensated ? 8 : 0) + again;
}
/// Bytes per element of a segment, all elements being active.
template <class Segment, class Down, class Up>
constexpr double segment_bytes() {
  using send = typename Segment::send;
  double all = float_bytes(typename Segment::loads{}) +
               float_bytes(detail::subtract<typename Segment::stores, typename send::rewrites_active>{});
  if constexpr (!std::is_void_v<Down>) all += Down::code_bits / 8.0;
  if constexpr (!std::is_void_v<Up>) all += encoded_bytes<send, Up>();
  return all;
}
/// Bytes per element of the owner of a chunk.
template <class Form, class Up, class Down>
constexpr double owner_bytes() {
  return bound_bytes<Form>() + float_bytes(typename Form::own_reads{}) + float_bytes(typename Form::own_writes{}) +
         ranks * Up::code_bits / 8.0 + encoded_bytes<Form, Down>();
}

__global__ void fill_kernel(float* x, index n, float low, float high, std::uint32_t seed) {
  for (index i = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<index>(gridDim.x) * blockDim.x) {
    auto h = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    h = (h ^ (h >> 15)) * 2246822519u;
    x[i] = low + (high - low) * static_cast<float>((h ^ (h >> 13)) >> 8) * 0x1p-24f;
  }
}

// The table of the design, counted from the fields that formulas name.
static_assert(segment_bytes<segment<nothing, nothing, local_momentum, local_step>, void, void>() == 24);
static_assert(segment_bytes<segment<nothing, space::replacing, local_momentum, local_step>, void, sign>() == 28.125);
static_assert(segment_bytes<segment<space::replacing, nothing>, sign, void>() == 20.125);
static_assert(owner_bytes<space::replacing, sign, sign>() == 12.625);

/// Every array of the loops, filled with numbers of plausible size; all elements are active.
class arena {
 public:
  arena(index elements, cudaStream_t stream)
      : elements_(elements),
        stream_(stream),
        backend(stream),
        half_backend(stream),
        memory_(backend.allocate(arrays_ * elements * 4 + 4096)),
        x(take(-0.1f, 0.1f)),
        g(take(-0.01f, 0.01f)),
        m(take(-0.01f, 0.01f)),
        v(take(1e-6f, 1e-4f)),
        a(take(-0.1f, 0.1f)),
        u(take(-0.01f, 0.01f)),
        worker_errors(take(-1e-5f, 1e-5f)),
        owner_errors(take(-1e-5f, 1e-5f)),
        other(take(0, 1)),
        tensors({{"x", {}, {x, size()}, std::span<float const>(g, size())}}, 1),
        half_tensors({{"x", {}, {x, size()}, half_span<bfloat16 const>(0), 0, half_span<bfloat16>(size())}}, 1),
        plans(sign_plan(tensors, ranks), mean_plan(tensors, 1), whole_plan(tensors, ranks),
              variance_plan(tensors, ranks)),
        half_plans(sign_plan(half_tensors, ranks)),
        up(backend.allocate(signs().offsets().back())),
        received(backend.allocate(ranks * signs().offsets()[1])),
        down(backend.allocate(signs().offsets().back())),
        gathered(backend.allocate(std::get<1>(plans).down.offsets().back())),
        scalars_(backend.allocate(65536)) {
    backend.plan(tensors, plans, 0);
    half_backend.plan(half_tensors, half_plans, 0);
    view.tensors = &tensors;
    view.field[at::momentum] = m;
    view.field[at::variance] = v;
    view.field[at::anchor] = a;
    view.field[at::momentum_sum] = u;
    view.field[worker_error{}] = worker_errors;
    view.field[owner_error{}] = owner_errors;
    std::byte* at = scalars_.data();
    view.now = reinterpret_cast<detail::progress*>(at);
    view.group = reinterpret_cast<coefficients<float>*>(at + 1024);
    view.numbers = reinterpret_cast<detail::group_numbers*>(at + 2048);
    view.contributes = reinterpret_cast<unsigned char*>(at + 3072);
    view.groups = 1;
    view.hyper = {.beta1 = 0.9,
                  .beta2 = 0.999,
                  .max_norm = 0,
                  .epsilon = 1e-8f,
                  .epsilon_inside = 0,
                  .limit = 1,
                  .unlimited = 0,
                  .corrects_bias = true};
    block_sums_ = backend.allocate((elements / sum_block + 2) * 4);
    view.block_sums = reinterpret_cast<float*>(block_sums_.data());
    ZOADAM_CUDA(cudaMemsetAsync(view.contributes, 1, ranks, stream));
    detail::progress now;
    now.contributions = ranks;
    now.count = 10;
    now.power1 = 0.35, now.power2 = 0.99;
    ZOADAM_CUDA(cudaMemcpyAsync(view.now, &now, sizeof now, cudaMemcpyHostToDevice, stream));
    detail::group_numbers const numbers{1e-3f, 0.01f, 4e-3f, 1.0f};
    ZOADAM_CUDA(cudaMemcpyAsync(view.numbers, &numbers, sizeof numbers, cudaMemcpyHostToDevice, stream));
    backend.refresh(view, detail::advance::never);
    ZOADAM_CUDA(cudaStreamSynchronize(stream));
  }
  partition<sign> const& signs() const { return std::get<0>(plans).up; }

 private:
  static constexpr index arrays_ = 9;
  std::size_t size() const { return static_cast<std::size_t>(elements_); }
  /// As many values of 16 bits as there are elements, in `other`.
  template <class Half>
  std::span<Half> half_span(std::size_t from) const {
    return {reinterpret_cast<Half*>(other) + from, size()};
  }
  float* take(float low, float high) {
    float* const p = reinterpret_cast<float*>(memory_.data()) + elements_ * taken_;
    detail::launch("fill", fill_kernel, 4096, 256, 0, stream_, p, elements_, low, high,
                   static_cast<std::uint32_t>(++taken_));
    return p;
  }
  index elements_;
  cudaStream_t stream_;
  index taken_ = 0;

 public:
  cuda_backend backend, half_backend;

 private:
  cuda_backend::memory memory_;

 public:
  float *x, *g, *m, *v, *a, *u, *worker_errors, *owner_errors, *other;
  layout tensors, half_tensors;  ///< the same parameters, with gradients and working copies in 16 bits
  std::tuple<sign_plan, mean_plan, whole_plan, variance_plan> plans;
  std::tuple<sign_plan> half_plans;
  cuda_backend::memory up, received, down, gathered;
  detail::view<fields> view{};

 private:
  cuda_backend::memory scalars_, block_sums_;
};

/// Milliseconds of one call: median over rounds after warm-up, by device events.
template <class F>
double milliseconds(cudaStream_t stream, int rounds, F const& f) {
  cudaEvent_t begin, end;
  ZOADAM_CUDA(cudaEventCreate(&begin));
  ZOADAM_CUDA(cudaEventCreate(&end));
  std::vector<double> all;
  for (int i = -3; i < rounds; ++i) {
    ZOADAM_CUDA(cudaEventRecord(begin, stream));
    f();
    ZOADAM_CUDA(cudaEventRecord(end, stream));
    ZOADAM_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    ZOADAM_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 0) all.push_back(ms);
  }
  ZOADAM_CUDA(cudaEventDestroy(begin));
  ZOADAM_CUDA(cudaEventDestroy(end));
  return median(all);
}

/// As many sets of arrays as fit, up to three: each call takes the next, so that no cache holds what the last one
/// left.
std::vector<std::unique_ptr<arena>> rotation(index elements, cudaStream_t stream) {
  std::vector<std::unique_ptr<arena>> sets;
  try {
    while (sets.size() < 3) sets.push_back(std::make_unique<arena>(elements, stream));
  } catch (cuda_error const&) {
    if (sets.empty()) throw;
    (void)cudaGetLastError();
  }
  std::printf("%ld Mi elements, %zu sets of arrays in turn\n", static_cast<long>(elements >> 20), sets.size());
  return sets;
}

void run(index elements, int rounds, cudaStream_t stream, std::vector<row>& rows) {
  auto const sets = rotation(elements, stream);
  std::size_t turn = 0;
  auto const timed = [&](auto const& f) {
    return milliseconds(stream, rounds, [&] { f(*sets[turn++ % sets.size()]); });
  };
  auto const copy = [&](arena& d) {
    ZOADAM_CUDA(
        cudaMemcpyAsync(d.other, d.x, static_cast<std::size_t>(elements) * 4, cudaMemcpyDeviceToDevice, stream));
  };
  double const copy_rate = 8.0 * static_cast<double>(elements) / timed(copy);  // bytes per millisecond
  std::string const size = " @" + std::to_string(elements >> 20) + "Mi";
  auto const add = [&](char const* name, double bytes, index n, auto const& f) {
    double const ms = timed(f);
    double const each = static_cast<double>(n);
    rows.push_back({name + size, 1, 1e6 * ms / each, bytes, bytes * each / ms / copy_rate});
    print(rows.back());
  };
  add("copy, device to device", 8, elements, copy);

  // A segment over what in(d) and out(d) give it; on the arrays in 16 bits, or not.
  auto const add_loop = [&]<class Segment, class In, class Out>(char const* name, Segment, In const& in,
                                                                Out const& out, bool half = false) {
    using down = typename std::invoke_result_t<In, arena&>::quantizer;
    using up = typename std::invoke_result_t<Out, arena&>::quantizer;
    double const in_half = detail::contains<typename Segment::loads, at::gradient_t> ? -2 : 0,
                 out_half = detail::contains<typename Segment::stores, at::parameter_t> ? 2 : 0;
    add(name, segment_bytes<Segment, down, up>() + (half ? in_half + out_half : 0), elements,
        [&](arena& d) { (half ? d.half_backend : d.backend).template run<Segment>(d.view, in(d), out(d)); });
  };
  auto const none = [](arena&) { return no_messages{}; };
  auto const out = [](arena& d) { return detail::outgoing<sign>{&d.signs(), d.up.data(), d.worker_errors}; };
  auto const in = [](arena& d) { return detail::incoming<sign>{&std::get<0>(d.plans).down, d.down.data()}; };
  auto const mean = [](arena& d) {
    return detail::incoming<identity_quantizer>{&std::get<1>(d.plans).down, d.gathered.data()};
  };
  using replace_form = space::replacing;
  using correct_form = space::correcting<true>;
  add_loop("local step", segment<nothing, nothing, local_momentum, local_step>{}, none, none);
  add_loop("exchange worker side, replace", segment<nothing, replace_form, local_momentum, local_step>{}, none, out);
  add_loop("exchange worker side, correct", segment<nothing, correct_form, local_momentum, local_step>{}, none, out);
  add_loop("apply, replace", segment<replace_form, nothing>{}, in, none);
  add_loop("apply, correct", segment<correct_form, nothing>{}, in, none);
  add("rank side, n = 4", owner_bytes<correct_form, sign, sign>(), sets[0]->signs().elements(0), [&](arena& d) {
    d.backend.own<correct_form>(d.view, d.signs(), std::get<0>(d.plans).down, 0, d.received.data(), d.up.data(),
                                d.owner_errors);
  });
  add_loop("Adam step", segment<nothing, nothing, local_variance, local_momentum, corrected_step>{}, none, none);
  add_loop("Adam step on a received mean", segment<moments_update::the_form, nothing, corrected_step>{}, mean, none);
  add_loop("compress a gradient", segment<nothing, gradient_mean::the_form>{}, none, out);
  add("gradient check", 4, elements, [&](arena& d) { d.backend.check(d.view); });

  // One scale for everything: sums in the loop, then the scale, then codes.
  auto const whole_out = [](arena& d) {
    return detail::outgoing<whole_sign>{&std::get<2>(d.plans).up, d.up.data(), d.worker_errors};
  };
  add_loop("worker side, replace, whole", segment<nothing, replace_form, local_momentum, local_step>{}, none,
           whole_out);
  add_loop("compress a gradient, whole", segment<nothing, gradient_mean::the_form>{}, none, whole_out);
  add("rank side, n = 4, whole", owner_bytes<correct_form, whole_sign, whole_sign>(),
      std::get<2>(sets[0]->plans).up.elements(0), [&](arena& d) {
        whole_plan const& p = std::get<2>(d.plans);
        d.backend.own<correct_form>(d.view, p.up, p.down, 0, d.received.data(), d.up.data(), d.owner_errors);
      });

  using sum = momentum_sum<momentum_rule::replace>;
  add_loop("local step, momentum_sum", segment<nothing, nothing, local_momentum, local_step, sum::open_pass>{}, none,
           none);
  add_loop("worker side, momentum_sum",
           segment<nothing, sum::replacing, local_momentum, local_step, sum::open_pass>{}, none, out);
  add_loop("apply, momentum_sum", segment<sum::replacing, nothing>{}, in, none);

  // A variance round in 16 bits: the gradient out, the owner, and the loop that takes the mean in before an exchange.
  using round_form = variance_update::the_form;
  add_loop("variance round, gradient", segment<nothing, round_form>{}, none, [](arena& d) {
    return detail::outgoing<cast, true>{&std::get<3>(d.plans).up, d.gathered.data(), nullptr};
  });
  add("variance round, rank side, n = 4", owner_bytes<round_form, cast, cast>(),
      std::get<3>(sets[0]->plans).up.elements(0), [&](arena& d) {
        variance_plan const& p = std::get<3>(d.plans);
        d.backend.own<round_form>(d.view, p.up, p.down, 0, d.gathered.data(), reinterpret_cast<std::byte*>(d.other),
                                  nullptr);
      });
  add_loop(
      "variance round, worker side", segment<round_form, replace_form, local_momentum, local_step>{},
      [](arena& d) {
        return detail::incoming<cast, true>{&std::get<3>(d.plans).down, d.gathered.data()};
      },
      out);

  for (auto const& d : sets) {
    ZOADAM_CUDA(cudaMemsetAsync(d->other, 0, static_cast<std::size_t>(elements) * 4, stream));
  }
  add_loop("local step, 16 bits", segment<nothing, nothing, local_momentum, local_step>{}, none, none, true);
  add_loop(
      "apply, replace, 16 bits", segment<replace_form, nothing>{},
      [](arena& d) {
        return detail::incoming<sign>{&std::get<0>(d.half_plans).down, d.down.data()};
      },
      none, true);
  ZOADAM_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace
}  // namespace bench

int main(int count, char** arguments) {
  int devices = 0;
  cudaError_t const status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("%s: no CUDA device: %s\n", arguments[0],
                status == cudaSuccess ? "the driver knows none" : cudaGetErrorString(status));
    return 77;
  }
  std::string json;
  std::vector<long> mebi{16, 1024};
  int rounds = 20;
  for (int i = 1; i < count; i += 2) {
    std::string const flag = arguments[i];
    if (i + 1 == count || (flag != "--json" && flag != "--mebi-elements" && flag != "--rounds")) {
      std::fprintf(stderr, "usage: %s [--json FILE] [--mebi-elements N] [--rounds N]\n", arguments[0]);
      return 2;
    }
    if (flag == "--json") json = arguments[i + 1];
    if (flag == "--mebi-elements") mebi = {std::strtol(arguments[i + 1], nullptr, 10)};
    if (flag == "--rounds") rounds = static_cast<int>(std::strtol(arguments[i + 1], nullptr, 10));
  }
  cudaDeviceProp about{};
  ZOADAM_CUDA(cudaGetDeviceProperties(&about, 0));
  bench::facts const machine{{"device", about.name},
                             {"compute_capability", std::to_string(about.major) + "." + std::to_string(about.minor)},
                             {"build", ZOADAM_BENCH_CONFIG},
                             {"rounds", std::to_string(rounds)}};
  bench::print(machine);
  cudaStream_t stream;
  ZOADAM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<bench::row> rows;
  for (long n : mebi) bench::run(static_cast<zoadam::index>(n) << 20, rounds, stream, rows);
  if (!json.empty() && !bench::write_json(json, machine, rows)) {
    std::fprintf(stderr, "%s: cannot write %s\n", arguments[0], json.c_str());
    return 1;
  }
  return 0;
}
