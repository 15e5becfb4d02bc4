// SPDX-License-Identifier: Apache-2.0
// zoadam: compressed collectives and linearized Adam. Needs a C++20 compiler and nothing else; MPI, CUDA and NCCL
// parts have headers of their own.
#pragma once

#include "zoadam/aliases.hpp"
#include "zoadam/quantizer/cast.hpp"
#include "zoadam/transport/thread.hpp"
#include "zoadam/version.hpp"
