# SPDX-License-Identifier: Apache-2.0
"""Makes factored.safetensors beside this file: Adafactor and SM3 by optax in float64, on tensors of rank 1 to 4.

    python3 -m venv peer && peer/bin/pip install jax==0.10.2 optax==0.2.8
    peer/bin/python tests/reference/factored.py

`grads` [steps, workers, elements] are exact in float32; the peer gets their mean. `adafactor0.params`
[steps / every, elements] is what it holds after every `every`-th step; `adafactor1` and `sm31` have a momentum, weight
decay, which is added here as learning rate times decay times x, and (Adafactor) the learning rate of the paper's
relative step, min(lr, 1 / sqrt(t)).
"""
import json
import pathlib
import struct

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import optax

# The last two axes are the two largest, which optax factors.
SHAPES = [(1,), (7,), (5, 3), (3, 5, 7), (2, 3, 7, 5), (11, 4)]
STEPS, WORKERS, EVERY, DECAY = 50, 2, 5, 0.1
COMMAND = "python tests/reference/factored.py (jax %s, optax %s)" % (jax.__version__, optax.__version__)


def write(path, metadata, tensors):
    header, data = {"__metadata__": {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}}, b""
    for name, value in tensors.items():
        kind = {"float32": "F32", "float64": "F64"}[str(value.dtype)]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def run(optimizer, decay):
    x = unpack(START.astype(np.float64))
    memory = optimizer.init(x)
    params = []
    for t in range(STEPS):
        updates, memory = optimizer.update(unpack(GRADS[t].astype(np.float64).mean(0)), memory, x)
        x = [p + u - RATES[t] * decay * p for p, u in zip(x, updates)]
        if (t + 1) % EVERY == 0:
            params.append(pack(x))
    return np.array(params)


def adafactor(rates, momentum):
    return optax.adafactor(lambda count: jnp.asarray(rates)[count], min_dim_size_to_factor=1, decay_rate=0.8,
                           clipping_threshold=1.0, momentum=momentum, eps=1e-30)


def sm3(momentum):
    """optax.sm3, with a schedule."""
    return optax.chain(optax.scale_by_sm3(b1=momentum, b2=1.0, eps=1e-8),
                       optax.scale_by_learning_rate(lambda count: jnp.asarray(RATES)[count]))


SIZES = [int(np.prod(s)) for s in SHAPES]
D = sum(SIZES)
pack = lambda tensors: np.concatenate([np.asarray(x).reshape(-1) for x in tensors])
unpack = lambda flat: [jnp.asarray(p.reshape(s)) for p, s in zip(np.split(flat, np.cumsum(SIZES)[:-1]), SHAPES)]
rng = np.random.default_rng(11)
START = (np.repeat(2.0 ** rng.integers(-6, 3, len(SHAPES)), SIZES) * rng.normal(size=D)).astype(np.float32)
START[1:8] = 0  # a tensor that begins at zero
GRADS = (rng.normal(size=(STEPS, WORKERS, D)) + rng.normal(size=D)).astype(np.float32)
GRADS[:, :, 2:4] = 0  # elements without a gradient, and a row
GRADS[:, :, 11:14] = 0
RATES = [0.3 * (1 - t / (2 * STEPS)) for t in range(STEPS)]
RELATIVE = [min(rate, 1 / (t + 1) ** 0.5) for t, rate in enumerate(RATES)]

write(pathlib.Path(__file__).with_suffix(".safetensors"),
      dict(command=COMMAND, shapes=SHAPES, steps=STEPS, workers=WORKERS, every=EVERY, weight_decay=DECAY, beta1=0.9,
           eps=1e-8),
      {"grads": GRADS, "params0": START, "lr": np.array(RATES),
       "adafactor0.params": run(adafactor(RATES, None), 0), "adafactor1.params": run(adafactor(RELATIVE, 0.9), DECAY),
       "sm30.params": run(sm3(0.0), 0), "sm31.params": run(sm3(0.9), DECAY)})
