// SPDX-License-Identifier: Apache-2.0
// Linked into a program: no violation, no leak and no use of the default stream, or the program fails when it ends.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {

struct clean_end {
  clean_end() {
    simt::the_world();  // outlives this object
#if ZOADAM_SUITE_NCCL
    simt::set_device_count(8);  // one per rank
#endif
  }
  ~clean_end() {
    std::vector<std::string> found = simt::leaks();
    for (std::string const& each : simt::violations()) found.push_back(each);
    if (simt::default_stream_uses() > 0) found.push_back("the default stream was used");
    for (std::string const& each : found) std::fprintf(stderr, "simt: %s\n", each.c_str());
    if (!found.empty()) std::_Exit(1);
  }
} const at_end;

}  // namespace
