"""Small trainers and batches for them."""

from types import SimpleNamespace

import numpy as np
from nets import EVERYTHING, NESTED, net

MLP = [
    {"type": "linear", "in_features": 12, "out_features": 9, "activation": "relu", "weight_init": "xavier"},
    {"type": "linear", "in_features": 9, "out_features": 7, "activation": "relu", "weight_init": "xavier"},
    {"type": "linear", "in_features": 7, "out_features": 4, "activation": "none", "weight_init": "xavier"},
]


def batch_of(blueprint, rows=6, classes=3, seed=0):
    """A batch of random samples, as a loader gives it."""
    rng = np.random.default_rng(seed)
    shape = blueprint.input_shape
    shape = (shape[1], shape[2], shape[0]) if len(shape) == 3 else shape
    x = rng.standard_normal((rows, *shape)).astype(np.float32)
    return SimpleNamespace(x=x, y=rng.integers(0, classes, rows))


def mlp(**more):
    return net(MLP, [12], **({"learning_rate": 0.1} | more))


def everything(**more):
    return net(EVERYTHING, (2, 8, 8), **({"learning_rate": 0.01} | more))


def nested(**more):
    return net(NESTED, (2, 8, 8), **({"learning_rate": 0.01} | more))


def bits(trainer):
    return {name: array.tobytes() for name, array in trainer.state_arrays().items()}
