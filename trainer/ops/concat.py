"""concat: two tensors one after the other along an axis."""

import numpy as np

from .spec import Attr, Op, ShapeError, shape_text

OP = Op(
    "concat",
    id=17,
    summary="y = x, then x2, along one axis",
    attrs=(Attr("axis", "u8", 0, 3, 0, doc="the axis they are joined along, counted without the batch"),),
    inputs=("x", "x2"),
    imported=True,
    int8=("bounds", "shift", "m1", "m2"),
)


def out_shape(a, x, x2):
    k = a.axis
    if k >= len(x) or x[:k] + x[k + 1 :] != x2[:k] + x2[k + 1 :] or len(x) != len(x2):
        raise ShapeError(f"concat along axis {k} cannot join {shape_text(x)} and {shape_text(x2)}")
    return (*x[:k], x[k] + x2[k], *x[k + 1 :])


def macs(a, x, y):
    return 0


def forward(a, x, x2):
    return np.concatenate([x, x2], a.axis + 1)


def backward(a, dy, x, x2):
    dx, dx2 = np.split(dy, [x.shape[a.axis + 1]], a.axis + 1)
    return {"x": dx, "x2": dx2}


CASES = [{"x": (1,)}, {"x": (5,)}, {"axis": 1, "x": (3, 16)}, {"axis": 1, "x": (4, 3, 5)}, {"axis": 2, "x": (2, 3, 17)}]
