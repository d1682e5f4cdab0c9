"""slice: every step-th value along one axis, `size` of them from `begin` on."""

import numpy as np

from .spec import Attr, Op, ShapeError

MOST = (1 << 30) - 1

OP = Op(
    "slice",
    id=20,
    summary="y[.., i, ..] = x[.., begin + i step, ..] along one axis, 0 <= i < size",
    attrs=(
        Attr("axis", "u8", 0, 3, 0, doc="the axis it cuts, counted without the batch"),
        Attr("begin", "u32", 0, MOST, 0, doc="the first value taken"),
        Attr("size", "u32", 1, MOST, doc="values taken"),
        Attr("step", "u32", 1, MOST, 1, doc="from one value taken to the next"),
    ),
    imported=True,
    tolerance=(0.0, 0.0),
    int8=("same",),
)


def out_shape(a, x):
    if a.axis >= len(x) or a.begin + (a.size - 1) * a.step >= x[a.axis]:
        raise ShapeError(f"slice takes {a.size} values from {a.begin} on, each {a.step}, and there are not as many")
    return (*x[: a.axis], a.size, *x[a.axis + 1 :])


def macs(a, x, y):
    return 0


def _part(a):
    return (*[slice(None)] * (a.axis + 1), slice(a.begin, a.begin + (a.size - 1) * a.step + 1, a.step))


def forward(a, x):
    return x[_part(a)]


def backward(a, dy, x_shape):
    dx = np.zeros(x_shape, dy.dtype)
    dx[_part(a)] = dy
    return {"x": dx}


CASES = [
    {"size": 1, "x": (1,)},
    {"begin": 2, "size": 5, "step": 3, "x": (17,)},
    {"axis": 1, "begin": 1, "size": 2, "x": (4, 3, 5)},
    {"axis": 2, "begin": 16, "size": 17, "x": (2, 3, 33)},
    {"axis": 0, "size": 2, "step": 2, "x": (4, 1, 2)},
]
