// SPDX-License-Identifier: Apache-2.0
// Found instead of the CUDA toolkit's header of this name: the same names, running on the CPU with checks.
#pragma once

#define ZOADAM_SIMT 1

#include "../simt/device.hpp"
#include "../simt/runtime_stream.hpp"
#include "../simt/vector.hpp"
