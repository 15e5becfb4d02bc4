// SPDX-License-Identifier: Apache-2.0
// Every composition with one scale per tensor, those of the published implementation among them.
#include "rank_program.hpp"

template conformance::record conformance::run_rank<zoadam::per_tensor>(test_case const&, any_transport);
