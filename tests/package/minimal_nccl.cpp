// SPDX-License-Identifier: Apache-2.0
// The smallest program of a consumer of zoadam::nccl; it needs no device.
#include <cstdio>

#include "zoadam/transport/nccl.hpp"

int main() {
  int version = 0;
  zoadam::detail::nccl_check(ncclGetVersion(&version), "ncclGetVersion", nullptr);
  try {
    zoadam::nccl_transport ranks(nullptr, nullptr);
  } catch (zoadam::argument_error const&) {
    std::printf("NCCL %d\n", version);
  }
}
