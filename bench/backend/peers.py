#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers of the CUDA kernels, timed like them: PyTorch's fused Adam, and the sequence of calls that compresses with an
error in PyTorch (add the error, mean magnitude of blocks, sign, pack bits, subtract)."""
import argparse
import json
import statistics

import torch


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    parser.add_argument("--mebi-elements", type=int, nargs="*", default=[16, 1024])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    rows = []
    for mebi in args.mebi_elements:
        n = mebi << 20
        for name, f in (("torch fused AdamW", fused_adam), ("torch compress sequence", compress)):
            rows.append({"name": f"{name} @{mebi}Mi", "ns_per_element": 1e6 * f(n, args.rounds) / n})
            print(rows[-1])
            torch.cuda.empty_cache()
    with open(args.json, "w") as f:
        json.dump({"machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__}, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
