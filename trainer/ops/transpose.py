"""transpose: the same values with the axes in another order."""

import numpy as np

from .spec import Attr, Op, ShapeError

OP = Op(
    "transpose",
    id=21,
    summary="y[i_axes[0], i_axes[1], ..] = x[i_0, i_1, ..]",
    attrs=(Attr("axes", "u8", 0, 3, count=4, doc="axis of x that becomes axis k of y; k itself beyond the rank"),),
    imported=True,
    tolerance=(0.0, 0.0),
    int8=("same",),
)


def out_shape(a, x):
    if sorted(a.axes) != [0, 1, 2, 3] or tuple(a.axes[len(x) :]) != tuple(range(len(x), 4)):
        raise ShapeError(f"transpose has axes {tuple(a.axes)}, but its input has {len(x)}")
    return tuple(x[k] for k in a.axes[: len(x)])


def macs(a, x, y):
    return 0


def _order(a, x):
    return (0, *(k + 1 for k in a.axes[: x.ndim - 1]))


def forward(a, x):
    return x.transpose(_order(a, x))


def backward(a, dy):
    return {"x": dy.transpose(np.argsort(_order(a, dy)))}


CASES = [
    {"axes": [0, 1, 2, 3], "x": (3,)},
    {"axes": [1, 0, 2, 3], "x": (5, 17)},
    {"axes": [2, 0, 1, 3], "x": (4, 3, 5)},
    {"axes": [1, 2, 0, 3], "x": (2, 7, 16)},
    {"axes": [0, 2, 1, 3], "x": (3, 4, 1)},
]
