// SPDX-License-Identifier: Apache-2.0
// How a vector is cut: owners, groups and messages, against the reference on random layouts.
#include "zoadam/layout/partition.hpp"

#include <doctest/doctest.h>

#include <random>

#include "reference/reference.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"

namespace {

using zoadam::index;
using zoadam::piece;

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }

zoadam::layout layout_of(std::vector<index> const& sizes) {
  std::vector<zoadam::tensor> list;
  std::uintptr_t at = 0x100000;
  for (index n : sizes) {
    list.push_back({std::to_string(list.size()), {}, {reinterpret_cast<float*>(at), nth(n)}, {}});
    at += nth(n) * 4 + 64;
  }
  return zoadam::layout(std::move(list), 1);
}

template <class Groups>
reference::layout expected_layout(std::vector<index> const& sizes, int ranks) {
  reference::layout l;
  l.ranks = ranks;
  l.tensors = sizes;
  constexpr index block = zoadam::detail::block_size<Groups>;
  l.groups = block > 0                                    ? reference::grouping::block
             : std::is_same_v<Groups, zoadam::per_tensor> ? reference::grouping::tensor
                                                          : reference::grouping::whole;
  if (block > 0) l.block = block;
  return l;
}

// Everything that a partition says about one layout.
template <class Quantizer>
void check(std::vector<index> const& sizes, int ranks) {
  using groups = typename Quantizer::groups;
  auto const l = layout_of(sizes);
  zoadam::partition<Quantizer> const cut(l, ranks);
  auto const expected = expected_layout<groups>(sizes, ranks);
  auto const owners = reference::owners(expected);
  auto const rank_groups = reference::rank_groups(expected);
  auto const worker_groups = reference::worker_groups(expected);
  REQUIRE(cut.ranks() == ranks);
  REQUIRE(cut.offsets().size() == nth(ranks) + 1);

  // Pieces in flat order are the rank-side groups, and tile [0, elements).
  std::vector<reference::owned_range> found;
  index at = 0;
  for (index k = 0; k < cut.pieces(); ++k) {
    piece const p = cut[k];
    REQUIRE(p.first == at);
    at = p.last;
    if (p.first < p.last) found.push_back({p.owner, p.first, p.last});
  }
  CHECK(at == l.elements());
  CHECK(found == rank_groups);

  // find(), the owner and the worker-side group of every element.
  index group = -1;
  std::size_t worker = 0;
  bool found_right = true, owners_right = true, groups_right = true;
  for (index i = 0; i < l.elements(); ++i) {
    piece const p = cut[cut.find(i)];
    found_right &= p.first <= i && i < p.last;
    owners_right &= p.owner == owners[nth(i)];
    if (worker_groups[worker].end == i) ++worker;
    bool const begins = worker_groups[worker].first == i;
    groups_right &= begins ? p.group > group : p.group == group;
    group = p.group;
  }
  CHECK(found_right);
  CHECK(owners_right);
  CHECK(groups_right);

  // Rank j's message: header, scales, payloads in the order of its pieces, without gaps or overlaps.
  index total = 0;
  for (int j = 0; j < ranks; ++j) {
    index const bytes = cut.offsets()[nth(j) + 1] - cut.offsets()[nth(j)];
    index scale = zoadam::header_bytes, payload = 0, own = 0, count = 0;
    for (index i = 0; i < cut.owned(j); ++i) count += cut.owned(j, i).last > cut.owned(j, i).first;
    payload = scale + (Quantizer::has_scale ? 4 * count : 0);
    for (index i = 0; i < cut.owned(j); ++i) {
      piece const p = cut.owned(j, i);
      REQUIRE(p.owner == j);
      CHECK(p.own == own);
      own += p.last - p.first;
      if (p.first == p.last) continue;
      if (Quantizer::has_scale) {
        CHECK(p.scale == scale);
        CHECK(p.scale % 4 == 0);
        scale += 4;
      }
      CHECK(p.payload == payload);
      payload += Quantizer::payload_bytes(p.last - p.first);
    }
    CHECK(cut.elements(j) == own);
    CHECK(bytes == (payload + 3) / 4 * 4);
    total += bytes - zoadam::header_bytes;
  }
  CHECK(cut.offsets()[0] == 0);
  CHECK(cut.payload_bytes() == total);
}

template <class Groups>
void check_quantizers(std::vector<index> const& sizes, int ranks) {
  CAPTURE(sizes.size());
  CAPTURE(ranks);
  check<zoadam::sign_quantizer<Groups>>(sizes, ranks);
}
void check_all(std::vector<index> const& sizes, int ranks) {
  check_quantizers<zoadam::block<32>>(sizes, ranks);
  check_quantizers<zoadam::block<64>>(sizes, ranks);
  check_quantizers<zoadam::block<>>(sizes, ranks);
  check_quantizers<zoadam::per_tensor>(sizes, ranks);
  check_quantizers<zoadam::whole>(sizes, ranks);
  check<zoadam::identity_quantizer>(sizes, ranks);
  check<zoadam::cast_quantizer<zoadam::float16>>(sizes, ranks);
}

TEST_CASE("case 11: odd sizes, one tensor") {
  for (index const n : {0, 1, 7, 17, 31, 32, 33, 1023, 1024, 1025}) {
    for (int const ranks : {1, 2, 3, 5, 6}) check_all({n}, ranks);
  }
}

TEST_CASE("random layouts, empty tensors among them") {
  std::mt19937 random(11);
  index const some[] = {0, 0, 1, 2, 31, 32, 33, 63, 64, 65, 100, 257, 700, 2047, 2048, 2049, 4097};
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<index> sizes;
    for (unsigned t = 0; t < 1 + random() % 8; ++t) sizes.push_back(some[random() % 17]);
    check_all(sizes, 1 + static_cast<int>(random() % 9));
  }
}

TEST_CASE("more ranks than units: late ranks own nothing and send a header alone") {
  auto const l = layout_of({33});
  zoadam::partition<zoadam::sign_quantizer<zoadam::whole>> const cut(l, 6);
  CHECK(cut.elements(0) == 32);
  CHECK(cut.elements(1) == 1);
  for (int j = 2; j < 6; ++j) {
    CHECK(cut.elements(j) == 0);
    CHECK(cut.offsets()[nth(j) + 1] - cut.offsets()[nth(j)] == zoadam::header_bytes);
  }
}

TEST_CASE("case 18: positions and bytes beyond 2^31") {
  index const n = (index{1} << 33) + 5;
  auto const l = layout_of({7, n});
  zoadam::partition<zoadam::identity_quantizer> const exact(l, 2);
  CHECK(exact.payload_bytes() == 4 * (n + 7));
  piece const last = exact[exact.find(n + 6)];
  CHECK(last.owner == 1);
  CHECK(last.last == n + 7);
  CHECK(exact.elements(0) + exact.elements(1) == n + 7);
  CHECK(exact.offsets()[1] > (index{1} << 33));

  zoadam::partition<zoadam::sign_quantizer<>> const blocks(l, 3);
  CHECK(blocks.find(n + 6) == blocks.pieces() - 1);
  piece const block = blocks[blocks.pieces() - 1];
  CHECK(block.last == n + 7);
  CHECK(block.first == 7 + (index{1} << 33));
  CHECK(block.owner == 2);
}

}  // namespace
