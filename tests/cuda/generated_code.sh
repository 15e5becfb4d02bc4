#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generated_code.sh NVCC INCLUDE_DIR SOURCE ARCHITECTURE: prints registers and shared memory of every kernel of SOURCE and
# fails if one spills, if a fused kernel lacks 16-byte loads or stores, or if --use_fast_math gets at any operation.
set -euo pipefail
nvcc=$1 include=$2 source=$3 architecture=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

"$nvcc" -std=c++20 "-arch=sm_$architecture" --use_fast_math -I"$include" -Xptxas -v --keep --keep-dir "$work" -c "$source" \
  -o "$work/object.o" 2>"$work/ptxas"
ptx=$(find "$work" -name '*.ptx' | head -n 1)

# name | registers | shared memory | spilled bytes
awk '/Compiling entry function/ { split($0, part, "\x27"); name = part[2] }
     /bytes stack frame/ { spilled = $(5) + $(9) }
     /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
                               print name, registers, spilled }' "$work/ptxas" >"$work/kernels"
printf '%9s %7s  %s\n' registers spilled kernel
while read -r name registers spilled; do
  printf '%9d %7d  %s\n' "$registers" "$spilled" "$(c++filt "$name" | cut -c 1-150)"
  if ((spilled > 0)); then
    echo "spills: $name"
    failed=1
  fi
done <"$work/kernels"
if [[ ! -s $work/kernels ]]; then
  echo 'no kernel was compiled'
  exit 1
fi

# What each fused kernel must hold, from its PTX.
awk '/^\.(visible|weak) \.entry|^\.entry|\.entry / { match($0, /_Z[A-Za-z0-9_]+/); name = substr($0, RSTART, RLENGTH) }
     /ld\.global(\.nc)?\.v4\./ { loads[name]++ }
     /st\.global\.v4\./ { stores[name]++ }
     /segment_kernel|owner_kernel/ { if (name ~ /segment_kernel|owner_kernel/) fused[name] = 1 }
     END { for (name in fused) print name, loads[name] + 0, stores[name] + 0 }' "$ptx" >"$work/vectors"
fused=0
while read -r name loads stores; do
  fused=$((fused + 1))
  # An owner that keeps no error and decides no bound reads messages alone.
  if [[ $name == *owner_kernel* && $name != *error_feedback* ]]; then continue; fi
  # One that writes 16-bit or 32-bit codes alone stores no float of a field.
  if ((loads == 0)) || { ((stores == 0)) && [[ $name == *error_feedback* || $name == *local_step* ]]; }; then
    echo "no 16-byte access: $loads loads, $stores stores: $(c++filt "$name" | cut -c 1-200)"
    failed=1
  fi
done <"$work/vectors"
echo "$fused fused kernels"
((fused > 0)) || failed=1

# Flushed, approximate and contracted operations on float32 and float64 that formulas would show in their bits.
if grep -nE '\.(ftz|approx)\b|\bfma\.|\bmad\.f' "$ptx" | grep -vE 'rcp\.approx\.ftz\.f64' | head -n 5 | grep .; then
  echo '--use_fast_math reached an operation'
  failed=1
fi
exit "$failed"
