// SPDX-License-Identifier: Apache-2.0
// The GPT of the examples with the variants of 0/1 Adam among which the default was chosen.
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "app.hpp"
#include "trainer.hpp"
#include "zoadam/zoadam.hpp"

namespace {

using namespace zoadam;
using rounds16 = cast_quantizer<zoadam::bfloat16>;  // OpenBLAS has a bfloat16 too

template <zoadam::index Block, class Space, class Variance, class Transport>
using variant = optimizer<error_feedback<sign_quantizer<block<Block>>>, local_steps,
                          frozen_variance_state<Space, Variance>, cpu_backend, Transport>;

/// Calls f.operator()<Optimizer>(name) for every variant.
template <class Transport, class F>
void for_each_variant(F f) {
  using enum power;
  constexpr auto replace = momentum_rule::replace;
  f.template operator()<variant<2048, displacement<>, identity_quantizer, Transport>>("variance_float32");
  f.template operator()<variant<2048, displacement<one, replace>, rounds16, Transport>>("replace");
  f.template operator()<variant<2048, displacement<half>, rounds16, Transport>>("p_half");
  f.template operator()<variant<2048, displacement<zero>, rounds16, Transport>>("p_zero");
  f.template operator()<variant<128, displacement<>, rounds16, Transport>>("block_128");
  f.template operator()<variant<256, displacement<>, rounds16, Transport>>("block_256");
  f.template operator()<variant<512, displacement<>, rounds16, Transport>>("block_512");
  f.template operator()<variant<1024, displacement<>, rounds16, Transport>>("block_1024");
  f.template operator()<variant<2048, momentum_sum<momentum_rule::correct>, rounds16, Transport>>("momentum_sum");
}

template <class Transport>
auto train_variant(example::settings const& s, example::corpus const& text, Transport link) {
  example::rank_result<example::rank_totals> result;
  bool found = false;
  for_each_variant<Transport>([&]<class Optimizer>(char const* name) {
    if (s.optimizer != name) return;
    found = true;
    result = example::train<Optimizer>(s, text, std::move(link));
  });
  if (!found) throw std::invalid_argument("unknown variant " + s.optimizer);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  for_each_variant<thread_transport>([&]<class>(char const* name) { names.emplace_back(name); });
  return example::run_program(argc, argv, names, [](auto const& s, auto const& text, auto link) {
    return train_variant(s, text, std::move(link));
  });
}
