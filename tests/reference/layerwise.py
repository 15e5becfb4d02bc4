# SPDX-License-Identifier: Apache-2.0
"""Makes layerwise.safetensors beside this file: LAMB and LARS by optax in float64, on tensors of rank 0 to 4.

    python3 -m venv peer && peer/bin/pip install jax==0.10.2 optax==0.2.8
    peer/bin/python tests/reference/layerwise.py

`grads` [steps, workers, elements] are exact in float32; the peer gets their mean. `lamb0.params` and `lamb0.m`
[steps / every, elements] are what it holds after every `every`-th step with the first weight decay; and so on.
"""
import json
import pathlib
import struct

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import optax

SHAPES = [(), (7,), (3, 5), (2, 3, 5), (2, 1, 3, 5), (4, 11)]
STEPS, WORKERS, EVERY = 50, 2, 5
COMMAND = "python tests/reference/layerwise.py (jax %s, optax %s)" % (jax.__version__, optax.__version__)


def write(path, metadata, tensors):
    header, data = {"__metadata__": {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}}, b""
    for name, value in tensors.items():
        kind = {"float32": "F32", "float64": "F64"}[str(value.dtype)]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def lars_ratio(trust, weight_decay):
    """optax.lars with the ratio of the paper: trust |x| / (|g| + weight_decay |x|), then g + weight_decay x."""

    def scaled(g, x):
        xn, gn = jnp.linalg.norm(x), jnp.linalg.norm(g)
        ratio = jnp.where((xn > 0) & (gn > 0), trust * xn / (gn + weight_decay * xn), 1.0)
        return ratio * (g + weight_decay * x)

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map(scaled, updates, params))


def run(optimizer_of, momentum_of):
    x = unpack(START.astype(np.float64))
    optimizer = optimizer_of(lambda count: jnp.asarray(RATES)[count])
    memory = optimizer.init(x)
    params, m = [], []
    for t in range(STEPS):
        updates, memory = optimizer.update(unpack(GRADS[t].astype(np.float64).mean(0)), memory, x)
        x = optax.apply_updates(x, updates)
        if (t + 1) % EVERY == 0:
            params.append(pack(x))
            m.append(pack(momentum_of(memory)))
    return np.array(params), np.array(m)


def lamb(decay):
    return lambda rate: optax.lamb(rate, b1=0.9, b2=0.99, eps=1e-6, weight_decay=decay)


def lars(decay):
    if decay == 0:
        return lambda rate: optax.lars(rate, trust_coefficient=0.01, momentum=0.9)
    return lambda rate: optax.chain(lars_ratio(0.01, decay), optax.scale_by_learning_rate(rate), optax.trace(decay=0.9))


SIZES = [int(np.prod(s)) for s in SHAPES]
D = sum(SIZES)
pack = lambda tensors: np.concatenate([np.asarray(x).reshape(-1) for x in tensors])
unpack = lambda flat: [jnp.asarray(p.reshape(s)) for p, s in zip(np.split(flat, np.cumsum(SIZES)[:-1]), SHAPES)]
rng = np.random.default_rng(7)
START = (np.repeat(2.0 ** rng.integers(-6, 3, len(SHAPES)), SIZES) * rng.normal(size=D)).astype(np.float32)
START[1:8] = 0  # a tensor that begins at zero
GRADS = (rng.normal(size=(STEPS, WORKERS, D)) + rng.normal(size=D)).astype(np.float32)
GRADS[:, :, 8:12] = 0  # elements without a gradient
RATES = [0.02 * (1 - t / (2 * STEPS)) for t in range(STEPS)]

tensors = dict(grads=GRADS, params0=START, lr=np.array(RATES))
decays = [0, 0.1]
for k, decay in enumerate(decays):
    for name, make, momentum in [("lamb", lamb, lambda memory: memory[0].mu),
                                 ("lars", lars, lambda memory: [-m for m in memory[-1].trace])]:
        tensors["%s%d.params" % (name, k)], tensors["%s%d.m" % (name, k)] = run(make(decay), momentum)
write(pathlib.Path(__file__).with_suffix(".safetensors"),
      dict(command=COMMAND, shapes=SHAPES, steps=STEPS, workers=WORKERS, every=EVERY, weight_decay=decays, beta1=0.9,
           beta2=0.99, eps=1e-6, trust=0.01), tensors)
