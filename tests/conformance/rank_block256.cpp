// SPDX-License-Identifier: Apache-2.0
// Every composition with one scale per block of 256.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::block<256>>(test_case const&, any_transport);
