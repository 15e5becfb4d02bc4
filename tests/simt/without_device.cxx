// SPDX-License-Identifier: Apache-2.0
// Linked into a program for a device: here it finds none, for the reason that ZOADAM_REASON brings about.
#include <cuda_runtime.h>

namespace {
[[maybe_unused]] bool const gone = (ZOADAM_REASON, true);
}
