#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, configures, builds and runs the tests; the last line is `N passed, M failed`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: tests/run.sh [--quick] [--preset NAME] [-- CMAKE_OPTION...]
  --quick         leave out the tests that build many variants or consumers
  --preset NAME   cpu, mpi (default), asan or tsan (under clang): see CMakePresets.json
  -- OPTION...    further options for the configuration, such as -DZOADAM_TEST_ISA=avx2
TEXT
}

preset=mpi
quick=0
options=()
while (($# > 0)); do
  case $1 in
    --quick) quick=1 ;;
    --preset)
      if (($# < 2)); then
        usage >&2
        exit 2
      fi
      preset=$2
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

# Whatever ends this script early counts as one failure.
finished=0
trap '((finished)) || echo "0 passed, 1 failed"' EXIT

# shellcheck source=../cmake/requirements.sh
source cmake/requirements.sh
groups=(base tests json thrust)
case $preset in
  cpu) groups+=(gpt) ;;
  mpi) groups+=(gpt mpi) ;;
  asan) groups+=(gpt mpi clang) ;;
  tsan) groups+=(clang) ;;
  *)
    echo "no such test preset: $preset" >&2
    exit 2
    ;;
esac
zoadam_require "${groups[@]}"

# The full suite sets slow tests as its preset does; --quick leaves them out.
if ((quick)); then
  options+=(-DZOADAM_TEST_SLOW=OFF)
elif [[ $preset == cpu || $preset == mpi ]]; then
  options+=(-DZOADAM_TEST_SLOW=ON)
fi

cmake --preset "$preset" "${options[@]}"
cmake --build --preset "$preset" -- -k 0

log=build/$preset/ctest.log
status=0
ctest --preset "$preset" 2>&1 | tee "$log" || status=$?

# "100% tests passed, 0 tests failed out of 12"
summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" || true)
if [[ -z $summary ]]; then
  echo "no test ran" >&2
  exit 1
fi
failed=$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$summary")
total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$summary")
# ctest counts a skipped test as passed; here it counts as failed, since every requirement was met above.
skipped=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*(Skipped|Not Run)' "$log" || true)
not_run=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*Not Run' "$log" || true)
failed=$((failed + skipped - not_run))
passed=$((total - failed))
if ((passed == 0 || failed > 0)); then
  status=1
fi
# shellcheck disable=SC2034  # read by the trap
finished=1
echo "$passed passed, $failed failed"
exit "$status"
