// SPDX-License-Identifier: Apache-2.0
// main() of programs that need a device: without one they say so and exit with the skip code.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>

#include <cstdio>

#include <doctest/doctest.h>

int main(int count, char** arguments) {
  constexpr int skipped = 77;
  int devices = 0;
  cudaError_t const status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("%s: no CUDA device: %s\n", arguments[0],
                status == cudaSuccess ? "the driver knows none" : cudaGetErrorString(status));
    return skipped;
  }
  return doctest::Context(count, arguments).run();
}
