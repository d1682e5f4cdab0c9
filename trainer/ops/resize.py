"""resize: an image at another size, each axis alone; positions are fractions of whole numbers, so nothing drifts.

Target i of m looks at source position p of n:  half_pixel p = ((2i+1) n - m) / 2m ·  asymmetric p = i n / m ·
align_corners p = i (n-1) / (m-1), which is 0 where m is 1.
"""

import numpy as np

from .spec import Attr, Op, ShapeError, image

NEAREST, BILINEAR = 0, 1
HALF_PIXEL, ASYMMETRIC, ALIGN_CORNERS = 0, 1, 2
FLOOR, HALF_DOWN, HALF_UP, CEIL = 0, 1, 2, 3

OP = Op(
    "resize",
    id=18,
    summary="y[i,j,c] = x at the positions p(i), p(j): the nearest value, or bilinear between the two on each axis",
    attrs=(
        Attr("size", "u32", 1, (1 << 30) - 1, count=2, doc="height and width of y"),
        Attr("mode", "u8", 0, 1, 0, doc="0 nearest, 1 bilinear"),
        Attr("coordinates", "u8", 0, 2, 0, doc="0 half_pixel, 1 asymmetric, 2 align_corners"),
        Attr("rounding", "u8", 0, 3, 0, doc="of p, for nearest: 0 down, 1 halves down, 2 halves up, 3 up"),
    ),
    imported=True,
    tolerance=(1e-6, 1e-6),
    int8=("same",),
)


def out_shape(a, x):
    H, W, C = image(x, "resize")
    if max(H, W, *a.size) > 65535:
        raise ShapeError(f"resize takes sides of at most 65535, not {max(H, W, *a.size)}")
    return (*a.size, C)


def macs(a, x, y):
    return 0


def positions(a, n, m):
    """(numerators, denominator) of p, for each target."""
    i = np.arange(m, dtype=np.int64)
    if a.coordinates == HALF_PIXEL:
        return (2 * i + 1) * n - m, 2 * m
    if a.coordinates == ASYMMETRIC:
        return i * n, m
    return i * (n - 1), max(m - 1, 1)


def taps(a, n, m):
    """(j, k, f) for each target: the source positions it mixes, and the share of k."""
    p, d = positions(a, n, m)
    if a.mode == NEAREST:
        j = {FLOOR: p // d, HALF_DOWN: -((d - 2 * p) // (2 * d)), HALF_UP: (2 * p + d) // (2 * d), CEIL: -(-p // d)}
        near = np.clip(j[a.rounding], 0, n - 1)
        return near, near, np.zeros(m)
    p = np.clip(p, 0, (n - 1) * d)
    j = p // d
    return j, np.minimum(j + 1, n - 1), (p % d) / d


def forward(a, x):  # (N,H,W,C) -> (N,Ho,Wo,C)
    for axis, m in ((1, a.size[0]), (2, a.size[1])):
        j, k, f = taps(a, x.shape[axis], m)
        near, f = np.take(x, j, axis), f.astype(x.dtype).reshape(-1, *[1] * (3 - axis))
        x = near if a.mode == NEAREST else near * (1 - f) + np.take(x, k, axis) * f
    return x


def backward(a, dy, x_shape):
    for axis, m in ((2, a.size[1]), (1, a.size[0])):
        j, k, f = taps(a, x_shape[axis], m)
        moved = np.moveaxis(dy, axis, 0)
        f = f.astype(dy.dtype).reshape(-1, 1, 1, 1)
        dx = np.zeros((x_shape[axis], *moved.shape[1:]), dy.dtype)
        np.add.at(dx, j, moved * (1 - f))
        np.add.at(dx, k, moved * f)
        dy = np.moveaxis(dx, 0, axis)
    return {"x": dy}


CASES = [
    {"size": 1, "x": (1, 1, 1)},
    {"size": [4, 6], "mode": 0, "coordinates": 1, "x": (2, 3, 5)},
    {"size": [3, 9], "mode": 0, "rounding": 1, "x": (5, 4, 16)},
    {"size": [7, 2], "mode": 0, "rounding": 2, "coordinates": 2, "x": (3, 5, 3)},
    {"size": [5, 5], "mode": 0, "rounding": 3, "coordinates": 1, "x": (3, 4, 2)},
    {"size": [8, 6], "mode": 1, "x": (4, 3, 17)},
    {"size": [3, 7], "mode": 1, "coordinates": 1, "x": (5, 4, 3)},
    {"size": [5, 9], "mode": 1, "coordinates": 2, "x": (3, 5, 1)},
    {"size": [1, 1], "mode": 1, "coordinates": 2, "x": (4, 4, 16)},
]
