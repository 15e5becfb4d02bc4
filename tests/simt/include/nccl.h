// SPDX-License-Identifier: Apache-2.0
// Found instead of NCCL's header of this name: communicators between the threads of one process.
#pragma once

#include <cuda_runtime.h>

#include "../simt/nccl_api.hpp"
