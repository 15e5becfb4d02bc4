// SPDX-License-Identifier: Apache-2.0
// A value per element under the tag of one that a tensor has once.
// expect: zoadam: a tensor has this value once: declare it by tensor_field
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using ratio = zoadam::tensor_field<zoadam::at::trust_ratio_t>;
#else
using ratio = zoadam::field<zoadam::at::trust_ratio_t, zoadam::home::replica>;
#endif

int main() { return ratio::where == zoadam::home::replica ? 0 : 1; }
