#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What including <zoadam/zoadam.hpp> costs at -O0 beyond an empty program, per compiler; fails above a limit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=1.0  # seconds
runs=5
compilers=("$@")
if ((${#compilers[@]} == 0)); then
  for compiler in g++ clang++; do
    if command -v "$compiler" >/dev/null; then
      compilers+=("$compiler")
    fi
  done
fi
if ((${#compilers[@]} == 0)); then
  echo "neither g++ nor clang++ is installed; usage: bench/compile_time.sh [COMPILER...]" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'int main() {}' >"$work/empty.cpp"
printf '#include <zoadam/zoadam.hpp>\nint main() {}\n' >"$work/umbrella.cpp"

# Processor seconds of one compilation: what else the machine does counts less than with a wall clock.
seconds() {
  local TIMEFORMAT='%U %S'
  { time "$1" -std=c++20 -O0 -Iinclude -c "$2" -o "$work/object.o" 2>"$work/errors"; } 2>&1 | awk '{ print $1 + $2 }'
  if [[ -s $work/errors ]]; then
    cat "$work/errors" >&2
    return 1
  fi
}
median() {
  local source=$1 i
  shift
  for ((i = 0; i < runs; ++i)); do
    seconds "$1" "$source"
  done | sort -n | sed -n "$(((runs + 1) / 2))p"
}

status=0
printf '%-10s %10s %10s %12s\n' compiler empty umbrella difference
for compiler in "${compilers[@]}"; do
  seconds "$compiler" "$work/umbrella.cpp" >"$work/first"  # fills the file cache, and shows errors early
  empty=$(median "$work/empty.cpp" "$compiler")
  umbrella=$(median "$work/umbrella.cpp" "$compiler")
  awk -v c="$compiler" -v e="$empty" -v u="$umbrella" -v limit="$limit" 'BEGIN {
    over = u - e > limit
    printf "%-10s %8.2f s %8.2f s %10.2f s%s\n", c, e, u, u - e, over ? "  over " limit " s" : ""
    exit over
  }' || status=1
done
exit "$status"
