#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU, in one call of a few minutes: builds for its device, runs every CUDA test and the conformance
# cases, memcheck and racecheck on a small set, then the benches. Prints a short table; writes JSON and a Markdown table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: tests/device.sh OUTPUT_DIR [--mebi-elements N]
  OUTPUT_DIR            results: cuda.json, peers.json, results.md, log.txt
  --mebi-elements N     one size of the benches instead of 16 and 1024 (in units of 2^20)
Needs nvcc, cmake, ninja and python3, and no network: ZOADAM_THIRD_PARTY names a folder with doctest/doctest.h where doctest is
not installed, and with nlohmann/json.hpp, without which the conformance cases are not run. NVCC names the compiler where it is
not on the path, ZOADAM_CUDA_ARCHITECTURES what to build for (native).
TEXT
}

if (($# < 1)) || [[ $1 == --help || $1 == -h ]]; then
  usage
  exit $(($# < 1 ? 2 : 0))
fi
mkdir -p "$1"
out=$(realpath "$1")
shift
bench_options=("$@")
log=$out/log.txt
: >"$log"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
jobs=$(nproc)
failed=0

limit=460  # seconds for everything

step() {  # step NAME COMMAND...: runs it while there is time, keeps its output, prints one line
  local name=$1 start=$SECONDS left=$((limit - SECONDS))
  shift
  if timeout "$((left > 1 ? left : 1))" "$@" >>"$log" 2>&1; then
    printf '%-44s %s\n' "$name" "passed, $((SECONDS - start)) s"
  else
    printf '%-44s %s\n' "$name" "FAILED, $((SECONDS - start)) s: see $log"
    failed=1
  fi
}

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  echo 'no CUDA device: there is no /dev/nvidia0 or other'
  exit 77
fi

build=build/device
step 'configure' cmake -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_COMPILER="$nvcc" \
  -DZOADAM_CUDA=ON -DZOADAM_MPI=OFF -DZOADAM_CUDA_ARCHITECTURES="${ZOADAM_CUDA_ARCHITECTURES:-native}" -DZOADAM_BUILD_EXAMPLES=OFF \
  -DZOADAM_TEST_CUDA_ONLY=ON
((failed == 0)) || { tail -n 40 "$log" && exit 1; }
# Figures first, while there is time for all of them.
step 'build of the bench' cmake --build "$build" -j "$jobs" --target bench_backend_cuda
step 'bench of the kernels' "$build/bench/bench_backend_cuda" --json "$out/cuda.json" "${bench_options[@]}"
if command -v python3 >/dev/null && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step 'peers' python3 bench/backend/peers.py --json "$out/peers.json"
else
  echo 'python3 has no torch with a device: peers not measured'
fi

# What is not built in time is not run, and is a failure.
step 'build of the tests' timeout 300 cmake --build "$build" -j "$jobs" -- -k 0

# Programs that say there is no device must not count as passed here.
for program in "$build"/tests/cuda/test.cuda.*; do
  [[ -x $program && ! -d $program ]] || continue
  step "$(basename "$program")" "$program" --no-colors=true
done
conformance=$build/tests/cuda/zoadam_conformance_cuda
if [[ -x $conformance ]]; then
  step 'conformance cases' "$conformance" tests/conformance/cases
else
  printf '%-44s %s\n' 'conformance cases' 'NOT RUN: nlohmann/json.hpp is neither installed nor in ZOADAM_THIRD_PARTY'
fi
if capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .); then
  step 'generated code' bash tests/cuda/generated_code.sh "$nvcc" include tests/cuda/kernels.cu "$capability"
fi

sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$nvcc")/compute-sanitizer")
if [[ -x $sanitizer ]]; then
  for tool in memcheck racecheck; do
    step "compute-sanitizer $tool" timeout 120 "$sanitizer" --tool "$tool" --error-exitcode 1 \
      "$build/tests/cuda/test.cuda.backend.cuda" --no-colors=true --test-case='views that no vector access fits*'
  done
else
  echo 'compute-sanitizer is not installed: not run'
fi

python3 - "$out" <<'PYTHON' || failed=1
import datetime, json, os, sys
out = sys.argv[1]
lines = [datetime.date.today().isoformat(), ""]
with open(os.path.join(out, "cuda.json")) as f:
    cuda = json.load(f)
lines.append("Device: " + ", ".join(f"{k} {v}" for k, v in cuda["machine"].items()))
lines.append("")
lines.append("| kernel | ns per element | bytes per element | of copy |")
lines.append("|---|---|---|---|")
for r in cuda["rows"]:
    lines.append(f"| {r['name']} | {r['ns_per_element']:.4f} | {r['bytes_per_element']:.3f} | {r['fraction_of_copy']:.3f} |")
peers = os.path.join(out, "peers.json")
if os.path.exists(peers):
    with open(peers) as f:
        measured = json.load(f)
    ours = {r["name"]: r["ns_per_element"] for r in cuda["rows"]}
    lines += ["", "Peers: " + ", ".join(f"{k} {v}" for k, v in measured["machine"].items()), ""]
    lines += ["| peer | ns per element | kernel | times as fast |", "|---|---|---|---|"]
    for r in measured["rows"]:
        times = r["ns_per_element"] / ours[r["kernel"]] if r["kernel"] in ours else float("nan")
        lines.append(f"| {r['name']} | {r['ns_per_element']:.4f} | {r['kernel']} | {times:.2f} |")
text = "\n".join(lines) + "\n"
with open(os.path.join(out, "results.md"), "w") as f:
    f.write(text)
print(text)
PYTHON
exit "$failed"
