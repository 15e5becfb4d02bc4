// SPDX-License-Identifier: Apache-2.0
// Vector types whose every load and store checks that the address is aligned as a device demands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "block.hpp"

// The undefined-behaviour sanitizer must leave the report to the check here.
#define SIMT_OWN_CHECK __attribute__((no_sanitize("undefined")))

namespace simt {

// A compiler may assume that references are aligned; the assembly hides where the address comes from.
template <std::size_t Align>
inline void check_aligned(void const* address) {
  auto bits = reinterpret_cast<std::uintptr_t>(address);
  asm volatile("" : "+r"(bits));
  if (bits % Align == 0) return;
  if (executor* device = executor::active())
    device->fault(cudaErrorMisalignedAddress, "misaligned access of %zu bytes", Align);
}

template <class T, std::size_t Align>
struct vector2 {
  alignas(Align) T x;
  T y;
  vector2() = default;
  constexpr vector2(T vx, T vy) : x(vx), y(vy) {}
  SIMT_OWN_CHECK vector2(vector2 const& v) : x((check_both(v), v.x)), y(v.y) {}
  SIMT_OWN_CHECK vector2& operator=(vector2 const& v) {
    check_both(v);
    x = v.x;
    y = v.y;
    return *this;
  }

 private:
  SIMT_OWN_CHECK void check_both(vector2 const& v) const {
    check_aligned<Align>(&v);
    check_aligned<Align>(this);
  }
};

template <class T, std::size_t Align>
struct vector4 {
  alignas(Align) T x;
  T y, z, w;
  vector4() = default;
  constexpr vector4(T vx, T vy, T vz, T vw) : x(vx), y(vy), z(vz), w(vw) {}
  SIMT_OWN_CHECK vector4(vector4 const& v) : x((check_both(v), v.x)), y(v.y), z(v.z), w(v.w) {}
  SIMT_OWN_CHECK vector4& operator=(vector4 const& v) {
    check_both(v);
    x = v.x;
    y = v.y;
    z = v.z;
    w = v.w;
    return *this;
  }

 private:
  SIMT_OWN_CHECK void check_both(vector4 const& v) const {
    check_aligned<Align>(&v);
    check_aligned<Align>(this);
  }
};

}  // namespace simt

#define SIMT_VECTOR2(name, T, align)       \
  using name##2 = simt::vector2<T, align>; \
  inline name##2 make_##name##2(T x, T y) { return name##2(x, y); }
#define SIMT_VECTOR4(name, T, align)       \
  using name##4 = simt::vector4<T, align>; \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4(x, y, z, w); }

SIMT_VECTOR2(char, signed char, 2)
SIMT_VECTOR2(uchar, unsigned char, 2)
SIMT_VECTOR2(short, short, 4)
SIMT_VECTOR2(ushort, unsigned short, 4)
SIMT_VECTOR2(int, int, 8)
SIMT_VECTOR2(uint, unsigned, 8)
SIMT_VECTOR2(float, float, 8)
SIMT_VECTOR2(double, double, 16)
SIMT_VECTOR2(longlong, long long, 16)
SIMT_VECTOR2(ulonglong, unsigned long long, 16)
SIMT_VECTOR4(char, signed char, 4)
SIMT_VECTOR4(uchar, unsigned char, 4)
SIMT_VECTOR4(short, short, 8)
SIMT_VECTOR4(ushort, unsigned short, 8)
SIMT_VECTOR4(int, int, 16)
SIMT_VECTOR4(uint, unsigned, 16)
SIMT_VECTOR4(float, float, 16)
