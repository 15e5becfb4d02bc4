// SPDX-License-Identifier: Apache-2.0
// Every composition with scales over blocks of 256 groups.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::block<256>>(test_case const&, any_transport);
