"""flatten: the image as one row, in memory order (H, W, C). Nothing moves: y is x under another shape."""

import numpy as np

from .spec import Op

OP = Op(
    "flatten",
    id=7,
    summary="y = x as one row, row by row, channels innermost",
    view=True,
    tolerance=(0.0, 0.0),
    int8=("same",),
)


def out_shape(a, x):
    return (int(np.prod(x)),)


def macs(a, x, y):
    return 0


def forward(a, x):  # (N,...) -> (N,P)
    return x.reshape(len(x), -1)


def backward(a, dy, x_shape):
    return {"x": dy.reshape(x_shape)}


CASES = [{"x": (1, 1, 1)}, {"x": (3, 4, 5)}, {"x": (6,)}]
