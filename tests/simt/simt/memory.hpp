// SPDX-License-Identifier: Apache-2.0
// Device and pinned memory: who owns which range, what was freed.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>

#include "world.hpp"

namespace simt {

enum class memory { pageable, pinned, device, invalid };

struct allocation {
  std::size_t bytes;
  memory kind;
  int device;
  bool freed = false;  // cudaFreeAsync was called, its stream has not come to it
};

/// The last ranges that were freed keep their names, so that a later use is found: they are held here, poisoned for
/// the address sanitizer, filled with 0xff without it. What is held no longer may be anybody's memory.
struct memory_map {
  static constexpr std::size_t most_held_bytes = std::size_t{32} << 20;
  std::map<std::uintptr_t, allocation> live;
  std::map<std::uintptr_t, std::size_t> freed;  // bytes
  std::deque<std::pair<std::uintptr_t, std::size_t>> held;
  std::size_t held_bytes = 0;
};
inline memory_map& the_memory() {
  static memory_map& own = *new memory_map;
  return own;
}

inline std::uintptr_t address_of(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }

template <class Map>
auto range_with(Map& ranges, std::uintptr_t address) {
  auto const above = ranges.upper_bound(address);
  return above == ranges.begin() ? ranges.end() : std::prev(above);
}

/// The live allocation that holds an address; null if none.
inline allocation* find_allocation(world_lock const&, void const* p, std::uintptr_t* base = nullptr) {
  auto& live = the_memory().live;
  auto const at = range_with(live, address_of(p));
  if (at == live.end() || address_of(p) - at->first >= at->second.bytes) return nullptr;
  if (base != nullptr) *base = at->first;
  return &at->second;
}

inline bool was_freed(world_lock const& lock, void const* p) {
  if (allocation const* a = find_allocation(lock, p)) return a->freed;
  auto const& freed = the_memory().freed;
  auto const at = range_with(freed, address_of(p));
  return at != freed.end() && address_of(p) - at->first < at->second;
}

inline std::string text(void const* p, std::size_t bytes) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%p (%zu bytes)", p, bytes);
  return buffer;
}

/// What kind of memory a range of an API call is; a violation and `invalid` where it was freed or is out of range.
inline memory classify(world_lock const& lock, std::string_view api, void const* p, std::size_t bytes) {
  std::string const where = std::string(api) + ": " + text(p, bytes);
  if (was_freed(lock, p)) {
    violation(where + " was freed");
    return memory::invalid;
  }
  std::uintptr_t base = 0;
  allocation const* const a = find_allocation(lock, p, &base);
  if (a == nullptr) return memory::pageable;
  if (bytes > a->bytes - (address_of(p) - base)) {
    violation(where + " is out of range of " + text(reinterpret_cast<void*>(base), a->bytes));
    return memory::invalid;
  }
  return a->kind;
}

/// A new range, full of 0xff bytes; null where the device's limit does not allow it.
inline void* allocate(world_lock const&, std::size_t bytes, memory kind, int device) {
  memory_map& m = the_memory();
  device_state& d = device_of(device);
  if (kind == memory::device && bytes > the_world().memory_per_device - d.used) return nullptr;
  if (bytes > std::size_t{1} << 40) return nullptr;
  void* const p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (p == nullptr) return nullptr;
#if defined(SIMT_ASAN)
  __asan_poison_memory_region(static_cast<char*>(p) + bytes, (bytes + 255) / 256 * 256 - bytes);
#endif
  std::memset(p, 0xff, bytes);
  auto& freed = m.freed;
  for (auto at = range_with(freed, address_of(p) + bytes - 1);
       at != freed.end() && at->first + at->second > address_of(p); at = range_with(freed, address_of(p) + bytes - 1))
    freed.erase(at);
  m.live[address_of(p)] = {bytes, kind, device};
  if (kind == memory::device) d.used += bytes;
  return p;
}

inline void release_range([[maybe_unused]] std::uintptr_t base, [[maybe_unused]] std::size_t bytes) {
  void* const p = reinterpret_cast<void*>(base);
#if defined(SIMT_ASAN)
  __asan_unpoison_memory_region(p, (bytes + 255) / 256 * 256);
#endif
  std::free(p);
}

/// Takes a range out of the books of its device; `release` takes it away.
inline void discharge(world_lock const&, allocation& a) {
  a.freed = true;
  if (a.kind == memory::device) device_of(a.device).used -= a.bytes;
}
inline void release(world_lock const&, std::uintptr_t base) {
  memory_map& m = the_memory();
  std::size_t const bytes = m.live.at(base).bytes;
  m.live.erase(base);
  m.freed[base] = bytes;
#if defined(SIMT_ASAN)
  __asan_poison_memory_region(reinterpret_cast<void*>(base), (bytes + 255) / 256 * 256);
#else
  std::memset(reinterpret_cast<void*>(base), 0xff, bytes);
#endif
  m.held.emplace_back(base, bytes);
  m.held_bytes += bytes;
  while (m.held_bytes > memory_map::most_held_bytes) {
    m.freed.erase(m.held.front().first);
    release_range(m.held.front().first, m.held.front().second);
    m.held_bytes -= m.held.front().second;
    m.held.pop_front();
  }
}

/// The range that a free names; null, with a violation, where it is none.
inline allocation* freeable(world_lock const&, std::string_view api, void* p, memory kind) {
  auto const at = the_memory().live.find(address_of(p));
  if (at != the_memory().live.end() && at->second.kind == kind && !at->second.freed) return &at->second;
  bool const twice = the_memory().freed.contains(address_of(p)) || at != the_memory().live.end();
  violation(std::string(api) + ": " + text(p, 0) + (twice ? " was freed, or has another kind" : " is unknown"));
  return nullptr;
}

/// A test's or a kernel wrapper's own check that a range may be used by work on this device.
inline void expect_device_range(void const* p, std::size_t bytes) {
  world_lock const lock(the_world().mutex);
  if (bytes != 0 && classify(lock, "expect_device_range", p, bytes) == memory::pageable)
    violation("expect_device_range: " + text(p, bytes) + " is pageable host memory");
}

/// Every word of a kernel's arguments that names a freed range is a violation; a pointer must name a live range.
inline void check_arguments(world_lock const& lock, std::string const& kernel, void const* bytes, std::size_t size) {
  for (std::size_t i = 0; i + sizeof(void*) <= size; i += alignof(void*)) {
    void const* word = nullptr;
    std::memcpy(&word, static_cast<char const*>(bytes) + i, sizeof word);
    if (was_freed(lock, word)) violation(kernel + ": argument " + text(word, 0) + " was freed");
  }
}
inline void check_pointer(world_lock const& lock, std::string const& kernel, int device, void const* p) {
  allocation const* const a = find_allocation(lock, p);
  if (p == nullptr || was_freed(lock, p)) return;
  auto& live = the_memory().live;
  auto const at = range_with(live, address_of(p));
  bool const one_past = at != live.end() && address_of(p) == at->first + at->second.bytes;
  if (a == nullptr && !one_past) violation(kernel + ": argument " + text(p, 0) + " is not memory of a device");
  if (a != nullptr && a->kind == memory::device && a->device != device)
    violation(kernel + ": argument " + text(p, 0) + " is memory of another device");
}

}  // namespace simt
