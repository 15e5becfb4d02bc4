#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the GPT of the examples with every optimizer and variant, several seeds each, and prints the table from which
# the defaults were chosen. Runs whose metrics are there already are not repeated.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
  cat <<'TEXT'
usage: bench/convergence/run.sh [--seeds "0 1 2"] [--out DIR] [--table] [-- TRAIN_GPT_OPTION...]
  --out DIR   one JSON file for each run (default: bench/results/convergence)
  --table     only print the table of what is there
TEXT
}

seeds="0 1 2"
out=bench/results/convergence
only_table=0
extra=()
while (($# > 0)); do
  case $1 in
    --seeds) seeds=${2:?} && shift ;;
    --out) out=${2:?} && shift ;;
    --table) only_table=1 ;;
    --) shift && extra=("$@") && break ;;
    --help | -h) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

# shellcheck source=../../cmake/requirements.sh
source cmake/requirements.sh
zoadam_require base gpt json text picture

optimizers="adam onebit_adam zero_one_adam zero_one_adam_paper local_adam"
outer="diloco.15 diloco.50 sparse_loco.15"  # .steps between exchanges
variants="replace p_half p_zero block_128 block_256 block_512 block_1024 variance_float32 momentum_sum"

if ((!only_table)); then
  cmake --preset bench -DZOADAM_BUILD_TESTS=OFF >/dev/null
  cmake --build --preset bench --target train_gpt train_variants
  mkdir -p "$out"
  for seed in $seeds; do
    for name in $optimizers $outer $variants; do
      file=$out/$name.$seed.json
      [[ -s $file ]] && continue
      program=build/bench/examples/train_gpt
      [[ " $variants " == *" $name "* ]] && program=build/bench/bench/train_variants
      echo "== $name, seed $seed"
      flags=()
      [[ $name == *.* ]] && flags=(--sync-interval "${name#*.}")
      "$program" --optimizer "${name%.*}" "${flags[@]}" --seed "$seed" --metrics "$file" "${extra[@]}"
    done
  done
fi

echo "| optimizer | validation loss, by seed | mean | bits per parameter | rounds per step | variance rounds |"
echo "|---|---|---|---|---|---|"
for name in $optimizers $outer $variants; do
  files=("$out/$name".*.json)
  [[ -s ${files[0]} ]] || continue
  interval=""
  [[ $name == *.* ]] && interval=" (every ${name#*.} steps)"
  jq -rs --arg interval "$interval" 'def digits(n): . * pow(10; n) | round | . / pow(10; n);
    "| \(.[0].optimizer)\($interval) | \(map(.validation_loss | digits(4) | tostring) | join(", ")) | \(map(.validation_loss) | add / length | digits(4)) | \(.[0].bits_per_parameter | digits(3)) | \(.[0].rounds_per_step | digits(3)) | \(.[0].variance_rounds) |"' "${files[@]}"
done
