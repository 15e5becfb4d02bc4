#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# killed_peer.sh RANKS COMMAND...: the last rank of COMMAND is killed; every other rank must print its line
# "survivor <rank> of <RANKS>: ...". The launcher's exit status tells of the killed rank and says nothing here.
set -euo pipefail

ranks=$1
shift
# A launcher told to live on also waits on after its own failures.
output=$(timeout --kill-after=5 60 "$@" 2>&1 </dev/null) || true
echo "$output"
for ((rank = 0; rank < ranks - 1; ++rank)); do
  if ! grep -q "survivor $rank of $ranks: " <<<"$output"; then
    echo "rank $rank of $ranks did not survive its killed peer"
    exit 1
  fi
done
