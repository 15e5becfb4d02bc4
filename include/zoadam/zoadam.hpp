// SPDX-License-Identifier: Apache-2.0
// zoadam: compressed collectives and linearized Adam. Needs a C++20 compiler and nothing else. Headers of their own:
// transport/mpi.hpp, state/mean.hpp, state/published.hpp, schedule.hpp.
#pragma once

#include "zoadam/aliases.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/transport/thread.hpp"
#include "zoadam/version.hpp"
