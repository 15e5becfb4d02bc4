// SPDX-License-Identifier: Apache-2.0
// CUDA runtime API: memory and copies.
#pragma once

#include "runtime_device.hpp"

// A release happens on a failed device too, and returns its error.
#define SIMT_ENTER_RELEASE                                                                   \
  simt::world_lock lock(simt::the_world().mutex);                                            \
  if (cudaError_t const refused = simt::enter(lock, __func__, true); refused != cudaSuccess) \
  return simt::leave(refused)

namespace simt {

inline cudaError_t allocate_now(world_lock const& lock, void** p, std::size_t bytes, memory kind, int device) {
  if (p == nullptr) return leave(cudaErrorInvalidValue);
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (cudaError_t const refused = refuse_unordered(lock); refused != cudaSuccess) return leave(refused);
  *p = allocate(lock, bytes, kind, device);
  return leave(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

inline cudaError_t free_now(world_lock& lock, char const* api, void* p, memory kind) {
  int const current = this_thread().device;
  if (p == nullptr) return leave(observe(lock, current));
  if (cudaError_t const refused = refuse_unordered(lock); refused != cudaSuccess) return leave(refused);
  allocation* const a = freeable(lock, api, p, kind);
  if (a == nullptr) return leave(cudaErrorInvalidValue);
  int const device = a->device;
  discharge(lock, *a);
  drain_device(lock, device);
  release(lock, address_of(p));
  return leave(observe(lock, device));
}

struct copy {
  void* to;
  void const* from;
  std::size_t bytes;
  memory to_kind, from_kind;
};
/// Checks both ranges and the kind.
inline cudaError_t check(world_lock const& lock, char const* api, copy& c, cudaMemcpyKind kind) {
  c.to_kind = classify(lock, api, c.to, c.bytes);
  c.from_kind = classify(lock, api, c.from, c.bytes);
  if (c.to_kind == memory::invalid || c.from_kind == memory::invalid) return cudaErrorInvalidValue;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  bool const to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault &&
      (to_device != (c.to_kind == memory::device) || from_device != (c.from_kind == memory::device))) {
    violation(std::string(api) + ": the copy kind contradicts its pointers");
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace simt

inline cudaError_t cudaMalloc(void** devPtr, std::size_t size) {
  SIMT_ENTER;
  return simt::allocate_now(lock, devPtr, size, simt::memory::device, simt::this_thread().device);
}
inline cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned) {
  SIMT_ENTER;
  return simt::allocate_now(lock, pHost, size, simt::memory::pinned, simt::this_thread().device);
}
inline cudaError_t cudaMallocHost(void** ptr, std::size_t size) {
  SIMT_ENTER;
  return simt::allocate_now(lock, ptr, size, simt::memory::pinned, simt::this_thread().device);
}
inline cudaError_t cudaFree(void* devPtr) {
  SIMT_ENTER_RELEASE;
  return simt::free_now(lock, __func__, devPtr, simt::memory::device);
}
inline cudaError_t cudaFreeHost(void* ptr) {
  SIMT_ENTER_RELEASE;
  return simt::free_now(lock, __func__, ptr, simt::memory::pinned);
}

inline cudaError_t cudaMallocAsync(void** devPtr, std::size_t size, cudaStream_t hStream) {
  SIMT_ENTER;
  CUstream_st* const s = simt::resolve(lock, __func__, hStream);
  if (s == nullptr) return simt::leave(cudaErrorInvalidResourceHandle);
  if (s->captured_by) return simt::leave(simt::refuse_in_capture(s->captured_by, cudaErrorStreamCaptureUnsupported));
  *devPtr = size == 0 ? nullptr : simt::allocate(lock, size, simt::memory::device, s->device);
  return simt::leave(size != 0 && *devPtr == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
inline cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  SIMT_ENTER_RELEASE;
  CUstream_st* const s = simt::resolve(lock, __func__, hStream);
  if (s == nullptr) return simt::leave(cudaErrorInvalidResourceHandle);
  if (s->captured_by) return simt::leave(simt::refuse_in_capture(s->captured_by, cudaErrorStreamCaptureUnsupported));
  if (devPtr == nullptr) return simt::leave(cudaErrorInvalidValue);
  simt::allocation* const a = simt::freeable(lock, __func__, devPtr, simt::memory::device);
  if (a == nullptr) return simt::leave(cudaErrorInvalidValue);
  simt::discharge(lock, *a);
  auto const give_back = [base = simt::address_of(devPtr)] {
    simt::world_lock const inner(simt::the_world().mutex);
    simt::release(inner, base);
  };
  cudaError_t const result = simt::enqueue(lock, *s, {give_back, true});
  return simt::leave(result != cudaSuccess ? result : simt::device_of(s->device).sticky);
}

template <class T>
cudaError_t cudaMalloc(T** devPtr, std::size_t size) {
  return cudaMalloc(reinterpret_cast<void**>(devPtr), size);
}
template <class T>
cudaError_t cudaMallocHost(T** ptr, std::size_t size, unsigned = 0) {
  return cudaMallocHost(reinterpret_cast<void**>(ptr), size);
}
template <class T>
cudaError_t cudaHostAlloc(T** ptr, std::size_t size, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(ptr), size, flags);
}
template <class T>
cudaError_t cudaMallocAsync(T** ptr, std::size_t size, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(ptr), size, stream);
}

inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMT_ENTER;
  *total = simt::the_world().memory_per_device;
  *free = *total - simt::device_of(simt::this_thread().device).used;
  return cudaSuccess;
}

inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* ptr) {
  SIMT_ENTER;
  *attributes = {};
  void* const p = const_cast<void*>(ptr);
  simt::allocation const* const a = simt::find_allocation(lock, ptr);
  if (a == nullptr || a->freed) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = p;
    return cudaSuccess;
  }
  bool const pinned = a->kind == simt::memory::pinned;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = a->device;
  attributes->devicePointer = p;
  attributes->hostPointer = pinned ? p : nullptr;
  return cudaSuccess;
}

// Pageable memory is read before the call returns, and written before it returns.
inline cudaError_t cudaMemcpyAsync(void* dst, void const* src, std::size_t count, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr) {
  SIMT_ENTER;
  CUstream_st* const s = simt::resolve(lock, __func__, stream);
  if (s == nullptr) return simt::leave(cudaErrorInvalidResourceHandle);
  if (count == 0) return cudaSuccess;
  simt::copy c{dst, src, count, {}, {}};
  if (cudaError_t const wrong = simt::check(lock, __func__, c, kind); wrong != cudaSuccess) return simt::leave(wrong);
  bool const from_host = c.from_kind != simt::memory::device, to_host = c.to_kind != simt::memory::device;
  bool const pageable = c.from_kind == simt::memory::pageable || c.to_kind == simt::memory::pageable;
  if (s->captured_by && pageable)
    return simt::leave(simt::refuse_in_capture(s->captured_by, cudaErrorStreamCaptureUnsupported));
  simt::operation o{[c] { std::memmove(c.to, c.from, c.bytes); }};
  if (c.from_kind == simt::memory::pageable && !to_host) {
    auto const* const bytes = static_cast<std::byte const*>(src);
    auto const staged = std::make_shared<std::vector<std::byte>>(bytes, bytes + count);
    o.run = [c, staged] { std::memcpy(c.to, staged->data(), c.bytes); };
  }
  cudaError_t const result = simt::enqueue(lock, *s, std::move(o));
  if (result == cudaSuccess && !s->captured_by && (c.to_kind == simt::memory::pageable || (from_host && to_host))) {
    simt::drain(lock, *s);
    return simt::leave(simt::observe(lock, s->device));
  }
  return simt::leave(result);
}

inline cudaError_t cudaMemcpy(void* dst, void const* src, std::size_t count, cudaMemcpyKind kind) {
  SIMT_ENTER;
  CUstream_st* const s = simt::resolve(lock, __func__, nullptr);
  if (count == 0) return cudaSuccess;
  simt::copy c{dst, src, count, {}, {}};
  if (cudaError_t const wrong = simt::check(lock, __func__, c, kind); wrong != cudaSuccess) return simt::leave(wrong);
  cudaError_t const result = simt::enqueue(lock, *s, {[c] { std::memmove(c.to, c.from, c.bytes); }});
  if (result != cudaSuccess) return simt::leave(result);
  simt::drain(lock, *s);
  return simt::leave(simt::observe(lock, s->device));
}

namespace simt {
inline cudaError_t set_bytes(world_lock const& lock, char const* api, void* p, int value, std::size_t count,
                             CUstream_st& s) {
  if (count == 0) return cudaSuccess;
  memory const kind = classify(lock, api, p, count);
  if (kind == memory::pageable) violation(std::string(api) + ": " + text(p, count) + " is pageable host memory");
  if (kind == memory::pageable || kind == memory::invalid) return leave(cudaErrorInvalidValue);
  return leave(enqueue(lock, s, {[=] { std::memset(p, value, count); }}));
}
}  // namespace simt

inline cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t stream = nullptr) {
  SIMT_ENTER;
  CUstream_st* const s = simt::resolve(lock, __func__, stream);
  if (s == nullptr) return simt::leave(cudaErrorInvalidResourceHandle);
  return simt::set_bytes(lock, __func__, devPtr, value, count, *s);
}
inline cudaError_t cudaMemset(void* devPtr, int value, std::size_t count) {
  SIMT_ENTER;
  return simt::set_bytes(lock, __func__, devPtr, value, count, *simt::resolve(lock, __func__, nullptr));
}
