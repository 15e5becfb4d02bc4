// SPDX-License-Identifier: Apache-2.0
// Bytes per parameter and rank: what a counting allocator sees, beside the formula and the ZeRO paper's figure.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "zoadam/aliases.hpp"
#include "zoadam/sharded.hpp"
#include "zoadam/transport/thread.hpp"

namespace {
thread_local std::size_t counted = 0;
}

// The linker sends the library's allocations here (-Wl,--wrap=aligned_alloc); a rank allocates on its own thread.
extern "C" void* __real_aligned_alloc(std::size_t alignment, std::size_t bytes);
extern "C" void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  counted += bytes;
  return __real_aligned_alloc(alignment, bytes);
}

namespace {

using namespace zoadam;
using zoadam::index;

constexpr index layers = 20;  // of parameters that are there on demand; ZeRO's stage 3 works layer by layer

struct result {
  std::string name;
  int ranks;
  double buffers;   ///< the user's parameters and gradients
  double state;     ///< by formula
  double messages;  ///< of the exchanges
  double measured;  ///< buffers and everything allocated
  double paper;     ///< ZeRO, table 1, for mixed-precision Adam; 0: not in it
};

/// What one rank holds: parameters and gradients in 16 bits.
struct buffers {
  std::vector<bfloat16> x, g;
  explicit buffers(index n) : x(static_cast<std::size_t>(n)), g(x.size()) {}
  double bytes() const { return 2.0 * static_cast<double>(x.size() + g.size()); }
  std::vector<tensor> list() {
    std::span<bfloat16 const> const gradient(g);
    return {{"x", {}, {}, gradient, 0, std::span<bfloat16>(x)}};
  }
};

/// Builds what make(rank) returns on a thread per rank; the largest of what the ranks allocate.
template <class Body>
result measure(std::string name, int ranks, index parameters, double paper, Body const& body) {
  std::vector<result> each(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      result& mine = each[static_cast<std::size_t>(rank)];
      mine = {name, ranks, 0, 0, 0, 0, paper};
      counted = 0;
      body(rank, mine);
      auto const n = static_cast<double>(parameters);
      mine.buffers /= n, mine.messages /= n;
      mine.measured = mine.buffers + static_cast<double>(counted) / n;
    });
  }
  for (std::thread& t : threads) t.join();
  result most = each[0];
  for (result const& r : each)
    if (r.measured > most.measured) most = r;
  return most;
}

template <class Optimizer>
result flat(std::string name, int ranks, index parameters, double masters, double paper) {
  thread_group group(ranks);
  return measure(std::move(name), ranks, parameters, paper, [&](int rank, result& r) {
    buffers mine(parameters);
    typename Optimizer::options_type settings;
    if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 1;
    Optimizer const o(mine.list(), settings, group.rank(rank));
    r.buffers = mine.bytes();
    r.state = Optimizer::state_bytes(ranks) + masters;
    r.messages = static_cast<double>(o.memory().messages);
  });
}

using half = cast_quantizer<bfloat16>;
using replicated = optimizer<half, every_step, adam_state, cpu_backend, thread_transport>;
using stage_1 = optimizer<half, every_step, zero_shard<adam_state, half>, cpu_backend, thread_transport>;
using stage_3 = sharded<lone_adam<>, thread_transport, residence::on_demand, half, half>;
using hybrid = sharded<zero_one_adam<thread_transport>, thread_transport, residence::always, half, half>;

using stage_2_by_layers = sharded<lone_adam<>, thread_transport, residence::always, half, half>;

/// Gradients of two layers at a time, the one at work and the one that comes; of stage 3 the parameters, too.
template <class Optimizer>
result by_layers(std::string name, int ranks, index parameters, double paper) {
  thread_group group(ranks);
  return measure(std::move(name), ranks, parameters, paper, [&](int rank, result& r) {
    constexpr bool all = std::is_same_v<Optimizer, stage_2_by_layers>;
    index const n = parameters / layers;
    std::vector<bfloat16> x(static_cast<std::size_t>(all ? parameters : 2 * n)), g(static_cast<std::size_t>(2 * n));
    std::vector<std::vector<tensor>> list;
    for (index l = 0; l < layers; ++l) {
      auto const mine = std::span<bfloat16>(x).subspan(static_cast<std::size_t>(n * (all ? l : l % 2)),
                                                       static_cast<std::size_t>(n));
      auto const gradient =
          std::span<bfloat16 const>(g).subspan(static_cast<std::size_t>(n * (l % 2)), static_cast<std::size_t>(n));
      list.push_back({{"x", {}, {}, gradient, 0, mine}});
    }
    Optimizer const o(std::move(list), {}, group.rank(rank), {});
    r.buffers = 2.0 * static_cast<double>(x.size() + g.size());
    r.state = Optimizer::state_bytes(1, ranks);
    r.messages = static_cast<double>(o.memory().messages);
  });
}

result two_nodes(int ranks, index parameters) {
  int const nodes = 2, within = ranks / nodes;
  std::vector<thread_group> node, across;
  for (int i = 0; i < nodes; ++i) node.emplace_back(within);
  for (int i = 0; i < within; ++i) across.emplace_back(nodes);
  return measure("zero_one_adam on shards of 2 nodes", ranks, parameters, 0, [&](int rank, result& r) {
    auto const i = static_cast<std::size_t>(rank / within), j = static_cast<std::size_t>(rank % within);
    buffers mine(parameters);
    hybrid const o({mine.list()}, {}, node[i].rank(rank % within), across[j].rank(rank / within));
    r.buffers = mine.bytes();
    r.state = hybrid::state_bytes(nodes, within);
    r.messages = static_cast<double>(o.memory().messages);
  });
}

void print(std::FILE* to, result const& r) {
  std::fprintf(to, "| %s | %d | %.2f | %.2f | %.2f | %.2f |", r.name.c_str(), r.ranks, r.buffers, r.state, r.messages,
               r.measured);
  if (r.paper > 0)
    std::fprintf(to, " %.2f |\n", r.paper);
  else
    std::fprintf(to, " |\n");
}

}  // namespace

int main(int argc, char** argv) {
  zoadam::index parameters = 100'000'000;
  char const* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--parameters") == 0 && i + 1 < argc) {
      parameters = std::atoll(argv[++i]);
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: bench_memory [--parameters N] [--json FILE]\n");
      return 2;
    }
  }
  std::vector<result> rows;
  std::printf("| optimizer | ranks | parameters, gradients | state | messages | measured | ZeRO paper |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  auto const add = [&](result const& r) {
    rows.push_back(r);
    print(stdout, r);
    std::fflush(stdout);
  };
  for (int const n : {1, 4}) {
    add(flat<replicated>("adam", n, parameters, 4, 16));
    add(flat<stage_1>("zero_shard", n, parameters, 0, 4 + 12.0 / n));
    add(by_layers<stage_2_by_layers>("stage 2, by layers", n, parameters, 2 + 14.0 / n));
    add(by_layers<stage_3>("stage 3, by layers", n, parameters, 16.0 / n));
    add(flat<zero_one_adam<thread_transport>>("zero_one_adam", n, parameters, 4, 0));
    add(flat<zero_onebit_adam<thread_transport>>("zero_onebit_adam", n, parameters, 4, 0));
    if (n > 1) add(two_nodes(n, parameters));
  }
  std::printf(
      "\nState by formula on 64 ranks: adam %.2f, zero_shard %.2f (paper, with gradients and parameters: %.2f), "
      "stage 3 %.2f (%.2f), zero_one_adam %.2f, on shards of 8 nodes %.2f, zero_onebit_adam %.2f\n",
      replicated::state_bytes(64) + 4, stage_1::state_bytes(64), 4 + 12.0 / 64, stage_3::state_bytes(1, 64),
      16.0 / 64, zero_one_adam<thread_transport>::state_bytes(64) + 4, hybrid::state_bytes(8, 8),
      zero_onebit_adam<thread_transport>::state_bytes(64) + 4);
  if (json != nullptr) {
    std::ofstream file(json);
    file << "{\"parameters\": " << parameters << ", \"rows\": [";
    for (std::size_t i = 0; i < rows.size(); ++i) {
      result const& r = rows[i];
      file << (i == 0 ? "" : ",") << "\n  {\"optimizer\": \"" << r.name << "\", \"ranks\": " << r.ranks
           << ", \"buffers\": " << r.buffers << ", \"state\": " << r.state << ", \"messages\": " << r.messages
           << ", \"measured\": " << r.measured << ", \"paper\": " << r.paper << "}";
    }
    file << "\n]}\n";
    if (!file) {
      std::fprintf(stderr, "bench_memory: cannot write %s\n", json);
      return 1;
    }
  }
  return 0;
}
