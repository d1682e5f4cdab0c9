"""Initial weights, as a function of (seed, index of the weight): the same for every backend.

    kaiming  He, Zhang, Ren, Sun, "Delving deep into rectifiers" (ICCV 2015): variance 2 / fan_in. relu sets
             half of the values to zero, and the 2 (gain sqrt 2) makes up for it.
    xavier   Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks"
             (AISTATS 2010): variance 2 / (fan_in + fan_out), between what forward and backward would like.
A uniform distribution on [-b, b) has variance b^2 / 3, so b = sqrt(3 * variance).
"""

from __future__ import annotations

import math

import numpy as np

from . import rng

ALIASES = {"kaiming": "kaiming_normal", "xavier": "xavier_uniform"}
CONCRETE = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "zeros", "ones")
KINDS = ("auto", *ALIASES, *CONCRETE)  # what a blueprint may say

RELU_LIKE = frozenset({"relu", "relu6", "leaky_relu", "gelu", "gelu_tanh", "silu", "hard_swish"})


def resolve(kind: str, activation: str = "none") -> str:
    """One of CONCRETE. auto: kaiming_normal if the activation stops negative values, else xavier_uniform."""
    if kind == "auto":
        return "kaiming_normal" if activation in RELU_LIKE else "xavier_uniform"
    return ALIASES.get(kind, kind)


def fill(shape: tuple[int, ...], kind: str, fans: tuple[int, int] | None, seed: int, index: int) -> np.ndarray:
    """float32 of the given shape. kind: one of CONCRETE or an alias. fans: (fan_in, fan_out), or None for
    zeros and ones. index tells the weights of one network apart."""
    kind = ALIASES.get(kind, kind)
    if kind == "zeros":
        return np.zeros(shape, np.float32)
    if kind == "ones":
        return np.ones(shape, np.float32)
    if kind not in CONCRETE or fans is None:
        raise ValueError(f"{kind} with fans {fans} is no initialisation")
    fan_in, fan_out = fans
    variance = 2 / fan_in if kind.startswith("kaiming") else 2 / (fan_in + fan_out)
    if kind.endswith("normal"):
        return rng.normal(seed, rng.INIT, index, shape) * np.float32(math.sqrt(variance))
    return (2 * rng.uniform(seed, rng.INIT, index, shape) - 1) * np.float32(math.sqrt(3 * variance))
