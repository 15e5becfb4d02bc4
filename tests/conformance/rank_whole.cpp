// SPDX-License-Identifier: Apache-2.0
// Every composition with one scale for the whole buffer.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::whole>(test_case const&, any_transport);
