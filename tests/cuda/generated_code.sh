#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generated_code.sh NVCC INCLUDE_DIR SOURCE ARCHITECTURE: prints registers, spills and shared memory of every kernel of SOURCE
# and fails if one spills, if a fused kernel lacks accesses of 16 bytes (8 for values of 16 bits), or if --use_fast_math gets at any
# operation. Accesses are looked up in the machine code where cuobjdump is found, and in PTX.
set -euo pipefail
nvcc=$1 include=$2 source=$3 architecture=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

"$nvcc" -std=c++20 "-arch=sm_$architecture" --use_fast_math -I"$include" -Xptxas -v --keep --keep-dir "$work" -c "$source" \
  -o "$work/object.o" 2>"$work/ptxas"
ptx=$(find "$work" -name '*.ptx' | head -n 1)

# Bytes of shared memory that launches give, which the PTX tells in comments: name | bytes.
awk '/\.entry / { match($0, /_Z[A-Za-z0-9_]+/); name = substr($0, RSTART, RLENGTH) }
     /shared memory: [0-9]+ bytes/ { match($0, /[0-9]+ bytes/); print name, substr($0, RSTART, RLENGTH - 6) }' "$ptx" |
  sort -u >"$work/dynamic"
if [[ ! -s $work/dynamic ]]; then
  echo 'the PTX tells no size of shared memory'
  failed=1
fi

# name | registers | spilled bytes | bytes of shared memory, static and dynamic
awk 'NR == FNR { shared[$1] = $2; next }
     /Compiling entry function/ { split($0, part, "\x27"); name = part[2] }
     /bytes stack frame/ { spilled = $(5) + $(9) }
     /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
                               fixed = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
                               print name, registers, spilled, fixed + shared[name] }' "$work/dynamic" "$work/ptxas" >"$work/kernels"
printf '%9s %7s %6s  %s\n' registers spilled shared kernel
while read -r name registers spilled shared; do
  printf '%9d %7d %6d  %s\n' "$registers" "$spilled" "$shared" "$(c++filt "$name" | cut -c 1-150)"
  if ((spilled > 0)); then
    echo "spills: $name"
    failed=1
  fi
done <"$work/kernels"
if [[ ! -s $work/kernels ]]; then
  echo 'no kernel was compiled'
  exit 1
fi

# What each fused kernel must hold: name | loads and stores of 16 bytes | stores of four 16-bit values, of one.
awk '/^\.(visible|weak) \.entry|^\.entry|\.entry / { match($0, /_Z[A-Za-z0-9_]+/); name = substr($0, RSTART, RLENGTH) }
     /ld\.global(\.nc)?\.v4\./ { loads[name]++ }
     /st\.global\.v4\.[fub]32/ { stores[name]++ }
     /st\.global\.v4\.[ub]16/ { halves[name]++ }
     /st\.global\.[ub]16/ { ones[name]++ }
     /segment_kernel|owner_kernel/ { if (name ~ /segment_kernel|owner_kernel/) fused[name] = 1 }
     END { for (name in fused) print name, loads[name] + 0, stores[name] + 0, halves[name] + 0, ones[name] + 0 }' "$ptx" >"$work/vectors"
cuobjdump=$(command -v cuobjdump || echo "$(dirname "$(command -v "$nvcc")")/cuobjdump")
if [[ -x $cuobjdump ]]; then
  "$cuobjdump" -sass "$work/object.o" | awk '
     /Function : / { name = $3; if (name ~ /segment_kernel|owner_kernel/) fused[name] = 1 }
     /LDG\.E\.128/ { loads[name]++ }
     /STG\.E\.128/ { stores[name]++ }
     /STG\.E\.64/ { halves[name]++ }
     /STG\.E\.U16/ { ones[name]++ }
     END { for (name in fused) print name, loads[name] + 0, stores[name] + 0, halves[name] + 0, ones[name] + 0 }' >"$work/machine"
  if [[ $(wc -l <"$work/machine") != $(wc -l <"$work/vectors") ]]; then
    echo 'machine code and PTX hold different kernels'
    failed=1
  fi
  cat "$work/machine" >>"$work/vectors"
fi
fused=0
while read -r name loads stores halves ones; do
  fused=$((fused + 1))
  if ((ones > 0 && halves == 0)); then
    echo "16-bit values are stored one by one: $(c++filt "$name" | cut -c 1-200)"
    failed=1
  fi
  # An owner that keeps no error and decides no bound reads messages alone.
  if [[ $name == *owner_kernel* && $name != *error_feedback* ]]; then continue; fi
  # One that writes 16-bit or 32-bit codes alone stores no float of a field.
  if ((loads == 0)) || { ((stores == 0)) && [[ $name == *error_feedback* || $name == *local_step* ]]; }; then
    echo "no 16-byte access: $loads loads, $stores stores: $(c++filt "$name" | cut -c 1-200)"
    failed=1
  fi
done <"$work/vectors"
echo "$fused fused kernels looked at, in $([[ -x $cuobjdump ]] && echo 'PTX and machine code' || echo PTX)"
((fused > 0)) || failed=1

# Flushed, approximate and contracted operations on float32 and float64 that formulas would show in their bits.
# Into a file first: a pipe into head would break under pipefail where there is much to find.
{ grep -nE '\.(ftz|approx)\b|\bfma\.|\bmad\.f' "$ptx" || true; } | { grep -vE 'rcp\.approx\.ftz\.f64' || true; } >"$work/reached"
if [[ -s $work/reached ]]; then
  head -n 5 "$work/reached"
  echo '--use_fast_math reached an operation'
  failed=1
fi
exit "$failed"
