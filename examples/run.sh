#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, trains the GPT with three optimizers on the same data, prints one table and draws
# the loss curves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: examples/run.sh [--quick] [--out DIR] [-- TRAIN_GPT_OPTION...]
  --quick      about one minute of training instead of at most eight
  --out DIR    where metrics, curves and the picture go (default: build/example)
  -- OPTION... handed to every run of train_gpt, such as --text FILE
TEXT
}

seconds=450
out=build/example
extra=()
while (($# > 0)); do
  case $1 in
    --quick) seconds=50 ;;
    --out)
      out=${2:?--out needs a folder}
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    --)
      shift
      extra=("$@")
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
groups=(base gpt json picture)
[[ " ${extra[*]} " == *" --text"* ]] || groups+=(text)
zoadam_require "${groups[@]}"

cmake --preset bench -DZOADAM_BUILD_TESTS=OFF -DZOADAM_BUILD_BENCH=OFF >/dev/null
cmake --build --preset bench --target train_gpt
mkdir -p "$out"
train=(build/bench/examples/train_gpt --workers 4 "${extra[@]}")

# As many steps as fit: a short run tells how long a step takes; start-up and the last evaluation are paid three times.
probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
"${train[@]}" --optimizer adam --steps 30 --eval-every 30 --metrics "$probe" >/dev/null
steps=$(jq -r --argjson s "$seconds" '[2000, ($s / 3 / (.seconds / .steps) / 50 | floor) * 50] | min | [., 50] | max' "$probe")
echo "Training $steps steps with 4 workers and each optimizer."

optimizers=(adam onebit_adam zero_one_adam)
for optimizer in "${optimizers[@]}"; do
  echo "== $optimizer"
  "${train[@]}" --optimizer "$optimizer" --steps "$steps" --eval-every $((steps / 20 > 0 ? steps / 20 : 1)) \
    --metrics "$out/$optimizer.json" --curve "$out/$optimizer.csv"
done

echo
printf '%-14s %10s %15s %10s %11s %10s %8s\n' optimizer 'train loss' 'validation loss' bits/param rounds/step MB/worker seconds
for optimizer in "${optimizers[@]}"; do
  jq -r '[.optimizer, .train_loss, .validation_loss, .bits_per_parameter, .rounds_per_step, .bytes_sent_per_worker / 1e6, .seconds]
         | @tsv' "$out/$optimizer.json" |
    while IFS=$'\t' read -r name train_loss validation bits rounds mb time; do
      printf '%-14s %10.4f %15.4f %10.3f %11.3f %10.1f %8.1f\n' "$name" "$train_loss" "$validation" "$bits" "$rounds" "$mb" "$time"
    done
done
printf 'Character trigrams reach %.4f on the same held-out books.\n' "$(jq .trigram_loss "$out/adam.json")"

gnuplot <<PLOT
set terminal svg size 900,500 background rgb 'white'
set output '$out/loss.svg'
set datafile separator ','
set title 'Validation loss, $steps steps, 4 workers'
set xlabel 'step'
set ylabel 'nats per character'
plot for [name in "${optimizers[*]}"] '$out/'.name.'.csv' using 1:3 every ::1 with lines lw 2 title name noenhanced
PLOT
echo "Loss curves: $out/loss.svg"
