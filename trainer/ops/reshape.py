"""reshape: the same values in the same order under another shape. Nothing moves."""

import numpy as np

from .spec import Attr, Op, ShapeError, shape_text

OP = Op(
    "reshape",
    id=22,
    summary="y = x under another shape, in memory order",
    attrs=(Attr("shape", "u32", 0, (1 << 30) - 1, count=4, doc="dims of y; 0 beyond its rank"),),
    view=True,
    imported=True,
    tolerance=(0.0, 0.0),
    int8=("same",),
)


def out_shape(a, x):
    rank = next((k for k, n in enumerate(a.shape) if n == 0), 4)
    shape = tuple(a.shape[:rank])
    if any(a.shape[rank:]) or rank == 0 or np.prod(shape, dtype=np.int64) != np.prod(x, dtype=np.int64):
        raise ShapeError(f"reshape cannot make {tuple(a.shape)} of {shape_text(x)}")
    return shape


def macs(a, x, y):
    return 0


def forward(a, x):
    return x.reshape(len(x), *out_shape(a, x.shape[1:]))


def backward(a, dy, x_shape):
    return {"x": dy.reshape(x_shape)}


CASES = [
    {"shape": [1, 0, 0, 0], "x": (1,)},
    {"shape": [5, 4, 3, 0], "x": (12, 5)},
    {"shape": [30, 2, 0, 0], "x": (3, 4, 5)},
    {"shape": [1, 2, 3, 0], "x": (6,)},
]
