// SPDX-License-Identifier: Apache-2.0
// Every composition with scales over whole groups.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::whole>(test_case const&, any_transport);
