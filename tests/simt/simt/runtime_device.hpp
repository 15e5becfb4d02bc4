// SPDX-License-Identifier: Apache-2.0
// CUDA runtime API: devices and errors.
#pragma once

#include "launch.hpp"

inline char const* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define SIMT_NAME(name, value, text) \
  case name:                         \
    return #name;
    SIMT_CUDA_ERRORS(SIMT_NAME)
#undef SIMT_NAME
  }
  return "unrecognized error code";
}
inline char const* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define SIMT_TEXT(name, value, text) \
  case name:                         \
    return text;
    SIMT_CUDA_ERRORS(SIMT_TEXT)
#undef SIMT_TEXT
  }
  return "unrecognized error code";
}

// Neither counts as a call nor fails. A sticky error stays.
inline cudaError_t cudaPeekAtLastError() {
  simt::world_lock const lock(simt::the_world().mutex);
  simt::host_thread const& t = simt::this_thread(lock);
  if (simt::the_world().devices.empty()) return t.last_error;
  cudaError_t const sticky = simt::device_of(t.device).sticky;
  return sticky != cudaSuccess ? sticky : t.last_error;
}
inline cudaError_t cudaGetLastError() {
  cudaError_t const last = cudaPeekAtLastError();
  simt::this_thread().last_error = cudaSuccess;
  return last;
}

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  SIMT_ENTER;
  *count = static_cast<int>(simt::the_world().devices.size());
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  SIMT_ENTER;
  *device = simt::this_thread().device;
  return cudaSuccess;
}
// A device that failed does not keep its threads from going to another one.
inline cudaError_t cudaSetDevice(int device) {
  simt::world_lock const lock(simt::the_world().mutex);
  if (cudaError_t const refused = simt::enter(lock, __func__, true); refused != cudaSuccess)
    return simt::leave(refused);
  if (device < 0 || static_cast<std::size_t>(device) >= simt::the_world().devices.size())
    return simt::leave(cudaErrorInvalidDevice);
  simt::this_thread().device = device;
  return simt::leave(simt::device_of(device).sticky);
}
inline cudaError_t cudaDeviceSynchronize() {
  SIMT_ENTER;
  if (cudaError_t const refused = simt::refuse_unordered(lock); refused != cudaSuccess) return simt::leave(refused);
  int const device = simt::this_thread().device;
  simt::drain_device(lock, device);
  return simt::leave(simt::observe(lock, device));
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  SIMT_ENTER;
  if (device < 0 || static_cast<std::size_t>(device) >= simt::the_world().devices.size())
    return simt::leave(cudaErrorInvalidDevice);
  switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = int{simt::default_dynamic_shared};
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = simt::the_world().multiprocessors;
      return cudaSuccess;
    case cudaDevAttrIntegrated:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrConcurrentKernels:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      return cudaSuccess;
    case cudaDevAttrUnifiedAddressing:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 228 * 1024;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int{simt::most_dynamic_shared};
      return cudaSuccess;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
  }
  return simt::leave(cudaErrorInvalidValue);
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  SIMT_ENTER;
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  SIMT_ENTER;
  *version = CUDART_VERSION;
  return cudaSuccess;
}
