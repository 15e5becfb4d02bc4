#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bytes per parameter and rank of optimizers at 100 M parameters: what a counting allocator sees. Needs about 12 GB.
# usage: bench/memory.sh [--parameters N] [--json FILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=../cmake/requirements.sh
source cmake/requirements.sh
zoadam_require base
cmake --preset bench -DZOADAM_BUILD_EXAMPLES=OFF -DZOADAM_MPI=OFF >/dev/null
cmake --build --preset bench --target bench_memory >/dev/null
exec build/bench/bench/bench_memory "$@"
