#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_mlp.sh PROGRAM: trains on a few small images, with either optimizer. Passes too if the program says that there
# is no device and exits with 77.
set -uo pipefail
program=$1
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT

# images COUNT PREFIX: 4 x 4 pixels, of which a bright one tells the label.
images() {
  local i pixel byte size bytes='' labels=''
  printf -v size '\\x%02x\\x%02x' $(($1 / 256)) $(($1 % 256))
  for ((i = 0; i < $1; ++i)); do
    printf -v byte '\\x%02x' $((i % 10))
    labels+=$byte
    for ((pixel = 0; pixel < 16; ++pixel)); do
      printf -v byte '\\x%02x' $((pixel == i % 10 ? 255 : (i * 7 + pixel * 13) % 64))
      bytes+=$byte
    done
  done
  printf '%b' "\x00\x00\x08\x03\x00\x00$size\x00\x00\x00\x04\x00\x00\x00\x04$bytes" | gzip >"$data/$2-images-idx3-ubyte.gz"
  printf '%b' "\x00\x00\x08\x01\x00\x00$size$labels" | gzip >"$data/$2-labels-idx1-ubyte.gz"
}
images 320 train
images 50 t10k

for optimizer in zero_one_adam adam; do
  output=$("$program" --data "$data" --ranks 2 --batch 20 --epochs 2 --lr 0.01 --optimizer "$optimizer" 2>&1)
  status=$?
  echo "$output"
  if ((status == 77)) && [[ $output == *"no CUDA device: "* && $(wc -l <<<"$output") == 1 ]]; then exit 0; fi
  ((status == 0)) || exit "$status"
  grep -qE '^replicas_identical +true$' <<<"$output" || exit 1
  grep -qE '^test_accuracy +(1|0\.[89])' <<<"$output" || exit 1
done
if output=$("$program" --data "$data/none" 2>&1) || [[ $output != *dataset-fashion-mnist* ]]; then
  echo "no complaint about a missing folder: $output"
  exit 1
fi
