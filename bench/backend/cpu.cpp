// SPDX-License-Identifier: Apache-2.0
// The fused loops of the CPU backend, one by one, against copies of the same streams.
//
// The loops are those that optimizers run: the same segments over the same views, without a transport between them.
#include "zoadam/backend/cpu.hpp"
#include "zoadam/options.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "measure.hpp"
#include "streams.hpp"
#include "zoadam/detail/plan.hpp"
#include "zoadam/lane/mode.hpp"
#include "zoadam/quantizer/error_feedback.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"
#include "zoadam/state/frozen_variance.hpp"
#include "zoadam/state/local_adam.hpp"

namespace bench {
namespace {

using namespace zoadam;
using zoadam::index;

constexpr int ranks = 4;

using space = displacement<power::one>;
using sign = error_feedback<sign_quantizer<>>;
using worker_error = at::worker_error_t<space>;
using owner_error = at::owner_error_t<space>;
using fields = zoadam::fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::replica>,
                              field<at::anchor_t, home::replica>, field<worker_error, home::worker>,
                              field<owner_error, home::owner>>;

template <class Receive, class Send, class... Formulas>
using segment = detail::segment<Receive, Send, Formulas...>;
using detail::no_messages;
using detail::nothing;

using replace_form = space::replacing;
using correct_form = space::correcting<true>;
using gradient_form = moments_update::the_form;

/// Every array of the loops, filled with numbers of plausible size; all elements are active.
class arena {
 public:
  explicit arena(index elements)
      : elements_(elements),
        memory_(cpu_backend().allocate(arrays_ * (elements * 4 + memory_use::field_gap))),
        x(take()),
        g(take()),
        m(take()),
        v(take()),
        a(take()),
        worker_errors(take()),
        owner_errors(take()),
        means(take()),
        tensors({{"x", {}, {x, static_cast<std::size_t>(elements)}, std::span<float const>(g, size())}}, 1),
        sign_cut(tensors, ranks),
        mean_cut(tensors, 1),
        up(cpu_backend().allocate(sign_cut.offsets().back())),
        received(cpu_backend().allocate(ranks * sign_cut.offsets().back())),
        down(cpu_backend().allocate(sign_cut.offsets().back())),
        gathered(cpu_backend().allocate(mean_cut.offsets().back())),
        block_sums_(size() / sum_block + 2) {
    fill(x, -0.1f, 0.1f);
    fill(g, -0.01f, 0.01f);
    fill(m, -0.01f, 0.01f);
    fill(v, 1e-6f, 1e-4f);
    fill(a, -0.1f, 0.1f);
    fill(worker_errors, -1e-5f, 1e-5f);
    fill(owner_errors, -1e-5f, 1e-5f);
    fill(means, -0.01f, 0.01f);
    std::memcpy(gathered.data() + mean_cut[0].payload, means, size() * 4);
    fill_signs(up.data(), 1);
    fill_signs(down.data(), 1);
    fill_signs(received.data(), ranks);

    view.tensors = &tensors;
    view.field[at::momentum] = m;
    view.field[at::variance] = v;
    view.field[at::anchor] = a;
    view.field[worker_error{}] = worker_errors;
    view.field[owner_error{}] = owner_errors;
    view.block_sums = block_sums_.data();
    view.group = &numbers_;
    view.now = &progress_;
    view.contributes = contributes_;
    std::memset(contributes_, 1, ranks);
  }

 private:
  static constexpr index arrays_ = 8;
  index elements_;
  cpu_backend::memory memory_;
  index taken_ = 0;

  std::size_t size() const { return static_cast<std::size_t>(elements_); }
  // Laid out as the optimizer lays out its fields.
  float* take() {
    return reinterpret_cast<float*>(memory_.data() + (elements_ * 4 + memory_use::field_gap) * taken_++);
  }
  std::uint32_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  void fill(float* to, float low, float high) {
    for (index i = 0; i < elements_; ++i) to[i] = low + (high - low) * static_cast<float>(next() >> 8) * 0x1p-24f;
  }
  // Messages for all owners, `copies` of each one after the other: random bits, one scale.
  void fill_signs(std::byte* to, int copies) {
    for (int owner = 0; owner < ranks; ++owner) {
      piece const leader = sign_cut.owned(owner, 0);
      auto const begin = static_cast<std::size_t>(owner);
      index const bytes = sign_cut.offsets()[begin + 1] - sign_cut.offsets()[begin];
      for (int copy = 0; copy < copies; ++copy, to += bytes) {
        for (index at = 0; at < bytes; at += 4) {
          std::uint32_t const word = at < leader.payload ? std::bit_cast<std::uint32_t>(1e-5f) : next();
          std::memcpy(to + at, &word, 4);
        }
      }
    }
  }

  static coefficients<float> numbers() {
    coefficients<float> k{};
    k.grad_scale = k.decay = k.limit = 1;
    k.beta1 = k.own_beta1 = 0.9f;
    k.one_minus_beta1 = k.own_one_minus_beta1 = 0.1f;
    k.beta2 = k.own_beta2 = 0.999f;
    k.one_minus_beta2 = k.own_one_minus_beta2 = 0.001f;
    k.correction1 = k.correction2 = 1.1f;
    k.epsilon = 1e-8f;
    k.weight_decay = 0.01f;
    k.lr = 1e-3f;
    k.gamma = 4e-3f;
    k.per_gamma = 250.0f;
    return k;
  }

  std::uint64_t state_ = 0x9e3779b97f4a7c15u;

 public:
  float *x, *g, *m, *v, *a, *worker_errors, *owner_errors, *means;
  layout tensors;
  partition<sign> sign_cut;
  partition<identity_quantizer> mean_cut;
  cpu_backend::memory up, received, down, gathered;
  detail::view<fields> view;

 private:
  std::vector<float> block_sums_;
  coefficients<float> numbers_ = numbers();
  detail::progress progress_;
  unsigned char contributes_[ranks];
};

class suite {
 public:
  suite(arena& data, int threads, int rounds, std::string filter, std::vector<row>& rows)
      : d_(data),
        backend_(threads),
        pool_(threads),
        threads_(threads),
        rounds_(rounds),
        filter_(std::move(filter)),
        rows_(rows) {
    backend_.reserve(detail::tile_of<sign>);
  }

  void run() {
    auto const words = [](cpu_backend::memory const& m) { return reinterpret_cast<std::uint32_t*>(m.data()); };
    detail::outgoing<sign> const out{&d_.sign_cut, d_.up.data(), d_.worker_errors};
    detail::incoming<sign> const in{&d_.sign_cut, d_.down.data()};
    detail::incoming<identity_quantizer> const mean{&d_.mean_cut, d_.gathered.data()};
    // Scales, 4 bytes per block of 2048 elements, are left out of the bytes.
    compare(
        "local step",
        [&] { fused<segment<nothing, nothing, local_momentum, local_step>>(no_messages{}, no_messages{}); },
        streams<2, 2, 0>{{d_.g, d_.v}, {d_.m, d_.x}});
    compare(
        "exchange worker side, replace",
        [&] { fused<segment<nothing, replace_form, local_momentum, local_step>>(no_messages{}, out); },
        streams<5, 1, 0, 0, 1>{{d_.g, d_.m, d_.v, d_.x, d_.a}, {d_.worker_errors}, {}, {}, {words(d_.up)}});
    compare(
        "exchange worker side, correct",
        [&] { fused<segment<nothing, correct_form, local_momentum, local_step>>(no_messages{}, out); },
        streams<4, 2, 0, 0, 1>{{d_.g, d_.v, d_.x, d_.a}, {d_.m, d_.worker_errors}, {}, {}, {words(d_.up)}});
    compare(
        "apply, replace", [&] { fused<segment<replace_form, nothing>>(in, no_messages{}); },
        streams<1, 1, 2, 1>{{d_.v}, {d_.a}, {d_.x, d_.m}, {words(d_.down)}});
    compare(
        "apply, correct", [&] { fused<segment<correct_form, nothing>>(in, no_messages{}); },
        streams<1, 3, 0, 1>{{d_.v}, {d_.a, d_.x, d_.m}, {}, {words(d_.down)}});

    auto const bits = [&](index k) { return words(d_.received) + k * d_.tensors.elements() / 32; };
    compare(
        "rank side, n = 4", [&] { rank_side(); },
        streams<1, 1, 0, ranks, 1>{
            {d_.v}, {d_.owner_errors}, {}, {bits(0), bits(1), bits(2), bits(3)}, {words(d_.down)}});
    compare(
        "Adam step",
        [&] {
          fused<segment<nothing, nothing, local_variance, local_momentum, corrected_step>>(no_messages{},
                                                                                           no_messages{});
        },
        streams<1, 3, 0>{{d_.g}, {d_.m, d_.v, d_.x}});
    compare(
        "Adam step on a received mean",
        [&] { fused<segment<gradient_form, nothing, corrected_step>>(mean, no_messages{}); },
        streams<1, 3, 0>{{d_.means}, {d_.m, d_.v, d_.x}});
    compare(
        "gradient check",
        [&] {
          backend_.check(d_.view);
          if (d_.view.now->bad) std::abort();
        },
        streams<1, 0, 0>{{d_.g}});
  }

 private:
  template <class Segment, class In, class Out>
  void fused(In const& in, Out const& out) {
    backend_.run<Segment>(d_.view, in, out);
  }

  // Every owner's chunk, one after the other, so that all elements are passed once.
  void rank_side() {
    index received = 0, own = 0;
    for (int owner = 0; owner < ranks; ++owner) {
      auto const at = static_cast<std::size_t>(owner);
      backend_.own<correct_form>(d_.view, d_.sign_cut, d_.sign_cut, owner, d_.received.data() + received,
                                 d_.down.data() + d_.sign_cut.offsets()[at], d_.owner_errors + own);
      received += ranks * (d_.sign_cut.offsets()[at + 1] - d_.sign_cut.offsets()[at]);
      own += d_.sign_cut.elements(owner);
    }
  }

  template <class Loop, class Streams>
  void compare(char const* name, Loop const& loop, Streams const& same) {
    if (std::string(name).find(filter_) == std::string::npos) return;
    index const n = d_.tensors.elements();
    auto const copy = [&] { pool_.parallel(n, 2048, [&](index first, index last, int) { same.copy(first, last); }); };
    timing const t = time_in_turns(rounds_, loop, copy);
    rows_.push_back({name, threads_, 1e9 * t.seconds / static_cast<double>(n), Streams::bytes, t.fraction_of_copy});
    print(rows_.back());
  }

  arena& d_;
  cpu_backend backend_;
  detail::thread_pool pool_;
  int threads_, rounds_;
  std::string filter_;
  std::vector<row>& rows_;
};

[[noreturn]] void usage(char const* program) {
  std::fprintf(stderr,
               "usage: %s [--json FILE] [--mebi-elements N] [--rounds N] [--threads N] [--only TEXT]\n"
               "  --json FILE         write the rows to a file\n"
               "  --mebi-elements N   elements per array, in units of 2^20 (default 64)\n"
               "  --rounds N          timed pairs of loop and copy, of which medians are printed (default 15)\n"
               "  --threads N         one number of threads instead of 1 and all\n"
               "  --only TEXT         loops whose name holds TEXT\n",
               program);
  std::exit(2);
}

}  // namespace
}  // namespace bench

int main(int count, char** arguments) {
  if (std::strcmp(ZOADAM_BENCH_CONFIG, "Release") != 0) {
    std::fprintf(stderr, "%s: built as '%s': a bench measures Release builds only\n", arguments[0],
                 ZOADAM_BENCH_CONFIG);
    return 2;
  }
  std::string json, only;
  long mebi = 64, rounds = 15, threads = 0;
  for (int i = 1; i < count; i += 2) {
    std::string const flag = arguments[i];
    if (i + 1 == count) bench::usage(arguments[0]);
    auto const number = [&] {
      long const n = std::strtol(arguments[i + 1], nullptr, 10);
      if (n < 1 || n > 65536) bench::usage(arguments[0]);
      return n;
    };
    if (flag == "--json") {
      json = arguments[i + 1];
    } else if (flag == "--mebi-elements") {
      mebi = number();
    } else if (flag == "--rounds") {
      rounds = number();
    } else if (flag == "--threads") {
      threads = number();
    } else if (flag == "--only") {
      only = arguments[i + 1];
    } else {
      bench::usage(arguments[0]);
    }
  }

  zoadam::floating_point_mode const ieee;
  auto const elements = static_cast<zoadam::index>(mebi) << 20;
  auto const about = bench::machine(zoadam::isa::native::name, static_cast<int>(rounds), elements);
  bench::print(about);
  bench::arena data(elements);
  std::vector<bench::row> rows;
  int const all = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<int> counts{1};
  if (all > 1) counts.push_back(all);
  if (threads > 0) counts = {static_cast<int>(threads)};
  for (int each : counts) bench::suite(data, each, static_cast<int>(rounds), only, rows).run();
  if (!json.empty() && !bench::write_json(json, about, rows)) {
    std::fprintf(stderr, "%s: cannot write %s\n", arguments[0], json.c_str());
    return 1;
  }
  return 0;
}
