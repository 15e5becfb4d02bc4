// SPDX-License-Identifier: Apache-2.0
// Types and constants of the CUDA runtime API, with the values of its version 13.
#pragma once

#include <cstddef>

#define CUDART_VERSION 13000
#define CUDART_CB

#define SIMT_CUDA_ERRORS(X)                                                                             \
  X(cudaSuccess, 0, "no error")                                                                         \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                                       \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                                      \
  X(cudaErrorInitializationError, 3, "initialization error")                                            \
  X(cudaErrorCudartUnloading, 4, "driver shutting down")                                                \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                 \
  X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                                \
  X(cudaErrorInvalidHostPointer, 16, "invalid host pointer")                                            \
  X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                        \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                           \
  X(cudaErrorStubLibrary, 34, "CUDA driver is a stub library")                                          \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")    \
  X(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")               \
  X(cudaErrorMissingConfiguration, 52, "__global__ function call is not configured")                    \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                      \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                       \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                              \
  X(cudaErrorStartupFailure, 127, "startup failure in cuda runtime")                                    \
  X(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")                                 \
  X(cudaErrorDeviceUninitialized, 201, "invalid device context")                                        \
  X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")   \
  X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                              \
  X(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices")      \
  X(cudaErrorNvlinkUncorrectable, 220, "uncorrectable NVLink error detected during the execution")      \
  X(cudaErrorOperatingSystem, 304, "OS call failed or operation not supported on this OS")              \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                     \
  X(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")               \
  X(cudaErrorNotReady, 600, "device not ready")                                                         \
  X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                           \
  X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                      \
  X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                             \
  X(cudaErrorContextIsDestroyed, 709, "context is destroyed")                                           \
  X(cudaErrorAssert, 710, "device-side assert triggered")                                               \
  X(cudaErrorHardwareStackError, 714, "hardware stack error")                                           \
  X(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")                         \
  X(cudaErrorMisalignedAddress, 716, "misaligned address")                                              \
  X(cudaErrorInvalidAddressSpace, 717, "operation not supported on global/shared address space")        \
  X(cudaErrorInvalidPc, 718, "invalid program counter")                                                 \
  X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                          \
  X(cudaErrorNotPermitted, 800, "operation not permitted")                                              \
  X(cudaErrorNotSupported, 801, "operation not supported")                                              \
  X(cudaErrorSystemNotReady, 802, "system not yet initialized")                                         \
  X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")         \
  X(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")  \
  X(cudaErrorStreamCaptureMerge, 902, "operation would result in a merge of separate captures")         \
  X(cudaErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began")       \
  X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                          \
  X(cudaErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")    \
  X(cudaErrorStreamCaptureImplicit, 906, "operation would make the legacy stream depend on a capture")  \
  X(cudaErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capture")      \
  X(cudaErrorStreamCaptureWrongThread, 908, "attempt to terminate a thread-local capture from another") \
  X(cudaErrorTimeout, 909, "wait operation timed out")                                                  \
  X(cudaErrorExternalDevice, 911, "external device error")                                              \
  X(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define SIMT_ERROR(name, value, text) name = value,
  SIMT_CUDA_ERRORS(SIMT_ERROR)
#undef SIMT_ERROR
};
typedef cudaError cudaError_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
  cudaDevAttrMemoryPoolsSupported = 115
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  long reserved[8];
};
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  std::size_t constSizeBytes;
  std::size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
};

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
typedef void(CUDART_CB* cudaHostFn_t)(void* userData);

#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventRecordDefault 0x00
#define cudaEventWaitDefault 0x00
#define cudaInvalidDeviceId ((int)-2)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
