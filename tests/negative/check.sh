#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh COMPILER FILE [FLAGS...]: FILE must not compile, with every `// expect: REGEX` line of it found in the
# compiler's errors; with ZOADAM_NEGATIVE_CONTROL defined it must compile, so that nothing else causes the failure.
set -euo pipefail

compiler=$1 file=$2
shift 2
compile=("$compiler" -std=c++20 -fsyntax-only -Wall -Wextra "$@" "$file")

mapfile -t patterns < <(sed -n 's,^// expect: ,,p' "$file")
if ((${#patterns[@]} == 0)); then
  echo "$file has no '// expect: REGEX' line"
  exit 1
fi

if ! control=$("${compile[@]}" -DZOADAM_NEGATIVE_CONTROL 2>&1); then
  echo "$file does not compile with ZOADAM_NEGATIVE_CONTROL either, so its failure shows nothing:"
  echo "$control"
  exit 1
fi

if errors=$(LC_ALL=C "${compile[@]}" 2>&1); then
  echo "$file compiles, and must not"
  exit 1
fi

# The patterns themselves stand in FILE, which compilers quote.
messages=$(grep -vF '// expect: ' <<<"$errors")
for pattern in "${patterns[@]}"; do
  if ! grep -qE -e "$pattern" <<<"$messages"; then
    echo "$file: no error matches: $pattern"
    echo "$errors"
    exit 1
  fi
done
echo "refused as expected: ${patterns[*]}"
