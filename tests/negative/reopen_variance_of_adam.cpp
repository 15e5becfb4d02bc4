// SPDX-License-Identifier: Apache-2.0
// Adam has no variance schedule to restart.
// expect: State::reopens_variance.*(is not satisfied|would be invalid)
#include "zoadam/aliases.hpp"

#if defined(ZOADAM_NEGATIVE_CONTROL)
using composition = zoadam::zero_one_adam<>;
#else
using composition = zoadam::adam<>;
#endif

void restart(composition& optimizer) { optimizer.reopen_variance(); }

int main() {}
