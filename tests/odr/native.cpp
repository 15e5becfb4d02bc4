// SPDX-License-Identifier: Apache-2.0
// A translation unit for the instruction set of the target.
#include "odr/run.inl"

odr::result odr::run_native() { return odr_run<zoadam::zero_one_adam<>>(); }
