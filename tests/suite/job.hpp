// SPDX-License-Identifier: Apache-2.0
// A training run of any composition on n ranks, with whatever gradients, rates and inspection a test wants.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "suite/placed.hpp"
#include "suite/ranks.hpp"
#include "zoadam/aliases.hpp"
#include "zoadam/state/mean.hpp"

namespace suite {

using zoadam::step_report;
using flat = std::vector<float>;

/// Reproducible noise in [-1, 1) that depends on nothing but its arguments.
inline float noise(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  std::uint64_t h = seed;
  for (std::uint64_t const word : {a, b, c}) {
    h = (h ^ word) + 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    h ^= h >> 31;
  }
  return static_cast<float>(static_cast<double>(h >> 40) * 0x1p-23 - 1);
}

inline flat noisy_gradient(std::uint64_t seed, int rank, int step, std::size_t n) {
  flat g(n);
  for (std::size_t k = 0; k < n; ++k) {
    // Of all sizes, with a part that all workers share.
    float const size = std::ldexp(1.0f, static_cast<int>(k % 5) - 3);
    g[k] = size * (noise(seed, 77, k) +
                   noise(seed, static_cast<std::uint64_t>(rank) + 1, static_cast<std::uint64_t>(step), k));
  }
  return g;
}

/// Equal bits; NaN equals itself.
inline bool same_bits(flat const& a, flat const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline bool finite(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7f800000u) != 0x7f800000u;
}
template <class Values>
bool all_finite(Values const& values) {
  for (float const x : values)
    if (!finite(x)) return false;
  return true;
}

inline flat copy_of(std::span<float const> values) { return {values.begin(), values.end()}; }

/// The larger of two, NaN if either is: a comparison must not lose it.
inline double larger(double a, double b) { return a != a || a >= b ? a : b; }

/// The largest error over tensors of those sizes, each relative to the largest value wanted in it; NaN
/// for values that are no numbers, infinite for any where zeros are wanted.
template <class Values>
double relative_error(Values const& got, std::span<double const> wanted, std::vector<index> const& sizes) {
  double worst = 0;
  std::size_t k = 0;
  for (index const n : sizes) {
    double most = 0, error = 0;
    for (std::size_t const end = k + nth(n); k < end; ++k) {
      most = std::max(most, std::abs(wanted[k]));
      error = larger(error, std::abs(static_cast<double>(got[k]) - wanted[k]));
    }
    if (error != 0) worst = larger(worst, error / most);
  }
  return worst;
}

inline double largest(flat const& values) {
  double result = 0;
  for (float const x : values) result = std::max(result, std::abs(static_cast<double>(x)));
  return result;
}

/// The tensors of one rank.
struct buffers {
  std::vector<flat> parameter, gradient;
  std::vector<int> group;
  std::vector<std::vector<index>> shape{};  // none: vectors

  buffers(std::vector<index> const& sizes, std::vector<int> groups, std::function<float(std::size_t)> const& start)
      : group(std::move(groups)) {
    std::size_t k = 0;
    for (index const n : sizes) {
      parameter.emplace_back(nth(n));
      gradient.emplace_back(nth(n));
      for (float& x : parameter.back()) x = start(k++);
    }
  }
  std::vector<zoadam::tensor> tensors() {
    std::vector<zoadam::tensor> list;
    for (std::size_t t = 0; t < parameter.size(); ++t) {
      list.push_back({"tensor " + std::to_string(t), shape.empty() ? std::vector<index>{} : shape[t], parameter[t],
                      std::span<float const>(gradient[t]), group.empty() ? 0 : group[t]});
    }
    return list;
  }
  std::size_t elements() const {
    std::size_t n = 0;
    for (flat const& p : parameter) n += p.size();
    return n;
  }
  void set_gradient(flat const& g) {
    std::size_t k = 0;
    for (flat& each : gradient)
      for (float& x : each) x = g[k++];
  }
  flat parameters() const {
    flat all;
    for (flat const& p : parameter) all.insert(all.end(), p.begin(), p.end());
    return all;
  }
};

template <class Optimizer>
Optimizer make(buffers& mine, typename Optimizer::options_type settings, typename Optimizer::transport_type link,
               int threads = 1) {
  return Optimizer(mine.tensors(), std::move(settings), std::move(link), typename Optimizer::backend_type(threads));
}

/// The run.
template <class Optimizer>
struct job {
  using optimizer = Optimizer;
  std::vector<index> sizes{100};
  typename Optimizer::options_type settings{};
  int ranks = 1;
  int steps = 20;
  int threads = 1;
  std::uint64_t seed = 1;
  std::vector<int> groups{};
  std::vector<std::vector<index>> shapes{};  ///< of the sizes above; none: vectors
  std::function<float(std::size_t)> start = [](std::size_t k) { return 0.1f * noise(5, k); };
  std::function<flat(int rank, int step, std::size_t n)> gradient{};
  std::function<void(int step, flat& g)> adjust{};
  std::function<double(int step)> rate = [](int) { return 1e-2; };
  /// Called after every step, on the rank's thread.
  std::function<void(int step, Optimizer&, step_report const&, buffers&)> after{};
  std::function<void(Optimizer&, buffers&)> at_end{};

  /// Gradients: noise by seed unless given, then adjusted.
  flat gradient_at(int rank, int step, std::size_t n) const {
    flat g = gradient ? gradient(rank, step, n) : noisy_gradient(seed, rank, step, n);
    if (adjust) adjust(step, g);
    return g;
  }

  /// Parameters of every rank at the end.
  std::vector<flat> run() const {
    std::vector<flat> result(nth(ranks));
    auto const body = [&](typename Optimizer::transport_type link) {
      int const rank = link.rank();
      buffers mine(sizes, groups, start);
      mine.shape = shapes;
      Optimizer o = make<Optimizer>(mine, settings, std::move(link), threads);
      for (int t = 1; t <= steps; ++t) {
        mine.set_gradient(gradient_at(rank, t, mine.elements()));
        step_report const report = o.step(rate(t));
        if (after) after(t, o, report, mine);
      }
      if (at_end) at_end(o, mine);
      result[nth(rank)] = mine.parameters();
    };
    if constexpr (std::is_same_v<typename Optimizer::transport_type, zoadam::single_transport>) {
      REQUIRE(ranks == 1);
      body({});
    } else {
      on_all_ranks(ranks, body);
    }
    return result;
  }
};

/// A composition over threads.
template <class Quantizer, class Sync, class State, class Backend = zoadam::cpu_backend>
using threaded = placed<zoadam::optimizer<Quantizer, Sync, State, Backend, zoadam::thread_transport>>;

template <class Groups = zoadam::block<>, class Norm = zoadam::l1>
using sign_with_feedback = zoadam::error_feedback<zoadam::sign_quantizer<Groups, Norm>>;

}  // namespace suite
