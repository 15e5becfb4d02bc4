#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers of the CUDA kernels, timed like them: PyTorch's fused Adam, and the sequence of calls that compresses with an
error (add the error, mean magnitude of blocks, sign, pack bits, subtract) in PyTorch and, where it is installed, CuPy."""
import argparse
import json
import statistics

import torch

try:
    import cupy
except ImportError:
    cupy = None


def milliseconds(f, rounds):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for i in range(-3, rounds):
        begin.record()
        f()
        end.record()
        end.synchronize()
        if i >= 0:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def fused_adam(n, rounds):
    x = torch.nn.Parameter(torch.randn(n, device="cuda"))
    x.grad = torch.randn(n, device="cuda")
    adam = torch.optim.AdamW([x], lr=1e-3, weight_decay=0.01, fused=True)
    return milliseconds(adam.step, rounds)


def compress(n, rounds, block=2048):
    z, e = (torch.randn(n, device="cuda") for _ in range(2))
    weights = 2 ** torch.arange(8, device="cuda", dtype=torch.uint8)

    def run():
        c = z + e
        scale = c.view(-1, block).abs().mean(1, keepdim=True)
        negative = c < 0
        bits = (negative.view(-1, 8).to(torch.uint8) * weights).sum(1, dtype=torch.uint8)
        decoded = torch.where(negative.view(-1, block), -scale, scale).view(-1)
        torch.sub(c, decoded, out=e)
        return bits

    return milliseconds(run, rounds)


def cupy_compress(n, rounds, block=2048):
    z, e = (cupy.random.standard_normal(n, dtype=cupy.float32) for _ in range(2))

    def run():
        c = z + e
        scale = cupy.abs(c.reshape(-1, block)).mean(axis=1, keepdims=True)
        bits = cupy.packbits(c < 0)
        cupy.subtract(c, (cupy.sign(c).reshape(-1, block) * scale).ravel(), out=e)
        return bits

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):  # the one that the events are recorded in
        return milliseconds(run, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    parser.add_argument("--mebi-elements", type=int, nargs="*", default=[16, 1024])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    rows = []
    for mebi in args.mebi_elements:
        n = mebi << 20
        peers = [("torch fused AdamW", "Adam step", fused_adam), ("torch compress sequence", "compress a gradient", compress)]
        if cupy:
            peers.append(("cupy compress sequence", "compress a gradient", cupy_compress))
        for name, kernel, f in peers:
            ns = 1e6 * f(n, args.rounds) / n
            rows.append({"name": f"{name} @{mebi}Mi", "kernel": f"{kernel} @{mebi}Mi", "ns_per_element": ns})
            print(rows[-1])
            torch.cuda.empty_cache()
            if cupy:
                cupy.get_default_memory_pool().free_all_blocks()
    with open(args.json, "w") as f:
        json.dump({"machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__}, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
