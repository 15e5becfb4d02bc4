#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_or_say.sh PROGRAM: passes if the program passes on a device, or says that there is none and exits with 77.
set -uo pipefail
output=$("$1" --no-colors=true 2>&1)
status=$?
echo "$output"
if ((status == 77)) && [[ $output == *"no CUDA device: "* && $(wc -l <<<"$output") == 1 ]]; then exit 0; fi
exit "$status"
