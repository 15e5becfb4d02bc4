// SPDX-License-Identifier: Apache-2.0
// Found instead of the profiler's header of this name.
#pragma once

#include "../../simt/nvtx.hpp"

#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
