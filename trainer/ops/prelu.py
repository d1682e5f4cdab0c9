"""prelu: a leaky relu whose slope below zero is each channel's own."""

import numpy as np

from .spec import Op, Weight

OP = Op(
    "prelu",
    id=15,
    summary="y[..,c] = x[..,c] if x > 0, else slope[c] x[..,c]",
    weights=(Weight("slope", lambda a, x: (x[-1],), init="zeros"),),
    inplace=("x",),
    layout="vectors",
    imported=True,
    int8=("bounds", "shift", "m1"),
    int8_layout="vectors8",
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return 0


def forward(a, x, slope):
    return np.where(x > 0, x, slope * x)


def backward(a, dy, x, slope):
    below = np.where(x > 0, 0, x)
    return {"x": np.where(x > 0, dy, slope * dy), "slope": (dy * below).sum(tuple(range(x.ndim - 1)))}


CASES = [{"x": (2,)}, {"x": (17,)}, {"x": (3, 16)}, {"x": (4, 3, 33)}]
