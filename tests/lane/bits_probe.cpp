// SPDX-License-Identifier: Apache-2.0
// Prints one hash over a long sequence of lane operations; every build of this file must print the same line.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "zoadam/config.hpp"
#include "zoadam/lane/f64.hpp"
#include "zoadam/lane/half.hpp"
#include "zoadam/lane/lane.hpp"
#include "zoadam/lane/mode.hpp"
#include "zoadam/lane/sum.hpp"

namespace {

using zoadam::f64;
using zoadam::index;

// Arrays have one length for every lane width, so that the order of the hash does not depend on the width.
constexpr int length = 2048;

struct probe {
  std::uint64_t hash = 14695981039346656037u;
  std::uint64_t state = 0x9e3779b97f4a7c15u;

  void add(std::uint64_t x) {
    hash = (hash ^ x) * 1099511628211u;
    hash ^= hash >> 29;
  }
  void add(float x) { add(std::uint64_t{std::bit_cast<std::uint32_t>(x)}); }
  void add(double x) { add(std::bit_cast<std::uint64_t>(x)); }

  std::uint32_t random() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::uint32_t>(state >> 32);
  }
  // Finite values of any magnitude with some zeros and denormals, or of ordinary magnitude.
  float any() {
    std::uint32_t const r = random();
    if (r % 16 == 0) return std::bit_cast<float>((r >> 8) & 0x80000000u);
    if (r % 16 == 1) return std::bit_cast<float>(random() & 0x807fffffu);
    std::uint32_t const bits = random();
    return std::bit_cast<float>((bits & 0x7f800000u) == 0x7f800000u ? bits & 0xbfffffffu : bits);
  }
  float ordinary() {
    std::uint32_t const bits = random();
    return std::bit_cast<float>((bits & 0x80ffffffu) | (0x3e000000u + ((random() & 1u) << 24)));
  }
};

float x[length], y[length], z[length], out[length];
// Known to the optimizer as constants, to invite folding.
float const zeros[16] = {};

template <class L>
void element_operations(probe& p) {
  auto each = [&p](auto&& f) {
    for (int i = 0; i < length; i += L::width) f(L::load(x + i), L::load(y + i), L::load(z + i)).store(out + i);
    for (float r : out) p.add(r);
  };
  L const zero(0.0f), one(1.0f), two(2.0f), third(1.0f / 3);
  each([](L a, L b, L) { return a + b; });
  each([](L a, L b, L) { return a - b; });
  each([](L a, L b, L) { return a * b; });
  each([](L a, L b, L c) { return a * b + c; });
  each([](L a, L b, L c) { return c - a * b; });
  each([](L a, L b, L c) { return (a + b) + c; });
  each([](L a, L b, L c) { return a + (b + c); });
  each([](L a, L b, L c) { return a * c + b * c; });
  each([](L a, L b, L) { return (a + b) - a; });
  each([=](L a, L, L) { return a + zero; });
  each([](L a, L, L) { return a + L(0.0f); });
  each([](L a, L, L) { return a + L::load(zeros); });
  each([](L a, L, L) { return a * L(0.0f); });
  each([](L a, L, L) { return L(0.0f) - a; });
  each([](L a, L b, L) { return -a - b; });
  each([=](L a, L, L) { return a * third * third; });
  each([=](L a, L, L) { return a / L(3.0f) * two; });
  each([=](L a, L b, L) {
    L const d = select(nonzero(b), b, one);
    return a / d;
  });
  each([=](L a, L b, L c) {
    L const d = abs(c) + one;
    return a / d + b / d;
  });
  each([=](L a, L, L) { return one / sqrt(abs(a) + one); });
  each([](L a, L, L) { return sqrt(abs(a)); });
  each([](L a, L, L) { return sqrt(abs(a)) * sqrt(abs(a)); });
  each([](L a, L b, L) { return min(a, b); });
  each([](L a, L b, L) { return max(a, b); });
  each([](L a, L b, L c) { return max(min(a, b), -abs(c)); });
  each([](L a, L b, L c) { return select(less(a, b), c, a); });
  each([](L a, L b, L c) { return select(greater(a, b), c, a); });
  each([](L a, L b, L) { return with_sign(abs(a), negative(b)); });
  each([](L a, L, L) { return flush(a, 0x1p-96f); });
  each([](L a, L, L) { return flush(a, 0x1p-126f); });
  each([](L a, L b, L) { return select(exceeds(a, 0x3f800000u), b, a); });
  // one step of Adam
  each([=](L g, L m, L v) {
    L const s = abs(v) * L(0.999f) + L(1.0f - 0.999f) * (g * g);
    L const n = L(0.9f) * m + L(1.0f - 0.9f) * g;
    return g - L(1e-3f) * (n / (sqrt(s) + L(1e-8f)) + L(0.01f) * g);
  });
}

template <class L>
void masks(probe& p) {
  std::uint32_t words[length / 16] = {};
  for (int i = 0; i < length; i += L::width) {
    L const a = L::load(x + i), b = L::load(y + i);
    auto const m = (less(a, b) & negative(a)) | !exceeds(b, 0x3f000000u);
    words[i / 16] |= m.bits() << (i % 16);
  }
  for (std::uint32_t w : words) p.add(std::uint64_t{w});
}

// Inf and NaN, where only integer tests have a say.
template <class L>
void special_values(probe& p) {
  std::uint32_t const special[16] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u,
                                     0x7f7fffffu, 0xff7fffffu, 0u,          0x80000000u, 1u,          0x80000001u,
                                     0x007fffffu, 0x807fffffu, 0x00800000u, 0x80800000u};
  float a[16], r[16];
  std::memcpy(a, special, sizeof a);
  std::uint32_t words[6] = {};
  for (int i = 0; i < 16; i += L::width) {
    L const v = L::load(a + i);
    words[0] |= negative(v).bits() << i;
    words[1] |= nonzero(v).bits() << i;
    words[2] |= exceeds(v, 0x7f7fffffu).bits() << i;
    words[3] |= less(v, L(0.0f)).bits() << i;
    words[4] |= greater(v, L(0x1p-140f)).bits() << i;
    words[5] |= any_bit(v).bits() << i;
    flush(v, 0x1p-126f).store(r + i);
  }
  for (std::uint32_t w : words) p.add(std::uint64_t{w});
  for (float f : r) p.add(f);
}

template <class L>
void sums(probe& p) {
  for (int n = 1; n <= length; n += n < 300 ? 1 : 97) {
    for (int i = 0; i < length; ++i) out[i] = i < n ? x[i] : 0.0f;
    p.add(zoadam::block_sum<L>(out, n, zoadam::abs_term{}));
    p.add(zoadam::block_sum<L>(out, n, zoadam::square_term{}));
  }
}

void scalars(probe& p) {
  p.add(zoadam::pairwise_sum(x, length));
  p.add(zoadam::group_scale_l1(zoadam::pairwise_sum(x, length), 12345));
  f64 const beta(0.999), one(1.0);
  f64 power = one, sum(0.0);
  for (int k = 1; k < 3000; ++k) {
    power = power * beta;
    sum = sum + (one - power) * beta / (one + power) - sqrt(power);
    p.add((one - power).to_float());
  }
  p.add(sum.to_double());
  p.add(zoadam::group_scale_l2(3.7, 11));
}

void halves(probe& p) {
  static zoadam::bfloat16 b[length];
  static zoadam::float16 h[length];
  zoadam::narrow(x, b, length);
  zoadam::narrow(x, h, length);
  for (auto v : b) p.add(std::uint64_t{v.bits});
  for (auto v : h) p.add(std::uint64_t{v.bits});
  zoadam::widen(b, out, length);
  for (float f : out) p.add(f);
  zoadam::widen(h, out, length);
  for (float f : out) p.add(f);
}

template <class L>
void all_of(probe& p) {
  element_operations<L>(p);
  masks<L>(p);
  special_values<L>(p);
  sums<L>(p);
}

template <class L>
std::uint64_t run() {
  zoadam::floating_point_mode const mode;
  probe p;
  for (float* a : {x, y, z}) {
    for (int i = 0; i < length; ++i) a[i] = p.ordinary();
  }
  all_of<L>(p);
  scalars(p);
  halves(p);
  // any magnitude
  for (float* a : {x, y, z}) {
    for (int i = 0; i < length; ++i) a[i] = p.any();
  }
  masks<L>(p);
  special_values<L>(p);
  halves(p);
  // up to 2^32, so that no operation has to define the bits of a NaN
  for (float* a : {x, y, z}) {
    for (int i = 0; i < length; ++i) {
      std::uint32_t const bits = std::bit_cast<std::uint32_t>(p.any());
      a[i] = std::bit_cast<float>((bits & 0x40000000u) != 0 ? bits & 0xcfffffffu : bits);
    }
  }
  all_of<L>(p);
  halves(p);
  return p.hash;
}

}  // namespace

int main() {
  std::uint64_t const hash = run<zoadam::lane_t<zoadam::isa::native>>();
  bool same = true;
  // the narrower lanes of this target, compiled with its wider instructions
  same = same && run<zoadam::f32>() == hash;
#if defined(ZOADAM_HAS_SSE2)
  same = same && run<zoadam::f32x4>() == hash;
#endif
#if defined(ZOADAM_HAS_AVX2)
  same = same && run<zoadam::f32x8>() == hash;
#endif
  std::printf("%016llx\n", static_cast<unsigned long long>(hash));
  if (!same) std::fprintf(stderr, "lanes of one build differ (%s)\n", zoadam::isa::native::name);
  return same ? 0 : 1;
}
