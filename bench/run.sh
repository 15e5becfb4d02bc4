#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the benches in Release mode with the host's full instruction set and prints their table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: bench/run.sh [--json FILE] [--isa NAME | --portable] [-- OPTION...]
  --json FILE   write the rows to a file, too
  --isa NAME    native (default), scalar, sse2, avx2 or avx512
  --portable    the compiler's default instruction set for any machine of this kind (sse2 on x86-64)
  -- OPTION...  further options of the bench, such as --rounds 5 or --only "rank side"
TEXT
}

isa=native
options=()
while (($# > 0)); do
  case $1 in
    --portable) isa=sse2 ;;
    --isa | --json)
      if (($# < 2)); then
        usage >&2
        exit 2
      fi
      if [[ $1 == --isa ]]; then isa=$2; else options+=(--json "$(realpath -m "$2")"); fi
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    --)
      shift
      options+=("$@")
      break
      ;;
    *)
      echo "unknown option: $1" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift
done

# shellcheck source=../cmake/requirements.sh
source cmake/requirements.sh
zoadam_require base

build=build/bench-$isa
log=$(mktemp)
if ! { cmake --preset bench -B "$build" -DZOADAM_TEST_ISA="$isa" -DZOADAM_BUILD_EXAMPLES=OFF -DZOADAM_MPI=OFF &&
  cmake --build "$build" --target bench_backend_cpu; } >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"
exec "$build/bench/bench_backend_cpu" "${options[@]}"
