"""pad: the tensor with a border of one value around it."""

import numpy as np

from .spec import Attr, Op, ShapeError

LARGEST = float(np.finfo(np.float32).max)

OP = Op(
    "pad",
    id=19,
    summary="y[i + before] = x[i], and value everywhere else",
    attrs=(
        Attr("before", "u16", 0, 65535, 0, count=4, doc="values added in front of x, on each axis"),
        Attr("after", "u16", 0, 65535, 0, count=4, doc="values added behind x, on each axis"),
        Attr("value", "f32", -LARGEST, LARGEST, 0.0, doc="what the border holds"),
    ),
    imported=True,
    tolerance=(0.0, 0.0),
    int8=("same", "border"),
)


def out_shape(a, x):
    if any(a.before[len(x) :]) or any(a.after[len(x) :]):
        raise ShapeError(f"pad has borders for more axes than the {len(x)} of its input")
    return tuple(n + p + q for n, p, q in zip(x, a.before, a.after, strict=False))


def macs(a, x, y):
    return 0


def forward(a, x):
    borders = [(0, 0), *zip(a.before, a.after, strict=True)][: x.ndim]
    return np.pad(x, borders, constant_values=a.value)


def backward(a, dy, x_shape):
    inside = (slice(None), *(slice(p, p + n) for p, n in zip(a.before, x_shape[1:], strict=False)))
    return {"x": dy[inside]}


CASES = [
    {"x": (1,)},
    {"before": [2, 0, 0, 0], "after": [3, 0, 0, 0], "value": -1.5, "x": (5,)},
    {"before": [1, 2, 0, 0], "after": [0, 1, 0, 0], "x": (4, 3, 5)},
    {"before": [0, 0, 3, 0], "after": [1, 0, 4, 0], "value": 7.0, "x": (2, 3, 17)},
]
