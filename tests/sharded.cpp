// SPDX-License-Identifier: Apache-2.0
// Two levels against one: nodes as workers, and flat shards of any state.
#include "zoadam/sharded.hpp"

#include <limits>

#include "suite/job.hpp"
#include "zoadam/loss_scaler.hpp"
#include "zoadam/quantizer/cast.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

/// f(node, rank in node, link within, link across) on a thread per rank.
template <class Function>
std::vector<ending> on_nodes(int nodes, int ranks, Function const& f, milliseconds limit = patient) {
  std::vector<thread_group> within, across;
  for (int i = 0; i < nodes; ++i) within.emplace_back(ranks, limit);
  for (int j = 0; j < ranks; ++j) across.emplace_back(nodes, limit);
  std::vector<ending> endings(nth(nodes * ranks));
  std::vector<std::thread> threads;
  for (int i = 0; i < nodes; ++i) {
    for (int j = 0; j < ranks; ++j) {
      threads.emplace_back([&, i, j] {
        endings[nth(i * ranks + j)] = ending_of([&] { f(i, j, within[nth(i)].rank(j), across[nth(j)].rank(i)); });
      });
    }
  }
  for (std::thread& t : threads) t.join();
  return endings;
}
void check_ok(std::vector<ending> const& endings) {
  for (ending const& e : endings) {
    INFO(e.text);
    CHECK(e.what == outcome::ok);
  }
}

// Several blocks in several chunks, odd ends, an empty tensor, two layers.
std::vector<std::vector<index>> const layers{{5000, 0, 3}, {2100}};
constexpr std::size_t elements = 7103;
constexpr float bad = std::numeric_limits<float>::infinity();

/// The gradient of one rank: at step 3 rank 0 of node 0 has a bad first layer, at step 6 all of node 0 a bad second
/// one.
flat gradient_of(int node, int rank, int ranks, int step) {
  flat g = noisy_gradient(9, node * ranks + rank, step, elements);
  if (step == 3 && node == 0 && rank == 0) g[4000] = bad;
  if (step == 6 && node == 0) g[6000] = bad;
  return g;
}
/// What the node hands over: for each layer the mean in rank order over the ranks whose gradients of it are not bad;
/// nothing if there is none for some layer.
flat node_gradient(int node, int ranks, int step) {
  constexpr std::size_t borders[] = {0, 5003, elements};
  flat all(elements);
  for (int layer = 0; layer < 2; ++layer) {
    int count = 0;
    for (int j = 0; j < ranks; ++j) {
      flat const g = gradient_of(node, j, ranks, step);
      std::span<float const> const mine =
          std::span<float const>(g).subspan(borders[layer], borders[layer + 1] - borders[layer]);
      if (!all_finite(mine)) continue;
      for (std::size_t k = 0; k < mine.size(); ++k) {
        float& sum = all[borders[layer] + k];
        sum = count == 0 ? mine[k] : sum + mine[k];
      }
      ++count;
    }
    if (count == 0) return flat(elements, bad);
    for (std::size_t k = borders[layer]; k < borders[layer + 1]; ++k) all[k] = all[k] / static_cast<float>(count);
  }
  return all;
}

float start(std::size_t k) { return 0.1f * noise(5, k); }

struct parts {
  flat x, g;
  parts() : x(elements), g(elements) {
    for (std::size_t k = 0; k < elements; ++k) x[k] = start(k);
  }
  std::vector<std::vector<tensor>> tensors() {
    std::vector<std::vector<tensor>> list;
    std::size_t at = 0;
    for (auto const& sizes : layers) {
      list.emplace_back();
      for (index const n : sizes) {
        std::span<float> const mine = std::span<float>(x).subspan(at, nth(n));
        std::span<float const> const gradient = std::span<float const>(g).subspan(at, nth(n));
        list.back().push_back({"t" + std::to_string(at), {}, mine, gradient});
        at += nth(n);
      }
    }
    return list;
  }
  void set_gradient(flat const& values) { std::copy(values.begin(), values.end(), g.begin()); }
};

template <class Optimizer>
typename Optimizer::options_type settings_of() {
  typename Optimizer::options_type o;
  o.weight_decay = 0.05;
  if constexpr (requires { o.sync.period; }) o.sync = {3, 4, 4};
  if constexpr (requires { o.state.freeze; }) o.state.freeze.step = 3;
  return o;
}
constexpr int steps = 20;

/// Parameters of the replicated run after every step, by node.
template <class Optimizer>
std::vector<std::vector<flat>> replicated(int nodes, int ranks) {
  std::vector<std::vector<flat>> path(nth(nodes));
  on_all_ranks(nodes, [&](thread_transport link) {
    int const node = link.rank();
    parts mine;
    std::vector<tensor> list;
    for (auto& layer : mine.tensors()) list.insert(list.end(), layer.begin(), layer.end());
    Optimizer o(list, settings_of<Optimizer>(), std::move(link));
    for (int t = 1; t <= steps; ++t) {
      mine.set_gradient(node_gradient(node, ranks, t));
      (void)o.step(1e-2);
      path[nth(node)].push_back(mine.x);
    }
    (void)o.synchronize();
    path[nth(node)].push_back(mine.x);
  });
  return path;
}

template <class Optimizer>
void compare_hybrid_with_replicas(int nodes, int ranks) {
  CAPTURE(nodes);
  CAPTURE(ranks);
  auto const expected = replicated<Optimizer>(nodes, ranks);
  check_ok(on_nodes(nodes, ranks, [&](int node, int rank, thread_transport within, thread_transport across) {
    parts mine;
    sharded<Optimizer, thread_transport> o(mine.tensors(), settings_of<Optimizer>(), std::move(within),
                                           std::move(across));
    int wrong = 0;
    for (int t = 1; t <= steps; ++t) {
      mine.set_gradient(gradient_of(node, rank, ranks, t));
      if (t % 2 == 0) o.reduce(1, 1e-2);
      bool const due = o.will_exchange(1e-2);
      step_report const r = o.step(1e-2);
      bool const missing = node == 0 && (t == 6 || (t == 3 && ranks == 1));
      wrong += r.exchanged != due || r.skipped_here != missing;
      wrong += !same_bits(mine.x, expected[nth(node)][nth(t - 1)]);
    }
    (void)o.synchronize();
    wrong += !same_bits(mine.x, expected[nth(node)].back());
    CHECK(wrong == 0);
  }));
}

TEST_CASE("hybrid 0/1 Adam: shards in nodes, local steps across them, the bits of nodes as workers") {
  compare_hybrid_with_replicas<zero_one_adam<thread_transport>>(2, 2);
  compare_hybrid_with_replicas<zero_one_adam<thread_transport>>(2, 3);
  compare_hybrid_with_replicas<zero_one_adam<thread_transport>>(1, 4);
  compare_hybrid_with_replicas<zero_one_adam<thread_transport>>(3, 1);
}
TEST_CASE("hybrid of other states: the same") {
  compare_hybrid_with_replicas<onebit_adam<thread_transport>>(2, 2);
  compare_hybrid_with_replicas<adam<thread_transport>>(2, 3);
}

TEST_CASE("flat shards, whole or on demand: the bits of Adam") {
  for (int const ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    auto const expected = replicated<adam<thread_transport>>(1, ranks)[0];
    on_all_ranks(ranks, [&](thread_transport link) {
      int const rank = link.rank();
      // Both layers share their memory: parameters are there while they are needed, gradients until they are reduced.
      flat x(5003), g(5003);
      std::span<float> const spans(x);
      std::span<float const> const gradients(g);
      std::vector<std::vector<tensor>> list{{{"a", {}, spans.first(5000), gradients.first(5000)},
                                             {"b", {}, {}, {}},
                                             {"c", {}, spans.subspan(5000), gradients.subspan(5000)}},
                                            {{"d", {}, spans.first(2100), gradients.first(2100)}}};
      auto const first_of = [](index layer) { return layer == 0 ? std::size_t{0} : std::size_t{5003}; };
      auto const size_of = [](index layer) { return layer == 0 ? std::size_t{5003} : std::size_t{2100}; };
      auto const load = [&](index layer) {
        for (std::size_t k = 0; k < size_of(layer); ++k) x[k] = start(first_of(layer) + k);
      };
      sharded<lone_adam<>, thread_transport, residence::on_demand> o(
          std::move(list), settings_of<lone_adam<>>(), std::move(link), {}, [] { return cpu_backend{}; }, load);
      int wrong = 0;
      for (int t = 1; t <= steps; ++t) {
        flat const all = gradient_of(0, rank, ranks, t);
        for (index layer : {index{1}, index{0}}) {
          o.materialize(layer);
          o.materialize(layer);
          for (std::size_t k = 0; k < size_of(layer); ++k) {
            float const wanted = t == 1 ? start(first_of(layer) + k) : expected[nth(t - 2)][first_of(layer) + k];
            wrong += x[k] != wanted;
            g[k] = all[first_of(layer) + k];
          }
          o.reduce(layer, 1e-2);
          o.release(layer);
        }
        (void)o.step(1e-2);
      }
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("flat shards with parameters in 16 bits: they hold the rounded masters") {
  using wire = cast_quantizer<bfloat16>;
  auto const expected = replicated<adam<thread_transport>>(1, 2)[0];
  on_all_ranks(2, [&](thread_transport link) {
    int const rank = link.rank();
    std::vector<bfloat16> x(elements);
    flat g(elements), exact(elements);
    for (std::size_t k = 0; k < elements; ++k) x[k] = to_half<bfloat16>(start(k));
    std::vector<std::vector<tensor>> list{{{"x", {}, {}, g, 0, x}}};
    sharded<lone_adam<>, thread_transport, residence::always, identity_quantizer, wire> o(std::move(list), {},
                                                                                          std::move(link), {});
    double error = 0;
    for (int t = 1; t <= 2; ++t) {
      flat const now = gradient_of(0, rank, 2, t);
      std::copy(now.begin(), now.end(), g.begin());
      (void)o.step(1e-2);
    }
    for (std::size_t k = 0; k < elements; ++k)
      error = larger(error, std::abs(double(to_float(x[k])) - double(expected[1][k])));
    CHECK(error > 0);
    CHECK(error < 2e-3);  // an eighth of a step, and half a unit in the last of 8 bits
    CHECK(o.memory().masters == 0);
  });
}

TEST_CASE("sharded: state_bytes() is what is allocated; layers share the memory of messages") {
  using across = zero_one_adam<thread_transport>;
  using type = sharded<across, thread_transport>;
  constexpr int nodes = 2, ranks = 2;
  constexpr index n = nodes * ranks * 2 * 2048;
  check_ok(on_nodes(nodes, ranks, [&](int, int, thread_transport within, thread_transport outside) {
    flat x(3 * nth(n)), g(x.size());
    std::vector<std::vector<tensor>> list;
    for (std::size_t at = 0; at < x.size(); at += nth(n)) {
      list.push_back({{"t", {}, std::span(x).subspan(at, nth(n)), std::span<float const>(g).subspan(at, nth(n))}});
    }
    type o(list, {}, std::move(within), std::move(outside));
    constexpr int fields = across::fields::size + 3 * 2;
    auto const bytes = static_cast<double>(o.memory().fields - fields * memory_use::field_gap);
    CHECK(bytes == type::state_bytes(nodes, ranks) * 3.0 * static_cast<double>(n));
    // Up: the gradients of one layer in two buffers; down: those of the own chunk.
    index const shard = o.memory().messages - o.shard_optimizer().memory().messages;
    CHECK(shard < 4 * n * 5 / 2 + 4096);
    CHECK(shard > 4 * n * 2);
  }));
}

TEST_CASE("sharded: parameters that the user has changed") {
  check_ok(on_nodes(2, 2, [&](int node, int rank, thread_transport within, thread_transport across) {
    using inner = zero_one_adam<thread_transport>;
    parts mine;
    auto settings = settings_of<inner>();
    settings.weight_decay = 0;
    sharded<inner, thread_transport> o(mine.tensors(), settings, std::move(within), std::move(across));
    for (int t = 1; t <= 9; ++t) {
      mine.set_gradient(noisy_gradient(2, 2 * node + rank, t, elements));
      (void)o.step(1e-2);
    }
    if (o.shard_optimizer().local_steps() > 0) CHECK(ending_of([&] { o.rebase(); }).what == outcome::argument);
    (void)o.synchronize();
    for (float& x : mine.x) x = 100 + x;
    o.rebase();
    for (int t = 1; t <= 3; ++t) (void)o.step(1e-2);
    (void)o.synchronize();
    for (float const x : mine.x) CHECK(std::abs(x - 100) < 1);
  }));
}

TEST_CASE("sharded: bad calls change nothing and name the argument") {
  on_all_ranks(2, [&](thread_transport link) {
    parts mine;
    sharded<lone_adam<>, thread_transport> o(mine.tensors(), {}, std::move(link), {});
    flat const before = mine.x;
    auto const refused = [&](auto const& call, char const* what) {
      ending const e = ending_of(call);
      CHECK(e.what == outcome::argument);
      CHECK_MESSAGE(e.text.find(what) != std::string::npos, e.text);
      CHECK(same_bits(mine.x, before));
    };
    refused([&] { o.reduce(2, 1e-2); }, "layer");
    refused([&] { o.reduce(-1, 1e-2); }, "layer");
    o.reduce(0, 1e-2);
    refused([&] { o.reduce(0, 1e-2); }, "layer 0");
    refused([&] { o.reduce(1, 2e-2); }, "lr");
    refused([&] { o.reduce(1, 1e-2, 0.5); }, "grad_scale");
    refused([&] { (void)o.step(2e-2); }, "lr");
    refused([&] { (void)o.step(1e-2, 0.5); }, "grad_scale");
    (void)o.step(1e-2);
    CHECK(o.steps() == 1);
    refused([&] { (void)sharded<lone_adam<>, single_transport>({}, {}, {}, {}); }, "layers");
    parts other;
    refused([&] { (void)sharded<lone_adam<>, single_transport>(other.tensors(), {.max_norm = 1}, {}, {}); },
            "max_norm");
  });
}

/// The loss scale after every step; one rank's gradient of one layer overflows by turns.
template <class Optimizer>
std::vector<std::vector<double>> scales(int nodes, int ranks) {
  std::vector<std::vector<double>> all(nth(nodes * ranks));
  check_ok(on_nodes(nodes, ranks, [&](int node, int rank, thread_transport within, thread_transport across) {
    parts mine;
    auto link = [&] {
      if constexpr (std::is_same_v<typename Optimizer::transport_type, single_transport>)
        return single_transport{};
      else
        return std::move(across);
    }();
    sharded<Optimizer, thread_transport> o(mine.tensors(), settings_of<Optimizer>(), std::move(within),
                                           std::move(link));
    loss_scaler scaler({.initial = 0x1p10, .interval = 4});
    for (int t = 1; t <= 30; ++t) {
      flat g = noisy_gradient(2, 2 * node + rank, t, elements);
      if (t % 9 == 4 && node == nodes - 1 && rank == t % ranks) g[t % 2 == 0 ? 10 : 7000] = bad;
      mine.set_gradient(g);
      scaler.update(o.step(1e-2, 1.0));
      all[nth(node * ranks + rank)].push_back(scaler.scale());
    }
  }));
  return all;
}
template <class Optimizer>
void check_scales(int nodes, int ranks) {
  auto const all = scales<Optimizer>(nodes, ranks);
  bool grew = false, fell = false;
  for (std::size_t t = 1; t < all[0].size(); ++t) {
    grew |= all[0][t] > all[0][t - 1];
    fell |= all[0][t] < all[0][t - 1];
  }
  CHECK((grew && fell));
  for (auto const& each : all) CHECK(each == all[0]);
}
TEST_CASE("sharded: the loss scale follows the overflow of any rank, on all ranks at once") {
  check_scales<zero_one_adam<thread_transport>>(2, 2);
  check_scales<lone_adam<>>(1, 3);
}

TEST_CASE("sharded: ranks of different chunks do not take each other for peers") {
  auto const endings = on_nodes(2, 2, [&](int node, int rank, thread_transport within, thread_transport) {
    static thread_group crossed[2] = {thread_group(2, patient), thread_group(2, patient)};
    using inner = zero_one_adam<thread_transport>;
    // Two chunks of one length, whose parameters begin alike.
    flat x(2 * 2048), g(x.size());
    sharded<inner, thread_transport> o({{{"x", {}, x, g}}}, settings_of<inner>(), std::move(within),
                                       crossed[node == 0 ? rank : 1 - rank].rank(node));
    (void)o.step(1e-2);
  });
  for (ending const& e : endings) CHECK(e.what == outcome::mismatch);
}

TEST_CASE("sharded: a rank that is gone is heard of in its node and across") {
  auto const endings = on_nodes(2, 2, [&](int node, int rank, thread_transport within, thread_transport across) {
    using inner = zero_one_adam<thread_transport>;
    parts mine;
    sharded<inner, thread_transport> o(mine.tensors(), settings_of<inner>(), std::move(within), std::move(across));
    for (int t = 1; t <= 9; ++t) {
      if (t == 4 && node == 1 && rank == 0) throw std::runtime_error("gone");
      (void)o.step(1e-2);
    }
  });
  for (ending const& e : endings) CHECK(e.what != outcome::ok);
}

}  // namespace
