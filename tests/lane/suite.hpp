// SPDX-License-Identifier: Apache-2.0
// One suite for every lane type: each function against a plain reference, bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace lane_suite {

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline bool is_nan_bits(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
inline bool is_finite_bits(std::uint32_t bits) { return (bits & 0x7fffffffu) < 0x7f800000u; }

/// Zeros, denormals, borders of the normal range, Inf, NaN of both signs.
inline std::vector<float> special_values() {
  std::vector<float> values;
  for (std::uint32_t bits :
       {0u,          1u,          2u,          0x00000100u, 0x007fffffu, 0x00800000u, 0x00800001u,
        0x01000000u, 0x0f7fffffu, 0x0f800000u, 0x0f800001u, 0x33800000u, 0x3effffffu, 0x3f7fffffu,
        0x3f800000u, 0x3f800001u, 0x40490fdbu, 0x4b800001u, 0x5b800000u, 0x5f000000u, 0x7f000000u,
        0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
    values.push_back(float_of(bits));
    values.push_back(float_of(bits | 0x80000000u));
  }
  return values;
}

struct triple {
  std::vector<float> a, b, c;
};

/// All pairs of special values, random bit patterns, and random values of one magnitude; a multiple of 16.
inline triple inputs(bool finite_only) {
  triple in;
  auto const push = [&](float a, float b, float c) {
    if (finite_only && !(is_finite_bits(bits_of(a)) && is_finite_bits(bits_of(b)) && is_finite_bits(bits_of(c))))
      return;
    in.a.push_back(a);
    in.b.push_back(b);
    in.c.push_back(c);
  };
  auto const special = special_values();
  std::mt19937 random(7);
  auto const word = [&] { return static_cast<std::uint32_t>(random()); };
  for (float a : special) {
    for (float b : special) push(a, b, special[word() % special.size()]);
  }
  for (int i = 0; i < 20000; ++i) push(float_of(word()), float_of(word()), float_of(word()));
  std::uniform_real_distribution<float> near(-2.0f, 2.0f);
  for (int i = 0; i < 20000; ++i) push(near(random), near(random), near(random));
  while (in.a.size() % 16 != 0) push(1.5f, -0.3f, 7.0f);
  return in;
}

/// Rounding a float64 result once more gives the float32 result for these operations: 53 >= 2 * 24 + 2.
inline float rounded(double x) {
  double const volatile kept = x;
  return static_cast<float>(kept);
}

inline float flipped(float x) { return float_of(bits_of(x) ^ 0x80000000u); }
inline float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
inline bool ordered_less(float a, float b) {
  double const volatile x = a, y = b;
  return x < y;
}

struct tally {
  char const* what;
  long seen = 0, wrong = 0;
  std::uint32_t a = 0, b = 0, got = 0, expected = 0;

  void compare(float in_a, float in_b, std::uint32_t result, std::uint32_t reference, bool is_value) {
    ++seen;
    bool const same = result == reference || (is_value && is_nan_bits(result) && is_nan_bits(reference));
    if (same) return;
    if (wrong++ == 0) a = bits_of(in_a), b = bits_of(in_b), got = result, expected = reference;
  }
  ~tally() {
    CAPTURE(what);
    CAPTURE(a);
    CAPTURE(b);
    CAPTURE(got);
    CAPTURE(expected);
    CHECK(wrong == 0);
    CHECK(seen > 1000);
  }
};

/// f: lanes -> lane, reference: floats -> float; equal bits, or both NaN.
template <class L, class F, class R>
void values(char const* what, triple const& in, F f, R reference) {
  tally t{what};
  float out[16];
  for (std::size_t i = 0; i < in.a.size(); i += L::width) {
    f(L::load(&in.a[i]), L::load(&in.b[i]), L::load(&in.c[i])).store(out);
    for (std::size_t k = 0; k < L::width; ++k) {
      float const a = in.a[i + k], b = in.b[i + k], c = in.c[i + k];
      t.compare(a, b, bits_of(out[k]), bits_of(reference(a, b, c)), true);
    }
  }
}

/// As values, exact in the bits of NaN too.
template <class L, class F, class R>
void patterns(char const* what, triple const& in, F f, R reference) {
  tally t{what};
  float out[16];
  for (std::size_t i = 0; i < in.a.size(); i += L::width) {
    f(L::load(&in.a[i]), L::load(&in.b[i]), L::load(&in.c[i])).store(out);
    for (std::size_t k = 0; k < L::width; ++k) {
      float const a = in.a[i + k], b = in.b[i + k], c = in.c[i + k];
      t.compare(a, b, bits_of(out[k]), bits_of(reference(a, b, c)), false);
    }
  }
}

/// f: lanes -> mask, reference: floats -> bool.
template <class L, class F, class R>
void tests(char const* what, triple const& in, F f, R reference) {
  tally t{what};
  for (std::size_t i = 0; i < in.a.size(); i += L::width) {
    std::uint32_t const bits = f(L::load(&in.a[i]), L::load(&in.b[i]), L::load(&in.c[i])).bits();
    for (std::size_t k = 0; k < L::width; ++k) {
      float const a = in.a[i + k], b = in.b[i + k], c = in.c[i + k];
      t.compare(a, b, (bits >> k) & 1u, reference(a, b, c) ? 1u : 0u, false);
    }
    if ((bits >> L::width) != 0) ++t.wrong;
  }
}

template <class L>
void arithmetic() {
  triple const in = inputs(true);
  values<L>(
      "add", in, [](L a, L b, L) { return a + b; }, [](float a, float b, float) { return rounded(double(a) + b); });
  values<L>(
      "subtract", in, [](L a, L b, L) { return a - b; },
      [](float a, float b, float) { return rounded(double(a) - b); });
  values<L>(
      "multiply", in, [](L a, L b, L) { return a * b; },
      [](float a, float b, float) { return rounded(double(a) * b); });
  values<L>(
      "divide", in, [](L a, L b, L) { return a / b; },
      [](float a, float b, float) { return rounded(double(a) / b); });
  values<L>(
      "root", in, [](L a, L, L) { return sqrt(a); },
      [](float a, float, float) { return rounded(std::sqrt(double(a))); });
  // two roundings where a fused or reassociated form has other bits
  values<L>(
      "a * b + c", in, [](L a, L b, L c) { return a * b + c; },
      [](float a, float b, float c) { return rounded(double(rounded(double(a) * b)) + c); });
  values<L>(
      "c - a * b", in, [](L a, L b, L c) { return c - a * b; },
      [](float a, float b, float c) { return rounded(c - double(rounded(double(a) * b))); });
  values<L>(
      "(a + b) - a", in, [](L a, L b, L) { return (a + b) - a; },
      [](float a, float b, float) { return rounded(double(rounded(double(a) + b)) - a); });
  patterns<L>(
      "zero + a", in, [](L a, L, L) { return L(0.0f) + a; },
      [](float a, float, float) { return bits_of(a) == 0x80000000u ? 0.0f : a; });
  patterns<L>(
      "minimum", in, [](L a, L b, L) { return min(a, b); },
      [](float a, float b, float) { return ordered_less(a, b) ? a : b; });
  patterns<L>(
      "maximum", in, [](L a, L b, L) { return max(a, b); },
      [](float a, float b, float) { return ordered_less(b, a) ? a : b; });
}

template <class L>
void bit_functions() {
  triple const in = inputs(false);
  patterns<L>(
      "minus", in, [](L a, L, L) { return -a; }, [](float a, float, float) { return flipped(a); });
  patterns<L>(
      "abs", in, [](L a, L, L) { return abs(a); }, [](float a, float, float) { return magnitude(a); });
  patterns<L>(
      "select", in, [](L a, L b, L c) { return select(negative(c), a, b); },
      [](float a, float b, float c) { return ordered_less(c, 0.0f) ? a : b; });
  patterns<L>(
      "with_sign", in, [](L a, L b, L) { return with_sign(a, negative(b)); },
      [](float a, float b, float) { return ordered_less(b, 0.0f) ? flipped(a) : a; });
  for (float threshold : {0x1p-96f, 0x1p-126f, 0x1p-149f, 0.0f}) {
    patterns<L>(
        "flush", in, [=](L a, L, L) { return flush(a, threshold); },
        [=](float a, float, float) {
          return bits_of(a) == 0x80000000u || ordered_less(magnitude(a), threshold) ? 0.0f : a;
        });
  }
}

template <class L>
void comparisons() {
  triple const in = inputs(false);
  tests<L>(
      "less", in, [](L a, L b, L) { return less(a, b); }, [](float a, float b, float) { return ordered_less(a, b); });
  tests<L>(
      "greater", in, [](L a, L b, L) { return greater(a, b); },
      [](float a, float b, float) { return ordered_less(b, a); });
  tests<L>(
      "negative", in, [](L a, L, L) { return negative(a); },
      [](float a, float, float) { return ordered_less(a, 0.0f); });
  tests<L>(
      "nonzero", in, [](L a, L, L) { return nonzero(a); },
      [](float a, float, float) { return (bits_of(a) & 0x7fffffffu) != 0; });
  tests<L>(
      "any_bit", in, [](L a, L, L) { return any_bit(a); }, [](float a, float, float) { return bits_of(a) != 0; });
  for (std::uint32_t limit : {0u, 0x007fffffu, 0x5b800000u, 0x7f7fffffu, 0x7f800000u, 0x7fffffffu}) {
    tests<L>(
        "exceeds", in, [=](L a, L, L) { return exceeds(a, limit); },
        [=](float a, float, float) { return (bits_of(a) & 0x7fffffffu) > limit; });
  }
}

template <class L>
void memory() {
  float const guard = float_of(0x7fa5a5a5u);
  CHECK(bits_of(L(-0.75f).first()) == bits_of(-0.75f));
  for (int offset = 0; offset < 16; ++offset) {
    for (int n = 0; n <= L::width; ++n) {
      // exactly n elements on the heap: an access beyond them is a fault that the address sanitizer sees
      std::vector<float> in(static_cast<std::size_t>(offset + n));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) + 0.5f;
      L const a = L::load(in.data() + offset, n);
      float out[48];
      for (float& x : out) x = guard;
      a.store(out + offset);
      long wrong = 0;
      for (int i = 0; i < 48; ++i) {
        int const k = i - offset;
        float const expected = k < 0 || k >= L::width ? guard : k < n ? static_cast<float>(i) + 0.5f : 0.0f;
        wrong += bits_of(out[i]) != bits_of(expected);
      }
      CHECK(wrong == 0);
      for (float& x : out) x = guard;
      L(3.0f).store(out + offset, n);
      for (int i = 0; i < 48; ++i) {
        int const k = i - offset;
        wrong += bits_of(out[i]) != bits_of(k >= 0 && k < n ? 3.0f : guard);
      }
      CHECK(wrong == 0);
      a.store(out, L::width);
      if (n > 0) CHECK(bits_of(out[0]) == bits_of(a.first()));
    }
  }
}

template <class L>
void masks() {
  using M = typename L::mask;
  std::uint32_t const everything = (1u << L::width) - 1u;
  std::uint32_t const step = L::width > 8 ? 251u : 1u;
  for (std::uint32_t a = 0; a <= everything;
       a += (a + step > everything && a != everything) ? everything - a : step) {
    M const m = M::from_bits(a);
    std::uint32_t const b = (a * 0x9e3779b9u >> 7) & everything;
    bool const right = m.bits() == a && m.all() == (a == everything) && m.any() == (a != 0) &&
                       m.count() == std::popcount(a) && (m & M::from_bits(b)).bits() == (a & b) &&
                       (m | M::from_bits(b)).bits() == (a | b) && (!m).bits() == (~a & everything);
    CAPTURE(a);
    CHECK(right);
  }
  CHECK(M::from_bits(~0u).bits() == everything);
}

template <class L>
void pair_sums() {
  std::vector<float> in(2 * L::width);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(1u << i % 24) + static_cast<float>(i) / 64;
  std::vector<float> out(L::width);
  pair_sum(L::load(in.data()), L::load(in.data() + L::width)).store(out.data());
  for (std::size_t i = 0; i < out.size(); ++i)
    CHECK(bits_of(out[i]) == bits_of(rounded(double(in[2 * i]) + in[2 * i + 1])));
}

template <class L>
void everything() {
  SUBCASE("arithmetic") { arithmetic<L>(); }
  SUBCASE("functions of bits") { bit_functions<L>(); }
  SUBCASE("comparisons") { comparisons<L>(); }
  SUBCASE("memory") { memory<L>(); }
  SUBCASE("masks") { masks<L>(); }
  SUBCASE("pair sums") { pair_sums<L>(); }
}

}  // namespace lane_suite
