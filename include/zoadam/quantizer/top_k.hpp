// SPDX-License-Identifier: Apache-2.0
// A few elements of each block, at two magnitudes.
#pragma once

#include <bit>
#include <cstdint>

#include "zoadam/concepts/quantizer.hpp"
#include "zoadam/lane/sum.hpp"

namespace zoadam {

/// Sends of each block the K elements of largest magnitude (of equal ones those in front), each as its position and 2
/// bits: its sign, and which of two magnitudes it has. Everything else is sent as 0. Elements whose magnitude is
/// above the mean of those sent have the mean of these as their magnitude, the others the mean of the others. Exact
/// zeros are never picked. A block of n < N elements, at a tensor's end, sends ceil(n K / N).
///
/// Payload of a block, little-endian: the larger magnitude and the other one as float32; then the codes of its
/// elements by position, each of w = log2(N), rounded up, + 2 bits (position | negative | larger, from the low bit
/// on), code j in bits [j w, (j + 1) w) of what follows, filled up to whole 32-bit words. Where there are fewer
/// elements than room for them, the first one is repeated; without any, all is 0.
///
/// Shape:    (n) -> 2 float32 + ceil(ceil(n K / N) w / 32) words; 0.23 bits per element for N = 4096, K = 64
/// Accuracy: |decode(encode(c)) - c|_2^2 <= (1 - K / N) |c|_2^2 over a block if K^2 <= 4 N; what is decoded comes
/// back as
///           it is if encoded again                                           tested: tests/quantizer/top_k.cpp
/// Source:   SparseLoCo, its TopK over chunks with 2-bit values
template <groups Groups = block<4096>, int K = 64>
struct top_k_quantizer {
  static_assert(detail::block_size<Groups> > 0 && detail::block_size<Groups> <= 65536,
                "zoadam: top_k_quantizer picks from blocks: use block<N> with N <= 65536");
  static_assert(K >= 1 && K <= 4096 && K <= detail::block_size<Groups>,
                "zoadam: top_k_quantizer: K must be from 1 to the size of a block, at most 4096");
  using groups = Groups;
  static constexpr bool has_scale = false;
  static constexpr bool compensated = false;
  static constexpr bool keeps_zero = true;

  /// Elements that are sent of a block of n.
  ZOADAM_HOST_DEVICE static constexpr int room(index n) noexcept {
    return static_cast<int>((n * K + size_ - 1) / size_);
  }
  static constexpr index payload_bytes(index n) noexcept { return n > 0 ? 4 * (2 + index{words(room(n))}) : 0; }

  /// What a block sends, in the order of its elements.
  struct picks {
    int count;
    int position[K];
    float value[K];    ///< before encoding
    float decoded[K];  ///< as it arrives
    bool larger[K];
  };

  /// Of n elements of a block, 0 < n <= N; called by all threads of a team, which share p.
  ZOADAM_CALLS_ANYTHING
  template <class Team>
  ZOADAM_INLINE static void encode(Team const& team, float const* c, int n, std::byte* payload, picks& p) noexcept {
    int const most = room(n), count = pick_largest(team, c, n, most, p);
    // The mean magnitude divides them; the test is exact for magnitudes that are means themselves.
    for (int j = team.rank(); j < count; j += team.size()) p.decoded[j] = magnitude(p.value[j]);
    double const all = team.sum(p.decoded, count);
    int mine = 0;
    for (int j = team.rank(); j < count; j += team.size()) {
      p.larger[j] = (f64(f32(p.decoded[j])) * f64(static_cast<double>(count))).v > all;
      mine += p.larger[j];
    }
    int const larger = team.total(mine);
    float const high = mean_magnitude(team, p, count, larger, true);
    float const low = mean_magnitude(team, p, count, count - larger, false);
    team.sync();
    for (int j = team.rank(); j < count; j += team.size()) {
      p.decoded[j] = with_sign(f32(p.larger[j] ? high : low), negative(f32(p.value[j]))).v;
    }
    team.sync();
    auto* const out = reinterpret_cast<std::uint32_t*>(payload);
    for (int w = team.rank(); w < words(most); w += team.size()) {
      std::uint32_t word = 0;
      for (int j = 32 * w / width_; j < most && j * width_ < 32 * (w + 1); ++j) {
        int const at = j * width_ - 32 * w;
        std::uint32_t const code = count > 0 ? code_of(p, j < count ? j : 0) : 0u;
        word |= at >= 0 ? code << at : code >> -at;
      }
      out[2 + w] = word;
    }
    if (team.rank() == 0) {
      out[0] = __builtin_bit_cast(std::uint32_t, high);
      out[1] = __builtin_bit_cast(std::uint32_t, low);
    }
  }

  /// Element j < room(n) of what a payload sends. Bytes that nobody has encoded may say any position below 65536.
  ZOADAM_INLINE static sparse_element decode(std::byte const* payload, int j) noexcept {
    auto const* const in = reinterpret_cast<std::uint32_t const*>(payload);
    int const word = 2 + j * width_ / 32, shift = j * width_ % 32;
    std::uint32_t code = in[word] >> shift;
    if (shift + width_ > 32) code |= in[word + 1] << (32 - shift);
    f32 const value(__builtin_bit_cast(float, in[(code >> (position_bits_ + 1)) % 2 != 0 ? 0 : 1]));
    return {static_cast<int>(code & position_mask_), with_sign(value, f32_mask::from_bits(code >> position_bits_)).v};
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("top_k", K);
    Groups{}.describe(sink);
  }

 private:
  static constexpr index size_ = detail::block_size<Groups>;
  static constexpr int position_bits_ = std::bit_width(static_cast<std::uint32_t>(size_ - 1));
  static constexpr std::uint32_t position_mask_ = (std::uint32_t{1} << position_bits_) - 1;
  static constexpr int width_ = position_bits_ + 2;
  ZOADAM_HOST_DEVICE static constexpr int words(int codes) noexcept { return (codes * width_ + 31) / 32; }

  ZOADAM_INLINE static std::uint32_t magnitude_bits(float x) noexcept {
    return __builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu;
  }
  ZOADAM_INLINE static float magnitude(float x) noexcept { return __builtin_bit_cast(float, magnitude_bits(x)); }

  ZOADAM_INLINE static std::uint32_t code_of(picks const& p, int j) noexcept {
    return static_cast<std::uint32_t>(p.position[j]) | negative(f32(p.value[j])).bits() << position_bits_ |
           static_cast<std::uint32_t>(p.larger[j]) << (position_bits_ + 1);
  }

  // Magnitudes are compared as integers. Returns how many there are: `most`, or all that are not 0.
  ZOADAM_CALLS_ANYTHING
  template <class Team>
  ZOADAM_INLINE static int pick_largest(Team const& team, float const* c, int n, int most, picks& p) noexcept {
    // The magnitude of the last one that has room, bit by bit; 0 if there is room for all.
    std::uint32_t least = 0;
    for (std::uint32_t bit = 1u << 30; bit > 0; bit >>= 1) {
      if (team.count_above(c, n, (least | bit) - 1) >= most) least |= bit;
    }
    int const above = team.count_above(c, n, least), ties = least == 0 ? 0 : most - above;
    // Each thread looks at a run of elements, of odd length for the sake of shared memory's banks.
    int const run = (n + team.size() - 1) / team.size() | 1;
    int const first = smaller(team.rank() * run, n), last = smaller(first + run, n);
    int at = 0, tied = 0;
    if (team.size() > 1) {
      for (int i = first; i < last; ++i) {
        at += magnitude_bits(c[i]) > least;
        tied += magnitude_bits(c[i]) == least;
      }
      tied = smaller(team.before(tied), ties);
      at = team.before(at) + tied;
    }
    for (int i = first; i < last; ++i) {
      std::uint32_t const bits = magnitude_bits(c[i]);
      bool const tie = bits == least && tied < ties;
      if (bits > least || tie) {
        p.position[at] = i;
        p.value[at] = c[i];
        ++at;
        tied += tie;
      }
    }
    team.sync();
    if (team.rank() == 0) p.count = above + ties;
    return above + ties;
  }

  ZOADAM_CALLS_ANYTHING
  template <class Team>
  ZOADAM_INLINE static float mean_magnitude(Team const& team, picks& p, int count, int members,
                                            bool larger) noexcept {
    for (int j = team.rank(); j < count; j += team.size()) {
      p.decoded[j] = p.larger[j] == larger ? magnitude(p.value[j]) : 0.0f;
    }
    return group_scale_l1(team.sum(p.decoded, count), members);
  }

  ZOADAM_INLINE static int smaller(int a, int b) noexcept { return a < b ? a : b; }
};
static_assert(quantizer<top_k_quantizer<>> && sparse<top_k_quantizer<>> && keeps_zero<top_k_quantizer<>>);

}  // namespace zoadam
