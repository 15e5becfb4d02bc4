# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's optimizers and schedulers compute, as tests/reference/pytorch.safetensors.

    pip install torch numpy safetensors && python3 tests/reference/pytorch.py tests/reference/pytorch.safetensors

Parameters of rank 1 to 4 take 50 steps in float64 on the mean gradient of two workers; the file holds the gradients of
both (float32), the start, the learning rates, the parameters of every optimizer after every step, and the learning
rates of schedulers.
"""
import json
import sys

import numpy
import torch
from safetensors.numpy import save_file

STEPS, WORKERS = 50, 2
SHAPES = [(7,), (5, 3), (3, 1, 5), (3, 1, 3, 5)]

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(weight_decay=0.05)),  # without momentum, coupled and decoupled decay are one
    "momentum_sgd": (torch.optim.SGD, dict(momentum=0.9)),
    "nesterov_sgd": (torch.optim.SGD, dict(momentum=0.8, nesterov=True)),
    "adagrad": (torch.optim.Adagrad, dict(eps=1e-10)),
    "rmsprop": (torch.optim.RMSprop, dict(alpha=0.99, eps=1e-8)),
    "nadam": (torch.optim.NAdam, dict(betas=(0.9, 0.999), weight_decay=0.05, decoupled_weight_decay=True)),
    "amsgrad": (torch.optim.AdamW, dict(betas=(0.9, 0.99), weight_decay=0.05, amsgrad=True)),
}


# By the name of the function in <zoadam/schedule.hpp>.
SCHEDULERS = {
    "gradual_warmup": (torch.optim.lr_scheduler.LinearLR, dict(start_factor=1 / 8, total_iters=20)),
    "step_decay": (torch.optim.lr_scheduler.StepLR, dict(step_size=7, gamma=0.3)),
    "cosine_decay": (torch.optim.lr_scheduler.CosineAnnealingLR, dict(T_max=STEPS)),
    "polynomial_decay": (torch.optim.lr_scheduler.PolynomialLR, dict(total_iters=40, power=1.7)),
}


def inputs():
    """Gradients [worker, step, element] and the start: noise of all sizes; elements that never have a gradient, and
    some that have their first one late."""
    generator = numpy.random.default_rng(1)
    n = sum(int(numpy.prod(shape)) for shape in SHAPES)
    size = 2.0 ** generator.integers(-9, -2, n)
    gradients = size * (generator.standard_normal((1, 1, n)) + generator.standard_normal((WORKERS, STEPS, n)))
    gradients[:, :, 4::10] = 0
    gradients[:, : STEPS // 2, 7::10] = 0
    return gradients.astype(numpy.float32), generator.standard_normal(n).astype(numpy.float32)


def trajectory(name, gradients, start, rates):
    """Parameters [step, element]."""
    mean = torch.from_numpy(gradients.astype(numpy.float64)).mean(0)
    sizes = [int(numpy.prod(shape)) for shape in SHAPES]
    parameters = [
        torch.nn.Parameter(part.reshape(shape).clone())
        for part, shape in zip(torch.from_numpy(start.astype(numpy.float64)).split(sizes), SHAPES)
    ]
    kind, options = OPTIMIZERS[name]
    optimizer = kind(parameters, lr=1.0, **options)
    result = []
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = float(rate)
        for parameter, part, shape in zip(parameters, mean[step].split(sizes), SHAPES):
            parameter.grad = part.reshape(shape).clone()
        optimizer.step()
        result.append(torch.cat([p.detach().reshape(-1) for p in parameters]).numpy().astype(numpy.float32))
    return numpy.stack(result)


def schedule(name):
    """The learning rate [step] of a scheduler after 0, 1, ... steps of it, from 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    kind, options = SCHEDULERS[name]
    scheduler = kind(optimizer, **options)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return numpy.array(rates)


def main(path):
    gradients, start = inputs()
    rates = 0.02 * (1 - numpy.arange(STEPS) / (2 * STEPS))
    tensors = {"gradients": gradients, "start": start, "rates": rates}
    for name in OPTIMIZERS:
        tensors["optimizer." + name] = trajectory(name, gradients, start, rates)
    for name in SCHEDULERS:
        tensors["schedule." + name] = schedule(name)
    called = {**OPTIMIZERS, **SCHEDULERS}
    metadata = {
        "made by": "python3 tests/reference/pytorch.py " + path,
        "torch": torch.__version__,
        "shapes": json.dumps(SHAPES),
        "called": json.dumps({name: [kind.__name__, options] for name, (kind, options) in called.items()}),
    }
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main(sys.argv[1])
