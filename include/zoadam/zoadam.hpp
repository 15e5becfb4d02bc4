// SPDX-License-Identifier: Apache-2.0
// zoadam: compressed collectives and linearized Adam. Needs a C++20 compiler and nothing else. Headers of their own:
// aliases.hpp (all other optimizers), sharded.hpp, loss_scaler.hpp, schedule.hpp, transport/mpi.hpp, state/mean.hpp,
// state/published.hpp.
#pragma once

#include "zoadam/quantizer/cast.hpp"
#include "zoadam/transport/thread.hpp"
#include "zoadam/version.hpp"
#include "zoadam/zero_one_adam.hpp"
