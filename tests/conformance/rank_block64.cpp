// SPDX-License-Identifier: Apache-2.0
// Every composition with one scale per block of 64.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::block<64>>(test_case const&, any_transport);
