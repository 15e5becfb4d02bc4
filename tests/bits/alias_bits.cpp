// SPDX-License-Identifier: Apache-2.0
// alias_bits [STEPS]: runs every alias over 1, 2, 3 and 5 ranks on random gradients and prints a hash of all state.
//
// Ranks are threads; built with ZOADAM_BITS_MPI they are the processes of a world of 5, smaller counts its subgroups,
// and rank 0 prints. Every build of this source, for any instruction set, with any compiler, flags and transport,
// must print the same lines. Gradients come from integers alone, so that no flag can change them.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "zoadam/aliases.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/state/published.hpp"
#include "zoadam/aliases.hpp"
#include "zoadam/zoadam.hpp"
#if defined(ZOADAM_BITS_MPI)
#include "zoadam/transport/mpi.hpp"
#else
#include "zoadam/transport/thread.hpp"
#endif

namespace {

using zoadam::index;

#if defined(ZOADAM_BITS_MPI)
using rank_transport = zoadam::mpi_transport;
#else
using rank_transport = zoadam::thread_transport;
#endif

// ---- inputs, a pure function of where they are used ----

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
std::uint64_t random_word(std::uint64_t step, std::uint64_t rank, std::uint64_t element) {
  return mix(mix(mix(step + 0x9e3779b97f4a7c15u) ^ rank) ^ element);
}

// A float of any sign and mantissa with an exponent in [low, low + 16).
float random_float(std::uint64_t word, std::uint32_t low) {
  std::uint32_t const exponent = 127 + low + static_cast<std::uint32_t>(word >> 60);
  return std::bit_cast<float>((static_cast<std::uint32_t>(word) & 0x807fffffu) | (exponent << 23));
}

float gradient(std::uint64_t step, std::uint64_t rank, std::uint64_t element) {
  std::uint64_t const word = random_word(step, rank, element);
  if (element % 8 == 3) return 0.0f;                                // never any gradient
  if (element % 8 == 5 && step < 40) return 0.0f;                   // a late first one
  if (element % 16 == 7) return random_float(word, 0u - 70u);       // squares down to denormals
  if (element % 64 == 9) return std::bit_cast<float>(0x80000000u);  // -0
  return random_float(word, 0u - 20u);
}

constexpr std::array<index, 7> sizes{1, 0, 33, 700, 2049, 257, 31};
std::vector<std::vector<index>> const shapes{{}, {3, 0}, {3, 11}, {5, 7, 20}, {683, 3}, {}, {31, 1}};
constexpr std::size_t bfloat16_tensor = 3, float16_tensor = 5;

struct model {
  std::vector<std::vector<float>> parameter, gradient;
  std::vector<zoadam::bfloat16> brief_gradient;
  std::vector<zoadam::float16> half_gradient;

  model() {
    std::uint64_t element = 0;
    for (index const size : sizes) {
      gradient.emplace_back(static_cast<std::size_t>(size));
      for (float& x : parameter.emplace_back(gradient.back()))
        x = random_float(random_word(0, 0, element++), 0u - 14u);
    }
    brief_gradient.resize(gradient[bfloat16_tensor].size());
    half_gradient.resize(gradient[float16_tensor].size());
  }
  std::vector<zoadam::tensor> tensors() {
    std::vector<zoadam::tensor> list;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      list.push_back({std::to_string(t), shapes[t], parameter[t], gradient[t], t == 4 ? 1 : 0});
    }
    list[bfloat16_tensor].gradient = std::span<zoadam::bfloat16 const>(brief_gradient);
    list[float16_tensor].gradient = std::span<zoadam::float16 const>(half_gradient);
    return list;
  }
  void fill(std::uint64_t step, std::uint64_t rank, bool bad) {
    std::uint64_t element = 0;
    for (auto& list : gradient) {
      for (float& g : list) g = ::gradient(step, rank, element++);
    }
    if (bad) gradient[4][2048] = std::bit_cast<float>(0x7f800000u);
    // 16-bit patterns cut from words: exponents that both formats hold as normal numbers
    element = 0;
    for (auto& g : brief_gradient) {
      std::uint64_t const word = random_word(step, rank, 1000000 + element++);
      g.bits = static_cast<std::uint16_t>((word & 0x87ffu) | 0x3800u);
    }
    for (auto& g : half_gradient) {
      std::uint64_t const word = random_word(step, rank, 2000000 + element++);
      g.bits = static_cast<std::uint16_t>((word & 0x8fffu) | 0x1000u);
    }
  }
};

// Learning rates, zero among them; halved after 64 of them.
double learning_rate(int step) {
  constexpr std::array<double, 8> early{1e-3, 3e-3, 2e-3, 0.0, 1e-3, 4e-3, 7e-4, 1e-3};
  constexpr std::array<double, 8> late{1e-3, 5e-4, 5e-4, 2.5e-4, 2.5e-4, 0.0, 1.25e-4, 1e-4};
  auto const at = static_cast<std::size_t>(step);
  return step < 64 ? early[at % 8] : late[at / 8 % 8];
}

// ---- one run ----

struct digest {
  std::uint64_t value = 0xcbf29ce484222325u;
  void add(std::uint64_t word) { value = mix(value ^ word) * 0x100000001b3u; }
  void add(std::span<float const> list) {
    add(list.size());
    for (float x : list) add(std::bit_cast<std::uint32_t>(x));
  }
};

// What one rank hands to the comparison: its final state, and the replica hash after each exchange.
struct outcome {
  std::uint64_t state = 0;
  std::vector<std::uint64_t> replicas;
};

template <class Optimizer>
outcome run_rank(rank_transport link, typename Optimizer::options_type options, int threads, int steps) {
  options.groups = {{0.01, 1.0}, {0.1, 0.5}};
  model mine;
  auto const me = static_cast<std::uint64_t>(link.rank());
  bool const last = link.rank() == link.size() - 1;
  Optimizer optimizer(mine.tensors(), options, std::move(link), typename Optimizer::backend_type(threads));
  outcome result;
  digest state;
  for (int step = 1; step <= steps; ++step) {
    // One rank, and with a world of one nobody, has no gradient now and then.
    mine.fill(static_cast<std::uint64_t>(step), me, last && step % 37 == 20);
    zoadam::step_report const report = optimizer.step(learning_rate(step), 0.5);
    state.add(static_cast<std::uint64_t>(report.exchanged) +
              2u * static_cast<std::uint64_t>(report.variance_updated) +
              4u * static_cast<std::uint64_t>(report.skipped_here));
    state.add(std::bit_cast<std::uint64_t>(report.gradient_norm));
    if (report.exchanged) result.replicas.push_back(optimizer.replica_hash());
  }
  (void)optimizer.synchronize();
  result.replicas.push_back(optimizer.replica_hash());
  for (auto const& list : mine.parameter) state.add(std::span<float const>(list));
  zoadam::detail::for_each_tag(typename Optimizer::fields::tags{},
                               [&](auto tag) { state.add(optimizer.values(tag)); });
  for (std::uint64_t hash : result.replicas) state.add(hash);
  result.state = state.value;
  return result;
}

// Outcomes of all ranks, in rank order, where this process prints; empty elsewhere.
#if defined(ZOADAM_BITS_MPI)
template <class Optimizer>
std::vector<outcome> run_ranks(typename Optimizer::options_type const& options, int ranks, int threads, int steps) {
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me < ranks ? 0 : MPI_UNDEFINED, me, &group);
  if (group == MPI_COMM_NULL) return {};
  outcome const mine = run_rank<Optimizer>(zoadam::mpi_transport(group), options, threads, steps);
  std::vector<std::uint64_t> message{mine.state, mine.replicas.size()};
  message.resize(static_cast<std::size_t>(steps) + 3);
  std::copy(mine.replicas.begin(), mine.replicas.end(), message.begin() + 2);
  std::vector<std::uint64_t> all(message.size() * static_cast<std::size_t>(ranks));
  int const length = static_cast<int>(message.size());
  MPI_Gather(message.data(), length, MPI_UINT64_T, all.data(), length, MPI_UINT64_T, 0, group);
  MPI_Comm_free(&group);
  if (me != 0) return {};
  std::vector<outcome> outcomes;
  for (auto at = all.begin(); at != all.end(); at += length) {
    outcomes.push_back({at[0], {at + 2, at + 2 + static_cast<std::ptrdiff_t>(at[1])}});
  }
  return outcomes;
}
#else
template <class Optimizer>
std::vector<outcome> run_ranks(typename Optimizer::options_type const& options, int ranks, int threads, int steps) {
  zoadam::thread_group group(ranks);
  std::vector<outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> workers;
  for (int i = 0; i < ranks; ++i) {
    workers.emplace_back([&, i] {
      try {
        outcomes[static_cast<std::size_t>(i)] = run_rank<Optimizer>(group.rank(i), options, threads, steps);
      } catch (std::exception const& failure) {
        std::fprintf(stderr, "rank %d: %s\n", i, failure.what());
        std::_Exit(1);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return outcomes;
}
#endif

int failures = 0;

// Runs of one name must agree, whatever the number of threads.
template <class Optimizer>
void report(char const* name, typename Optimizer::options_type const& options, int steps, int threads = 1) {
  static std::map<std::pair<std::string, int>, std::uint64_t> known;
  for (int const ranks : {1, 2, 3, 5}) {
    auto const outcomes = run_ranks<Optimizer>(options, ranks, threads, steps);
    if (outcomes.empty()) continue;
    digest all;
    for (outcome const& each : outcomes) {
      all.add(each.state);
      if (each.replicas != outcomes[0].replicas) {
        std::fprintf(stderr, "%s, %d ranks: replicas differ after an exchange\n", name, ranks);
        ++failures;
      }
    }
    std::printf("%-32s n=%d steps=%d exchanges=%zu %016llx\n", name, ranks, steps, outcomes[0].replicas.size() - 1,
                static_cast<unsigned long long>(all.value));
    std::fflush(stdout);
    if (known.try_emplace({name, ranks}, all.value).first->second != all.value) {
      std::fprintf(stderr, "%s, %d ranks: the result depends on the threads of a rank\n", name, ranks);
      ++failures;
    }
    if (outcomes[0].replicas.size() < 2) ++failures;  // nothing was exchanged: the line shows nothing
  }
}

template <class Optimizer>
typename Optimizer::options_type with(auto const& change) {
  typename Optimizer::options_type options;
  change(options);
  return options;
}

void run_all(int steps) {
  int const few = steps < 1000 ? steps : steps / 10;  // where no schedule of hundreds of steps has to be gone through
  using namespace zoadam;
  auto const local = [](auto& o) { o.sync = {10, 60, 16}; };

  using zero_one = zero_one_adam<rank_transport>;
  report<zero_one>("zero_one_adam", with<zero_one>(local), steps);
  // Threads within a rank change nothing.
  report<zero_one>("zero_one_adam", with<zero_one>(local), steps, 3);

  using paper = zero_one_adam_paper<rank_transport>;
  report<paper>("zero_one_adam_paper", with<paper>([&](auto& o) { local(o), o.max_norm = 0.5; }), steps);

  using onebit = onebit_adam<rank_transport>;
  report<onebit>("onebit_adam", with<onebit>([](auto& o) { o.state.freeze.step = 20; }), steps);

  using plain = adam<rank_transport>;
  report<plain>("adam", with<plain>([](auto& o) { o.epsilon_inside = true; }), steps);

  using ahead = nadam<rank_transport>;
  report<ahead>("nadam", with<ahead>([](auto& o) { o.beta2 = 0.95; }), few);

  using layerwise = lamb<rank_transport>;
  report<layerwise>("lamb", with<layerwise>([](auto& o) { o.state.max_ratio = 10; }), few);
  report<layerwise>("lamb", with<layerwise>([](auto& o) { o.state.max_ratio = 10; }), few, 3);

  using factored = adafactor<rank_transport>;
  report<factored>("adafactor", with<factored>([](auto& o) { o.state.relative_step = true; }), few, 2);
  using covered = sm3<rank_transport>;
  report<covered>("sm3", {}, few, 2);

  using onebit_layerwise = onebit_lamb<rank_transport>;
  report<onebit_layerwise>("onebit_lamb", with<onebit_layerwise>([](auto& o) { o.state.freeze.step = 20; }), few, 2);

  using averaged = local_adam<rank_transport>;
  report<averaged>("local_adam", with<averaged>([](auto& o) { o.sync = {3, 5}; }), steps);

  using outer = diloco<rank_transport>;
  report<outer>("diloco", with<outer>([](auto& o) { o.sync = {7, 0}; }), few);

  using sparse = sparse_loco<rank_transport>;
  report<sparse>("sparse_loco", with<sparse>([](auto& o) { o.sync = {7, 0}; }), few);
  report<sparse>("sparse_loco", with<sparse>([](auto& o) { o.sync = {7, 0}; }), few, 3);

  using weighted =
      optimizer<error_feedback<sign_quantizer<per_tensor, l2>>, learning_rate_interval,
                frozen_variance_state<displacement<power::half, momentum_rule::replace>, cast_quantizer<bfloat16>>,
                cpu_backend, rank_transport>;
  report<weighted>("displacement p=1/2, tensor, l2", with<weighted>([](auto& o) { o.sync = {10, 8}; }), steps, 2);

  using summed = optimizer<error_feedback<sign_quantizer<block<64>>>, local_steps,
                           frozen_variance_state<momentum_sum<momentum_rule::correct>, cast_quantizer<float16>>,
                           cpu_backend, rank_transport>;
  report<summed>("momentum_sum correct, block 64", with<summed>(local), steps);

  using settled = optimizer<error_feedback<sign_quantizer<>>, every_step, onebit_adam_state<freeze_when_settled>,
                            cpu_backend, rank_transport>;
  report<settled>("onebit_adam, freeze found", with<settled>([](auto& o) {
                    o.beta2 = 0.95, o.state.freeze = {10, 20, 0.96};
                  }),
                  steps);

  using published = optimizer<error_feedback<sign_quantizer<per_tensor, l2>>, aligned_local_steps,
                              published_zero_one_adam_state, cpu_backend, rank_transport>;
  // Elements without variance divide by epsilon alone there.
  report<published>("published zero_one_adam", with<published>([](auto& o) {
                      o.sync = {40, 8}, o.state = {30, 4}, o.epsilon = 1e-3;
                    }),
                    steps);
}

}  // namespace

int main(int argc, char** argv) {
#if defined(ZOADAM_BITS_MPI)
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (world != 5) {
    std::fprintf(stderr, "a world of %d ranks, where 5 are needed\n", world);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
#endif
  int const steps = argc > 1 ? std::atoi(argv[1]) : 60;
  try {
    run_all(steps);
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    std::_Exit(1);
  }
#if defined(ZOADAM_BITS_MPI)
  MPI_Finalize();
#endif
  return failures == 0 ? 0 : 1;
}
