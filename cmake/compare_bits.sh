#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every build listed in a manifest (label, instruction set, command) and fails unless all print the same lines.
set -euo pipefail

manifest=$1
reference='' reference_label='' runs=0 failures=0
while IFS=$'\t' read -r label isa command; do
  if [[ $command == - ]]; then
    echo "not run: $label (this CPU lacks $isa)"
    continue
  fi
  # The command is a list of words written by CMake: splitting it is meant.
  # shellcheck disable=SC2086
  if ! output=$($command </dev/null); then
    echo "FAILED:  $label: $command exited non-zero: $output"
    failures=$((failures + 1))
    continue
  fi
  if [[ -z $output ]]; then
    echo "FAILED:  $label printed nothing"
    failures=$((failures + 1))
    continue
  fi
  runs=$((runs + 1))
  if ((runs == 1)); then
    reference=$output reference_label=$label
  fi
  if [[ $output == "$reference" ]]; then
    echo "equal:   $label  $(head -n 1 <<<"$output")"
  else
    echo "DIFFERS: $label from $reference_label"
    diff <(echo "$reference") <(echo "$output") || true
    failures=$((failures + 1))
  fi
done <"$manifest"

echo "$runs builds ran, $failures failed"
# One build alone compares with nothing.
((runs >= 2 && failures == 0))
