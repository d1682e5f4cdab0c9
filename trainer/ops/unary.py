"""unary: a function of one number that is no activation, for the arithmetic that imported nets carry along."""

import numpy as np

from .spec import Attr, Op

EXP, SQRT, RECIPROCAL = 0, 1, 2

OP = Op(
    "unary",
    id=23,
    summary="y = e^x, or the root of max(x, 0), or 1 / x",
    attrs=(Attr("function", "u8", 0, 2, 0, doc="0 e^x, 1 root of max(x, 0), 2 1 / x"),),
    inplace=("x",),
    imported=True,
    int8=(),
    int8_layout="table",
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return 0


def forward(a, x):
    if a.function == EXP:
        return np.exp(x)
    return np.sqrt(np.maximum(x, 0)) if a.function == SQRT else 1 / x


def backward(a, dy, y):
    if a.function == EXP:
        return {"x": dy * y}
    if a.function == SQRT:
        return {"x": np.divide(dy, 2 * y, out=np.zeros_like(dy), where=y > 0)}
    return {"x": -dy * y * y}


CASES = [{"function": f, "x": x} for f in (0, 1, 2) for x in ((3,), (2, 3, 17))]
