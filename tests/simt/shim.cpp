// SPDX-License-Identifier: Apache-2.0
// The device language of the shim: what a kernel may do, and the faults of one that does what it may not.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <doctest/doctest.h>

#include <chrono>
#include <numeric>
#include <string>
#include <vector>

namespace {

/// A stream and device memory; the test case must leave a clean world unless it takes the complaints itself.
struct machine {
  explicit machine(std::size_t n) : values(n) {
    simt::reset();
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMallocAsync(&device, n * sizeof(unsigned), stream) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(device, 0, n * sizeof(unsigned), stream) == cudaSuccess);
  }
  ~machine() {
    cudaFreeAsync(device, stream);
    cudaStreamDestroy(stream);
    std::vector<std::string> const complaints = simt::reset();
    for (std::string const& each : complaints) CHECK_MESSAGE(faults_expected, each);
  }
  std::vector<unsigned> const& result() {
    CHECK(cudaMemcpyAsync(values.data(), device, values.size() * sizeof(unsigned), cudaMemcpyDeviceToHost, stream) ==
          cudaSuccess);
    return values;
  }
  /// Runs a kernel that must fail; the text of the fault.
  template <class Kernel>
  std::string fault_of(Kernel kernel, unsigned threads, cudaError_t expected, std::size_t shared = 0) {
    faults_expected = true;
    CHECK(simt::launch(kernel, 2, threads, shared, stream, device) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == expected);
    CHECK(cudaGetLastError() == expected);
    CHECK(cudaPeekAtLastError() == expected);  // it stays
    CHECK(cudaMemsetAsync(device, 0, 4, stream) == expected);
    std::vector<std::string> const all = simt::violations();
    REQUIRE(all.size() == 1);
    CHECK_THROWS(simt::expect_clean());
    return all[0];
  }

  cudaStream_t stream = nullptr;
  unsigned* device = nullptr;
  std::vector<unsigned> values;
  bool faults_expected = false;
};

bool has(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

__global__ void indices(unsigned* out) {
  unsigned const thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned const block = blockIdx.x + gridDim.x * blockIdx.y;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}

TEST_CASE("every thread of every block runs once, with its own indices") {
  machine m(6 * 24);
  for (simt::order o : {simt::order::in_order, simt::order::reversed, simt::order::shuffled}) {
    simt::set_thread_order(o, 3);
    CHECK(simt::launch(indices, dim3(3, 2), dim3(4, 3, 2), 0, m.stream, m.device) == cudaSuccess);
    std::vector<unsigned> const& got = m.result();
    for (unsigned i = 0; i < got.size(); ++i) CHECK(got[i] == 1000 * (i / 24) + i % 24);
  }
}

TEST_CASE("a launch by its configuration") {
  machine m(6 * 24);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(3, 2);
  config.blockDim = dim3(4, 3, 2);
  config.stream = m.stream;
  CHECK(cudaLaunchKernelEx(&config, indices, m.device) == cudaSuccess);
  std::vector<unsigned> const& got = m.result();
  for (unsigned i = 0; i < got.size(); ++i) CHECK(got[i] == 1000 * (i / 24) + i % 24);
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, indices, m.device) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
}

__global__ void reverse_in_shared(unsigned* data) {
  __shared__ unsigned fixed[64];
  auto* const dynamic = reinterpret_cast<unsigned*>(simt::dynamic_shared());
  unsigned const i = threadIdx.x, n = blockDim.x;
  bool const garbage = dynamic[i] == 0xffffffffu;
  fixed[i] = i;
  __syncthreads();
  dynamic[i] = fixed[n - 1 - i];
  __syncthreads();
  int const odd = __syncthreads_count(static_cast<int>(i % 2));
  data[blockIdx.x * n + i] = garbage ? dynamic[n - 1 - i] * 100 + static_cast<unsigned>(odd) : 0u;
}

TEST_CASE("barriers, shared and dynamic shared memory") {
  machine m(3 * 64);
  CHECK_FALSE(simt::is_racy([&] {
    CHECK(simt::launch(reverse_in_shared, 3, 64, 64 * 4, m.stream, m.device) == cudaSuccess);
    return m.result();
  }));
  for (unsigned i = 0; i < 3 * 64; ++i) CHECK(m.values[i] == i % 64 * 100 + 32);
}

__global__ void warp_operations(unsigned* out) {
  unsigned const lane = threadIdx.x % 32, all = 0xffffffffu;
  unsigned sum = lane;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(all, sum, step);
  float down = static_cast<float>(lane);
  down = __shfl_down_sync(all, down, 3);
  double const third = __shfl_sync(all, static_cast<double>(lane) * 1.5, 3);
  long long const wide = __shfl_sync(all, static_cast<long long>(lane) << 40, 1, 8);
  unsigned const even = __ballot_sync(all, lane % 2 == 0);
  bool ok = sum == 496 && even == 0x55555555u && __any_sync(all, lane == 31) && !__all_sync(all, lane != 31);
  ok = ok && down == static_cast<float>(lane < 29 ? lane + 3 : lane) && third == 4.5;
  ok = ok && wide == static_cast<long long>(lane / 8 * 8 + 1) << 40;
  if (lane < 16) {  // half a warp by itself
    ok = ok && __shfl_xor_sync(0xffffu, lane, 1) == (lane ^ 1u);
    __syncwarp(0xffffu);
  }
  out[threadIdx.x] = ok ? 1 : 0;
}

TEST_CASE("warp operations") {
  machine m(96);
  CHECK_FALSE(simt::is_racy([&] {
    CHECK(simt::launch(warp_operations, 1, 96, 0, m.stream, m.device) == cudaSuccess);
    return m.result();
  }));
  CHECK(std::accumulate(m.values.begin(), m.values.end(), 0u) == 96);
}

__global__ void atomics(unsigned* out) {
  atomicAdd(&out[0], 1u);
  atomicMax(&out[1], threadIdx.x);
  atomicOr(&out[2], 1u << threadIdx.x % 32);
  atomicAdd(reinterpret_cast<float*>(&out[3]), 0.5f);
  unsigned const winner = atomicCAS(&out[4], 0u, threadIdx.x + 1);
  if (winner == 0) atomicAdd(&out[5], 1u);
  if (threadIdx.x == 0 && __popc(0xf0u) == 4 && __ffs(8) == 4 && __float_as_uint(1.0f) == 0x3f800000u) out[6] = 1;
}

TEST_CASE("atomics and intrinsics") {
  machine m(7);
  CHECK(simt::launch(atomics, 2, 64, 0, m.stream, m.device) == cudaSuccess);
  std::vector<unsigned> const& got = m.result();
  CHECK(got[0] == 128);
  CHECK(got[1] == 63);
  CHECK(got[2] == 0xffffffffu);
  CHECK(__uint_as_float(got[3]) == 64.0f);
  CHECK(got[4] == 1);
  CHECK(got[5] == 1);
  CHECK(got[6] == 1);
}

__global__ void copy_vectors(unsigned* data) {
  uint4 const v = *reinterpret_cast<uint4 const*>(data);
  reinterpret_cast<uint4*>(data)[1] = make_uint4(v.w, v.z, v.y, v.x + 1);
}
__attribute__((no_sanitize("undefined"))) __global__ void load_misaligned(unsigned* data) {
  uint4 const v = *reinterpret_cast<uint4 const*>(data + threadIdx.x);
  data[0] = v.x;
}
__attribute__((no_sanitize("undefined"))) __global__ void store_misaligned(unsigned* data) {
  float2 v = make_float2(1, 2);
  *reinterpret_cast<float2*>(data + 1) = v;
}

TEST_CASE("vector types check alignment") {
  static_assert(alignof(float4) == 16 && sizeof(float4) == 16 && alignof(ushort4) == 8 && alignof(float2) == 8);
  {
    machine m(8);
    CHECK(simt::launch(copy_vectors, 1, 1, 0, m.stream, m.device) == cudaSuccess);
    CHECK(m.result()[7] == 1);
  }
  machine(64).fault_of(store_misaligned, 1, cudaErrorMisalignedAddress);
  std::string const what = machine(64).fault_of(load_misaligned, 32, cudaErrorMisalignedAddress);
  CHECK(has(what, "block (0,0,0) thread (1,0,0)"));
  CHECK(has(what, "kernel "));
}

__global__ void some_skip_barrier(unsigned*) {
  if (threadIdx.x != 5) __syncthreads();
}
__global__ void different_barriers(unsigned*) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads_or(1);
}
__global__ void barrier_against_warp(unsigned*) {
  if (threadIdx.x == 3)
    __syncthreads();
  else
    __syncwarp();
}
__global__ void not_in_own_mask(unsigned* out) { out[0] = __ballot_sync(0xfu, 1); }
__global__ void reads_absent_lane(unsigned* out) {
  if (threadIdx.x < 4) out[threadIdx.x] = __shfl_sync(0xfu, threadIdx.x, 7);
}
__global__ void lane_never_comes(unsigned* out) {
  if (threadIdx.x < 3) out[threadIdx.x] = __shfl_sync(0xfu, threadIdx.x, 0);
}
__global__ void traps(unsigned*) {
  if (blockIdx.x == 1 && threadIdx.x == 7) __trap();
}

TEST_CASE("divergence is a fault, not a hang") {
  CHECK(has(machine(4).fault_of(some_skip_barrier, 64, cudaErrorLaunchFailure), "waits at __syncthreads"));
  CHECK(has(machine(4).fault_of(different_barriers, 64, cudaErrorLaunchFailure), "divergence"));
  CHECK(has(machine(4).fault_of(barrier_against_warp, 32, cudaErrorLaunchFailure), "divergence"));
  CHECK(has(machine(4).fault_of(not_in_own_mask, 32, cudaErrorLaunchFailure), "not in the mask"));
  CHECK(has(machine(4).fault_of(reads_absent_lane, 32, cudaErrorLaunchFailure), "lane 7"));
  CHECK(has(machine(4).fault_of(lane_never_comes, 32, cudaErrorLaunchFailure), "do not come"));
  CHECK(has(machine(4).fault_of(traps, 32, cudaErrorLaunchFailure), "block (1,0,0) thread (7,0,0): __trap"));
}

__global__ void overruns_shared(unsigned*) { simt::dynamic_shared()[100] = std::byte{0}; }

TEST_CASE("writing past dynamic shared memory is a fault") {
  CHECK(has(machine(4).fault_of(overruns_shared, 1, cudaErrorIllegalAddress, 100), "100 bytes"));
}

__global__ void racy_sum(unsigned* out) {  // the barrier between writing and reading is missing
  __shared__ unsigned part[64];
  part[threadIdx.x] = threadIdx.x + blockIdx.x;
  out[blockIdx.x * blockDim.x + threadIdx.x] = part[(threadIdx.x + 1) % blockDim.x];
}
__global__ void last_block_wins(unsigned* out) { out[0] = blockIdx.x; }

TEST_CASE("other orders of threads and blocks show races") {
  machine m(128);
  auto const run = [&](auto kernel) {
    return [&m, kernel] {
      CHECK(simt::launch(kernel, 2, 64, 0, m.stream, m.device) == cudaSuccess);
      return m.result();
    };
  };
  CHECK(simt::is_racy(run(racy_sum)));
  CHECK(simt::is_racy(run(last_block_wins)));
}

TEST_CASE("NVTX ranges must balance") {
  simt::reset();
  CHECK(nvtxRangePushA("a") == 0);
  CHECK(nvtxRangePush("b") == 1);
  CHECK(nvtxRangePop() == 1);
  CHECK(nvtxRangePop() == 0);
  CHECK(simt::nvtx_ranges() == 2);
  CHECK(simt::reset().empty());
  nvtxRangePop();
  nvtxRangePushA("c");
  CHECK(simt::reset().size() == 2);
}

__global__ void four_barriers(unsigned* data) {
  __shared__ unsigned part[128];
  unsigned const i = threadIdx.x;
  unsigned& mine = data[blockIdx.x * blockDim.x + i];
  for (int k = 0; k < 2; ++k) {
    part[i] = mine;
    __syncthreads();
    mine += part[i ^ 1u];
    __syncthreads();
  }
}

TEST_CASE("speed") {
  machine m(2048);
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) REQUIRE(simt::launch(four_barriers, 16, 128, 0, m.stream, m.device) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(m.stream) == cudaSuccess);
  double const us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 20 / 2048;
  MESSAGE("128 threads, 4 barriers, 2048 elements: ", us, " us per element");
  CHECK(us < 1000);
}

}  // namespace
