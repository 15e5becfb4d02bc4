// SPDX-License-Identifier: Apache-2.0
// Do all ranks run the same thing? At construction by one small exchange, later by message headers.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "zoadam/concepts/transport.hpp"
#include "zoadam/detail/describe.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/error.hpp"

namespace zoadam::detail {

template <class T>
std::uint64_t hash_of(T const& described) {
  hasher sink;
  described.describe(sink);
  return sink.value();
}

struct agreement {
  std::uint64_t valid = 0;
  std::uint64_t composition = 0, layout = 0, options = 0, parameters = 0;

  std::uint64_t combined() const noexcept {
    hasher sink;
    sink("signature", composition, layout, options);
    return sink.value();
  }
};

/// Collective. Throws mismatch_error on every rank if one is not valid or differs, naming it and what differs.
template <class Backend, transport Transport>
void agree(Backend& backend, Transport& link, agreement const& mine, char const* call) {
  auto const ranks = static_cast<std::size_t>(link.size());
  std::vector<index> offsets;
  for (std::size_t j = 0; j <= ranks; ++j) offsets.push_back(static_cast<index>(j * sizeof(agreement)));
  std::vector<std::byte> send(sizeof mine), all(ranks * sizeof mine);
  std::memcpy(send.data(), &mine, sizeof mine);
  backend.all_gather(link, offsets, send.data(), all.data());

  agreement first;
  std::memcpy(&first, all.data(), sizeof first);
  for (std::size_t j = 0; j < ranks; ++j) {
    agreement theirs;
    std::memcpy(&theirs, all.data() + j * sizeof theirs, sizeof theirs);
    auto const refuse = [&](char const* what) {
      throw mismatch_error(std::string("zoadam: ") + call + ": rank " + std::to_string(j) + " " + what);
    };
    if (theirs.valid != 1) refuse("refused its arguments");
    if (theirs.composition != first.composition) refuse("runs another composition than rank 0");
    if (theirs.layout != first.layout) refuse("has other tensors than rank 0");
    if (theirs.options != first.options) refuse("has other options than rank 0");
    if (theirs.parameters != first.parameters) refuse("has other parameters than rank 0: broadcast them first");
  }
}

/// Throws mismatch_error, unless nothing differs.
inline void expect_same(header_field what, int rank) {
  static constexpr char const* names[] = {"",
                                          "wire version",
                                          "composition",
                                          "stage of the composition",
                                          "step",
                                          "sum of learning rates",
                                          "learning rate or decay",
                                          "contributions"};
  if (what == header_field::none) return;
  throw mismatch_error("zoadam: exchange: rank " + std::to_string(rank) + " sent another " +
                       names[static_cast<std::size_t>(what)]);
}

}  // namespace zoadam::detail
