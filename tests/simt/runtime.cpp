// SPDX-License-Identifier: Apache-2.0
// The fake runtime: streams, events, captures, what it finds wrong, and the failures that it can be told to have.
#include <cuda_runtime.h>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using strings = std::vector<std::string>;
constexpr std::size_t n = 1000;
constexpr std::size_t bytes = n * sizeof(int);

bool has(strings const& all, char const* part) {
  for (std::string const& each : all)
    if (each.find(part) != std::string::npos) return true;
  return false;
}

__global__ void add(int* data, int value, std::size_t count) {
  std::size_t const step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) data[i] += value;
}
__global__ void traps(int*) { __trap(); }
struct pointers {
  int* a;
  int* b;
};
__global__ void take(pointers p) { p.a[0] = 1; }

/// Two streams on device 0, and a buffer of zeros in device and in pinned memory.
struct machine {
  machine() {
    simt::reset();
    CHECK(cudaMalloc(&device, bytes) == cudaSuccess);
    CHECK(cudaMallocHost(&pinned, bytes) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMemsetAsync(device, 0, bytes, a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
  }
  ~machine() { CHECK(close().empty()); }
  /// What the world complains of after everything was given back.
  strings close() {
    if (device == nullptr) return {};
    cudaSetDevice(0);
    cudaFree(device);
    cudaFreeHost(pinned);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    device = nullptr;
    return simt::reset();
  }
  cudaError_t launch_add(int value, cudaStream_t s) { return simt::launch(add, 4, 64, 0, s, device, value, n); }
  bool device_holds(int value) {
    std::vector<int> host(n);
    CHECK(cudaMemcpyAsync(host.data(), device, bytes, cudaMemcpyDeviceToHost, a) == cudaSuccess);
    return host == std::vector<int>(n, value);
  }
  int* device = nullptr;
  int* pinned = nullptr;
  cudaStream_t a = nullptr, b = nullptr;
};

TEST_CASE("devices") {
  simt::reset();
  int value = 0;
  CHECK(cudaGetDeviceCount(&value) == cudaSuccess);
  CHECK(value == 2);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  std::thread([] {
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
  }).join();
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
  CHECK(value == 227 * 1024);
  simt::set_device_count(0);
  CHECK(cudaGetDeviceCount(&value) == cudaErrorNoDevice);
  CHECK(value == 0);
  simt::set_driver_error(cudaErrorInsufficientDriver);
  CHECK(cudaGetDeviceCount(&value) == cudaErrorInsufficientDriver);
  CHECK(std::string(cudaGetErrorName(cudaErrorInsufficientDriver)) == "cudaErrorInsufficientDriver");
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(simt::reset().empty());
}

TEST_CASE("work runs in the order of its stream, and copies stage pageable memory") {
  machine m;
  std::vector<int> host(n, 5);
  CHECK(cudaMemcpyAsync(m.device, host.data(), bytes, cudaMemcpyHostToDevice, m.a) == cudaSuccess);
  host.assign(n, 0);  // was read before the call returned
  for (int i = 0; i < 10; ++i) CHECK(m.launch_add(1, m.a) == cudaSuccess);
  CHECK(cudaMemcpyAsync(m.pinned, m.device, bytes, cudaMemcpyDefault, m.a) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.a) == cudaSuccess);
  CHECK(m.pinned[n - 1] == 15);
  CHECK(m.device_holds(15));
  CHECK(simt::default_stream_uses() == 0);
}

TEST_CASE("events order streams; lazy streams show where one is missing") {
  machine m;
  cudaEvent_t ready{};
  CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventQuery(ready) == cudaSuccess);  // never recorded
  simt::set_stream_order(simt::stream_order::lazy);
  CHECK(m.launch_add(3, m.a) == cudaSuccess);
  SUBCASE("with an event") {
    CHECK(cudaEventRecord(ready, m.a) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(m.b, ready, 0) == cudaSuccess);
    CHECK(cudaMemcpyAsync(m.pinned, m.device, bytes, cudaMemcpyDeviceToHost, m.b) == cudaSuccess);
    CHECK(cudaStreamSynchronize(m.b) == cudaSuccess);
    CHECK(m.pinned[0] == 3);
    CHECK(cudaEventQuery(ready) == cudaSuccess);
  }
  SUBCASE("without") {
    CHECK(cudaMemcpyAsync(m.pinned, m.device, bytes, cudaMemcpyDeviceToHost, m.b) == cudaSuccess);
    CHECK(cudaStreamSynchronize(m.b) == cudaSuccess);
    CHECK(m.pinned[0] == 0);
  }
  CHECK(cudaEventDestroy(ready) == cudaSuccess);
}

TEST_CASE("the default stream is counted, and waits for blocking streams") {
  machine m;
  cudaStream_t blocking{};
  CHECK(cudaStreamCreate(&blocking) == cudaSuccess);
  simt::set_stream_order(simt::stream_order::lazy);
  CHECK(m.launch_add(2, blocking) == cudaSuccess);
  CHECK(cudaMemcpy(m.pinned, m.device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(m.pinned[7] == 2);
  CHECK(m.launch_add(2, nullptr) == cudaSuccess);
  CHECK(m.launch_add(3, blocking) == cudaSuccess);
  CHECK(cudaStreamSynchronize(blocking) == cudaSuccess);
  CHECK(simt::default_stream_uses() == 2);
  CHECK(m.device_holds(7));
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("times, host functions, queries") {
  machine m;
  cudaEvent_t start{}, end{};
  CHECK(cudaEventCreate(&start) == cudaSuccess);
  CHECK(cudaEventCreate(&end) == cudaSuccess);
  struct gate {
    std::atomic<bool> open{false}, passed{false};
  } g;
  CHECK(cudaEventRecord(start, m.a) == cudaSuccess);
  auto const wait = [](void* p) {
    while (!static_cast<gate*>(p)->open) std::this_thread::yield();
    static_cast<gate*>(p)->passed = true;
  };
  CHECK(cudaLaunchHostFunc(m.a, wait, &g) == cudaSuccess);
  CHECK(cudaEventRecord(end, m.a) == cudaSuccess);
  CHECK(cudaStreamQuery(m.a) == cudaErrorNotReady);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  g.open = true;
  CHECK(cudaEventSynchronize(end) == cudaSuccess);
  CHECK(g.passed);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaSuccess);
  CHECK(ms >= 0);
  CHECK(cudaStreamQuery(m.a) == cudaSuccess);
  CHECK(cudaEventDestroy(start) == cudaSuccess);
  CHECK(cudaEventDestroy(end) == cudaSuccess);
}

TEST_CASE("launch configurations") {
  machine m;
  auto const launch = [&](dim3 grid, dim3 block, std::size_t shared) {
    return simt::launch(add, grid, block, shared, m.a, m.device, 0, n);
  };
  CHECK(launch(1, 1024, 48 * 1024) == cudaSuccess);
  CHECK(launch(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(0, 1, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(dim3(1, 65536), 1, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch(1, 1, 48 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024) == cudaSuccess);
  CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024) == cudaErrorInvalidValue);
  CHECK(launch(1, 1, 227 * 1024) == cudaSuccess);
  cudaFuncAttributes attributes{};
  CHECK(cudaFuncGetAttributes(&attributes, add) == cudaSuccess);
  CHECK(attributes.maxDynamicSharedSizeBytes == 227 * 1024);
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0) == cudaSuccess);
  CHECK(blocks == 8);
}

TEST_CASE("a device fault stays with its device") {
  machine m;
  CHECK(simt::launch(traps, 1, 1, 0, m.a, m.device) == cudaSuccess);
  CHECK(m.launch_add(1, m.b) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK(m.launch_add(1, m.b) == cudaErrorLaunchFailure);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  strings const found = m.close();
  CHECK(found.size() == 1);
  CHECK(has(found, "__trap"));
  CHECK(simt::reset().empty());
}

TEST_CASE("pointers know what they are") {
  machine m;
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, m.device + 5) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  CHECK(attributes.hostPointer == nullptr);
  CHECK(cudaPointerGetAttributes(&attributes, m.pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(cudaPointerGetAttributes(&attributes, &m) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

TEST_CASE("memory that is used wrongly is found") {
  machine m;
  int local[4] = {};
  int* other = nullptr;
  CHECK(cudaMalloc(&other, bytes) == cudaSuccess);
  auto const only = [](char const* part) {
    strings const found = simt::violations();
    simt::clear_violations();
    return found.size() == 1 && has(found, part);
  };
  CHECK(cudaMemcpyAsync(m.device + 1, other, bytes, cudaMemcpyDeviceToDevice, m.a) == cudaErrorInvalidValue);
  CHECK(only("out of range"));
  CHECK(cudaMemcpyAsync(local, other, 4, cudaMemcpyHostToDevice, m.a) == cudaErrorInvalidValue);
  CHECK(only("contradicts"));
  CHECK(cudaMemsetAsync(local, 0, 4, m.a) == cudaErrorInvalidValue);
  CHECK(only("pageable"));
  CHECK(simt::launch(add, 1, 1, 0, m.a, local, 0, std::size_t{0}) == cudaSuccess);
  CHECK(only("not memory of a device"));
  CHECK(cudaFreeAsync(other, m.a) == cudaSuccess);
  CHECK(cudaMemsetAsync(other, 0, 4, m.a) == cudaErrorInvalidValue);
  CHECK(only("was freed"));
  CHECK(cudaStreamSynchronize(m.a) == cudaSuccess);
  CHECK(simt::launch(take, 1, 1, 0, m.a, pointers{m.device, other + 3}) == cudaSuccess);
  CHECK(only("was freed"));
  CHECK(cudaFree(other) == cudaErrorInvalidValue);
  CHECK(only("was freed"));
  CHECK(cudaFree(local) == cudaErrorInvalidValue);
  CHECK(only("unknown"));
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaMalloc(&other, 4) == cudaSuccess);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(simt::launch(add, 1, 1, 0, m.a, other, 0, std::size_t{0}) == cudaSuccess);
  CHECK(only("of another device"));
  CHECK(cudaFree(other) == cudaSuccess);
}

TEST_CASE("streams and events that are used wrongly are found") {
  machine m;
  cudaStream_t elsewhere{};
  cudaEvent_t event{};
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaStreamCreate(&elsewhere) == cudaSuccess);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaEventRecord(event, elsewhere) == cudaErrorInvalidResourceHandle);
  CHECK(m.launch_add(1, elsewhere) == cudaErrorInvalidResourceHandle);
  CHECK(simt::leaks().size() == 6);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(elsewhere) == cudaSuccess);
  CHECK(cudaStreamSynchronize(elsewhere) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(elsewhere) == cudaErrorInvalidResourceHandle);
  auto const calls_runtime = [](void* p) { CHECK(cudaMalloc(static_cast<int**>(p), 4) == cudaErrorNotPermitted); };
  int* never = nullptr;
  CHECK(cudaLaunchHostFunc(m.a, calls_runtime, &never) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.a) == cudaSuccess);
  CHECK(simt::violations().size() == 6);
  CHECK(m.close().size() == 6);
}

TEST_CASE("a destroyed stream finishes its work; what is not given back leaks") {
  machine m;
  simt::set_stream_order(simt::stream_order::lazy);
  CHECK(m.launch_add(4, m.b) == cudaSuccess);
  CHECK(cudaStreamDestroy(m.b) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(m.device_holds(4));
  CHECK(simt::leaks().size() == 3);
  m.device = nullptr;
  CHECK(has(simt::reset(), "leak: device memory"));
}

TEST_CASE("memory has a limit") {
  machine m;
  simt::set_device_memory(3 * bytes);
  int* x = nullptr;
  CHECK(cudaMalloc(&x, 2 * bytes + 1) == cudaErrorMemoryAllocation);
  CHECK(x == nullptr);
  CHECK(cudaMallocAsync(&x, 2 * bytes, m.a) == cudaSuccess);
  CHECK(cudaFreeAsync(x, m.a) == cudaSuccess);
  CHECK(cudaMallocAsync(&x, 2 * bytes, m.a) == cudaSuccess);
  CHECK(cudaFreeAsync(x, m.a) == cudaSuccess);
}

TEST_CASE("capture and replay") {
  machine m;
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  cudaEvent_t fork{}, join{};
  CHECK(cudaEventCreate(&fork) == cudaSuccess);
  CHECK(cudaEventCreate(&join) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(m.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
  cudaStreamCaptureStatus status{};
  CHECK(cudaStreamIsCapturing(m.a, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(m.launch_add(1, m.a) == cudaSuccess);
  CHECK(cudaEventRecord(fork, m.a) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(m.b, fork, 0) == cudaSuccess);
  CHECK(m.launch_add(10, m.b) == cudaSuccess);

  SUBCASE("joined work runs at every launch") {
    CHECK(cudaEventRecord(join, m.b) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(m.a, join, 0) == cudaSuccess);
    CHECK(cudaMemcpyAsync(m.pinned, m.device, bytes, cudaMemcpyDeviceToHost, m.a) == cudaSuccess);
    CHECK(cudaStreamEndCapture(m.a, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(m.device_holds(0));
    for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, m.a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(m.a) == cudaSuccess);
    CHECK(m.pinned[0] == 33);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  }
  SUBCASE("unjoined work") { CHECK(cudaStreamEndCapture(m.a, &graph) == cudaErrorStreamCaptureUnjoined); }
  SUBCASE("a synchronization, an allocation or a pageable copy ends it") {
    int x = 0;
    int* p = nullptr;
    std::function<cudaError_t()> const calls[] = {
        [&] { return cudaStreamSynchronize(m.a); },
        [&] { return cudaMallocAsync(&p, 4, m.a); },
        [&] { return cudaMalloc(&p, 4); },
        [&] { return cudaDeviceSynchronize(); },
        [&] { return cudaStreamQuery(m.b); },
        [&] { return cudaFree(m.device); },
        [&] { return cudaMemcpyAsync(&x, m.device, 4, cudaMemcpyDeviceToHost, m.a); }};
    for (int i = 0; auto const& call : calls) {
      if (i++ > 0) CHECK(cudaStreamBeginCapture(m.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
      if (i == 5) {
        CHECK(cudaEventRecord(fork, m.a) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(m.b, fork, 0) == cudaSuccess);
      }
      CHECK(call() == cudaErrorStreamCaptureUnsupported);
      CHECK(m.launch_add(1, m.a) == cudaErrorStreamCaptureInvalidated);
      CHECK(cudaStreamEndCapture(m.a, &graph) == cudaErrorStreamCaptureInvalidated);
      CHECK(graph == nullptr);
    }
    CHECK(m.device_holds(0));
  }
  cudaGetLastError();
  CHECK(cudaEventDestroy(fork) == cudaSuccess);
  CHECK(cudaEventDestroy(join) == cudaSuccess);
}

TEST_CASE("every call can be made to fail, once, without acting") {
  // A program that uses each function, and stops at the first error.
  auto const program = [] {
    int x = 0, host[4] = {};
    int* p = nullptr;
    int* q = nullptr;
    int* r = nullptr;
    unsigned flags = 0;
    float ms = 0;
    cudaStream_t s{};
    cudaEvent_t e{}, f{};
    cudaGraph_t g{};
    cudaGraphExec_t exec{};
    cudaPointerAttributes attributes{};
    cudaStreamCaptureStatus status{};
    std::function<cudaError_t()> const steps[] = {
        [&] { return cudaGetDeviceCount(&x); },
        [&] { return cudaSetDevice(1); },
        [&] { return cudaGetDevice(&x); },
        [&] { return cudaDeviceGetAttribute(&x, cudaDevAttrWarpSize, 0); },
        [&] { return cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1); },
        [&] { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&x, add, 32, 0); },
        [&] { return cudaStreamCreate(&s); },
        [&] { return cudaMalloc(&p, 16); },
        [&] { return cudaMallocHost(&q, 16); },
        [&] { return cudaMallocAsync(&r, 16, s); },
        [&] { return cudaPointerGetAttributes(&attributes, p); },
        [&] { return cudaEventCreate(&e); },
        [&] { return cudaEventCreate(&f); },
        [&] { return cudaEventRecord(e, s); },
        [&] { return cudaMemsetAsync(p, 0, 16, s); },
        [&] { return cudaMemset(p, 0, 16); },
        [&] { return simt::launch(add, 1, 4, 0, s, p, 1, std::size_t{4}); },
        [&] { return cudaMemcpyAsync(host, p, 16, cudaMemcpyDeviceToHost, s); },
        [&] { return cudaMemcpy(host, p, 16, cudaMemcpyDeviceToHost); },
        [&] { return cudaEventRecord(f, s); },
        [&] { return cudaStreamWaitEvent(s, f, 0); },
        [&] {
          return cudaLaunchHostFunc(
              s, [](void*) {}, nullptr);
        },
        [&] { return cudaEventSynchronize(f); },
        [&] { return cudaEventQuery(f); },
        [&] { return cudaEventElapsedTime(&ms, e, f); },
        [&] { return cudaStreamSynchronize(s); },
        [&] { return cudaStreamQuery(s); },
        [&] { return cudaDeviceSynchronize(); },
        [&] { return cudaStreamGetFlags(s, &flags); },
        [&] { return cudaStreamGetDevice(s, &x); },
        [&] { return cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal); },
        [&] { return cudaStreamIsCapturing(s, &status); },
        [&] { return cudaStreamEndCapture(s, &g); },
        [&] { return cudaGraphInstantiate(&exec, g); },
        [&] { return cudaGraphLaunch(exec, s); },
        [&] { return cudaGraphExecDestroy(exec); },
        [&] { return cudaGraphDestroy(g); },
        [&] { return cudaEventDestroy(e); },
        [&] { return cudaEventDestroy(f); },
        [&] { return cudaFreeAsync(r, s); },
        [&] { return cudaFree(p); },
        [&] { return cudaFreeHost(q); },
        [&] { return cudaStreamDestroy(s); }};
    for (auto const& step : steps)
      if (cudaError_t const code = step(); code != cudaSuccess) return code;
    return host[3] == 1 ? cudaSuccess : cudaErrorUnknown;
  };
  simt::reset();
  CHECK(program() == cudaSuccess);
  auto const names = simt::calls_by_name();
  std::size_t const calls = simt::calls();
  CHECK(names.size() > 35);
  CHECK(simt::reset().empty());
  for (int i = 1; i <= static_cast<int>(calls); ++i) {
    simt::fail_call("", i, cudaErrorECCUncorrectable);
    CHECK(program() == cudaErrorECCUncorrectable);
    CHECK(cudaGetLastError() == cudaErrorECCUncorrectable);
    CHECK(simt::calls() == static_cast<std::size_t>(i));
    CHECK(simt::pending_failures() == 0);
    CHECK(simt::violations().empty());
    simt::reset();
  }
  for (auto const& each : names) {
    simt::fail_call(each.first, static_cast<int>(each.second), cudaErrorUnknown);
    CHECK_MESSAGE(program() == cudaErrorUnknown, each.first);
    CHECK(simt::calls(each.first) == each.second);
    simt::reset();
  }
}

}  // namespace
