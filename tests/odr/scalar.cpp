// SPDX-License-Identifier: Apache-2.0
// A translation unit of plain scalar code, in the same program.
#define ZOADAM_SCALAR 1
#include "odr/run.inl"

odr::result odr::run_scalar() { return odr_run<zoadam::zero_one_adam<>>(); }
