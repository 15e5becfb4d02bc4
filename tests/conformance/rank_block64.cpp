// SPDX-License-Identifier: Apache-2.0
// Every composition with scales over blocks of 64 groups.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::block<64>>(test_case const&, any_transport);
