// SPDX-License-Identifier: Apache-2.0
// Questions about tensors, against plain loops and the backend's own rule and hash. With nvcc the values are on a
// device.
#include "zoadam/inspect.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#if defined(__CUDACC__)
#include <thrust/system/cuda/execution_policy.h>

#include "simt/device_memory.hpp"
#else
#include <thrust/system/cpp/execution_policy.h>
#endif

#include "zoadam/backend/cpu.hpp"

namespace {

using namespace zoadam;

#if defined(__CUDACC__)

suite::device_stream const& stream() {
  static suite::device_stream const one;
  return one;
}
auto policy() { return thrust::cuda::par.on(static_cast<cudaStream_t>(stream())); }

/// A copy of values where policy() reads them, `shift` elements behind the beginning of an allocation.
template <class T>
class placed {
 public:
  explicit placed(std::vector<T> const& values, std::size_t shift = 0) : memory_(values.size(), shift) {
    memory_.put(values.data(), stream());
  }
  std::span<T> span() const { return memory_.span(); }

 private:
  suite::device_array<T> memory_;
};

#else

auto policy() { return thrust::cpp::par; }

template <class T>
class placed {
 public:
  explicit placed(std::vector<T> const& values, std::size_t shift = 0) : memory_(shift), shift_(shift) {
    memory_.insert(memory_.end(), values.begin(), values.end());
  }
  std::span<T> span() { return std::span<T>(memory_).subspan(shift_); }

 private:
  std::vector<T> memory_;
  std::size_t shift_;
};

#endif

static_assert(inspect::execution_policy<decltype(policy())>);
static_assert(!inspect::execution_policy<int> && !inspect::execution_policy<std::vector<float>>);

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float wide(float x) { return x; }
template <class Half>
float wide(Half x) {
  return to_float(x);
}
template <class T>
T narrowed(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_half<T>(x);
  }
}
/// A value of any bits, every NaN among them.
template <class T>
T any_bits(std::mt19937& random) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  } else {
    return T{static_cast<std::uint16_t>(random())};
  }
}
/// n values around 1, of which one in `rare` has any bits; none if rare is 0.
template <class T>
std::vector<T> some_values(std::mt19937& random, std::size_t n, unsigned rare) {
  std::vector<T> values(n);
  for (T& x : values) {
    x = narrowed<T>(std::uniform_real_distribution<float>(-2, 2)(random));
    if (rare > 0 && random() % rare == 0) x = any_bits<T>(random);
  }
  return values;
}
std::vector<std::size_t> some_sizes(std::mt19937& random) {
  std::vector<std::size_t> sizes{0, 1, 2, 31, 1024, 2049};
  for (int i = 0; i < 12; ++i) sizes.push_back(random() % 3000);
  return sizes;
}

bool plainly_bad(float x) { return !(std::abs(x) <= 0x1p56f); }

TEST_CASE_TEMPLATE("bad elements and the largest magnitude are those of plain loops", T, float, bfloat16, float16) {
  std::mt19937 random(1);
  for (std::size_t const n : some_sizes(random)) {
    for (unsigned const rare : {0u, 2u, 500u}) {
      CAPTURE(n);
      CAPTURE(rare);
      std::vector<T> const values = some_values<T>(random, n, rare);
      placed<T> there(values, n % 3);
      for (float const scale : {1.0f, 0x1p-60f, 0x1p55f}) {
        auto first = static_cast<zoadam::index>(n), count = zoadam::index{0};
        for (std::size_t i = n; i-- > 0;) {
          if (!plainly_bad(scale * wide(values[i]))) continue;
          first = static_cast<zoadam::index>(i);
          ++count;
        }
        CHECK(inspect::first_bad(policy(), there.span(), static_cast<double>(scale)) == first);
        CHECK(inspect::count_bad(policy(), there.span(), static_cast<double>(scale)) == count);
      }
      float largest = 0;
      bool any_nan = false;
      for (T const x : values) {
        any_nan = any_nan || std::isnan(wide(x));
        largest = std::max(largest, std::abs(wide(x)));
      }
      float const found = inspect::largest_magnitude(policy(), there.span());
      if (any_nan) {
        CHECK(std::isnan(found));
      } else {
        CHECK(bits_of(found) == bits_of(largest));
      }
    }
  }
}

TEST_CASE("the border of bad is that of the step") {
  float const above = std::nextafter(0x1p56f, inf);
  struct border {
    float value;
    double scale;
    bool bad;
  };
  for (border const& b : {border{0x1p56f, 1, false},
                          {above, 1, true},
                          {-0x1p56f, 1, false},
                          {-above, 1, true},
                          {inf, 1, true},
                          {-inf, 1, true},
                          {nan, 1, true},
                          {-nan, 1, true},
                          {0.0f, 1, false},
                          {-0.0f, 1, false},
                          {0x1p-149f, 1, false},
                          {above, 0.5, false},
                          {0x1p56f, -1, false},
                          {0x1p55f, 2, false},
                          {0x1p55f, 2.0000003, true},
                          {inf, 0, true},
                          {1.0f, 1e300, true}}) {
    CAPTURE(b.value);
    CAPTURE(b.scale);
    placed<float> there({b.value});
    CHECK(inspect::count_bad(policy(), there.span(), b.scale) == b.bad);
    float scaled = 0;
    CHECK(detail::run_scaled_gradient<isa::scalar>(&b.value, static_cast<float>(b.scale), 1, &scaled) == b.bad);
  }
  CHECK(inspect::first_bad(policy(), gradient_view{}) == 0);
  CHECK(inspect::count_bad(policy(), gradient_view{}) == 0);
}

TEST_CASE("the largest magnitude: zeros, infinities, NaN") {
  auto const largest = [](std::vector<float> const& values) {
    return inspect::largest_magnitude(policy(), placed<float>(values).span());
  };
  CHECK(bits_of(largest({})) == 0);
  CHECK(bits_of(largest({-0.0f})) == 0);
  CHECK(largest({1, -3, 2}) == 3);
  CHECK(largest({1, -inf, 2}) == inf);
  CHECK(std::isnan(largest({1, -nan, inf})));
}

TEST_CASE("one bad element among millions") {
  std::vector<float> values(3'000'001, 1.0f);
  for (std::size_t const at : {std::size_t{0}, std::size_t{1'999'999}, values.size() - 1}) {
    values[at] = -inf;
    placed<float> there(values);
    CHECK(inspect::first_bad(policy(), there.span()) == static_cast<zoadam::index>(at));
    CHECK(inspect::count_bad(policy(), there.span()) == 1);
    values[at] = 1;
    CHECK(inspect::first_difference(policy(), there.span(), placed<float>(values).span()) ==
          static_cast<zoadam::index>(at));
  }
}

TEST_CASE("the hash is the backend's, and parts add up") {
  std::mt19937 random(2);
  for (std::size_t const n : some_sizes(random)) {
    for (zoadam::index const at : {zoadam::index{0}, zoadam::index{1}, zoadam::index{4099}, zoadam::index{1} << 40}) {
      CAPTURE(n);
      CAPTURE(at);
      std::vector<float> const values = some_values<float>(random, n, 3);
      placed<float> there(values, n % 4);
      std::uint64_t const whole = inspect::hash(policy(), there.span(), at);
      CHECK(whole == cpu_backend::hash(values.data(), static_cast<zoadam::index>(n), at));
      std::size_t const cut = n / 3;
      CHECK(whole == inspect::hash(policy(), there.span().first(cut), at) +
                         inspect::hash(policy(), there.span().subspan(cut), at + static_cast<zoadam::index>(cut)));
    }
  }
  CHECK(inspect::hash(policy(), {}) == 0);
}

TEST_CASE_TEMPLATE("the first difference is that of a plain loop over bits", T, float, bfloat16, float16) {
  std::mt19937 random(3);
  for (std::size_t const n : some_sizes(random)) {
    for (unsigned const differences : {0u, 1u, 5u}) {
      CAPTURE(n);
      CAPTURE(differences);
      std::vector<T> const a = some_values<T>(random, n, 1);
      std::vector<T> b = a;
      std::size_t first = n;
      for (unsigned k = 0; k < differences && n > 0; ++k) {
        std::size_t const i = random() % n;
        auto* const byte = reinterpret_cast<unsigned char*>(&b[i]) + random() % sizeof(T);
        *byte = static_cast<unsigned char>(*byte ^ (1u << random() % 8));
      }
      for (std::size_t i = n; i-- > 0;) first = std::memcmp(&a[i], &b[i], sizeof(T)) != 0 ? i : first;
      placed<T> there_a(a, 1), there_b(b, 2);
      CHECK(inspect::first_difference(policy(), there_a.span(), there_b.span()) == static_cast<zoadam::index>(first));
    }
  }
}

TEST_CASE("the first difference: zeros, NaN, and what cannot be compared") {
  auto const first = [](std::vector<float> const& a, std::vector<float> const& b) {
    return inspect::first_difference(policy(), placed<float>(a).span(), placed<float>(b).span());
  };
  CHECK(first({1, 0.0f, 2}, {1, -0.0f, 2}) == 1);
  CHECK(first({nan, 1}, {nan, 1}) == 2);
  CHECK(first({1, nan}, {1, -nan}) == 1);
  CHECK(first({}, {}) == 0);
  std::vector<float> const one(1), two(2);
  std::vector<bfloat16> const half(1);
  CHECK_THROWS_AS((void)inspect::first_difference(policy(), one, two), argument_error);
  CHECK_THROWS_AS((void)inspect::first_difference(policy(), one, half), argument_error);
}

TEST_CASE("bad tensors: in the gradient, the parameter, the working copy") {
  placed<float> good({1, 2, 3}), bad({1, 2, inf}), large({1, 0x1p60f, 3});
  placed<bfloat16> half({to_bfloat16(1)}), bad_half({to_bfloat16(1), to_bfloat16(nan)});
  placed<float16> bad_narrow({float16{0x7c00}});
  std::vector<tensor> const tensors{
      {"good", {}, good.span(), good.span()},
      {"gradient", {}, good.span(), bad.span()},
      {"no gradient", {}, good.span(), {}},
      {"parameter", {}, bad.span(), good.span()},
      {"empty", {}, {}, {}},
      {"half gradient", {}, good.span(), bad_half.span()},
      {"large gradient", {}, good.span(), large.span()},
      {"large parameter", {}, large.span(), good.span()},
      {"working", {}, good.span(), good.span(), 0, bad_half.span()},
      {"working alone", {}, {}, half.span(), 0, bad_narrow.span()},
      {"good halves", {}, {}, half.span(), 0, half.span()},
  };
  using list = std::vector<zoadam::index>;
  CHECK(inspect::bad_tensors(policy(), tensors) == list{1, 3, 5, 6, 7, 8, 9});
  CHECK(inspect::bad_tensors(policy(), tensors, 0x1p-10) == list{1, 3, 5, 7, 8, 9});
  CHECK(inspect::bad_tensors(policy(), std::span(tensors).first(1)).empty());
  CHECK(inspect::bad_tensors(policy(), {}).empty());
}

#if defined(__CUDACC__)

/// Counts what Thrust asks for.
struct counting_allocator {
  using value_type = char;
  int* calls;
  char* allocate(std::ptrdiff_t n) {
    ++*calls;
    void* p = nullptr;
    ZOADAM_CUDA(cudaMalloc(&p, static_cast<std::size_t>(n)));
    return static_cast<char*>(p);
  }
  void deallocate(char* p, std::size_t) { (void)cudaFree(p); }
};

TEST_CASE("temporary memory comes from the allocator of the policy") {
  std::vector<float> const values(100'000, 0.5f);
  placed<float> there(values);
  int calls = 0;
  counting_allocator allocator{&calls};
  auto const with_allocator = thrust::cuda::par(allocator).on(static_cast<cudaStream_t>(stream()));
  static_assert(inspect::execution_policy<decltype(with_allocator)>);
  CHECK(inspect::hash(with_allocator, there.span(), 7) ==
        cpu_backend::hash(values.data(), static_cast<zoadam::index>(values.size()), 7));
  CHECK(inspect::first_bad(with_allocator, there.span()) == 100'000);
  CHECK(calls > 0);
}

#endif

}  // namespace
