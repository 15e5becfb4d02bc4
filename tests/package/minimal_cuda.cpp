// SPDX-License-Identifier: Apache-2.0
// The smallest program of a consumer of zoadam::cuda; it needs no device.
#include <cstdio>

#include "zoadam/transport/cuda_thread.hpp"

int main() {
  zoadam::cuda_thread_group const group(2);
  std::printf("ranks: %d\n", group.size());
}
