"""maxpool2d: keep the largest value each window sees; training remembers which tap it was, in one byte."""

import numpy as np

from .spec import Aux, Op, ShapeError, image
from .windows import KERNEL, PADDING, POOL_STRIDE, pad, pool_shape, taps, unpad

OP = Op(
    "maxpool2d",
    id=4,
    summary="y[i,j,c] = max_uv x[i*s+u-top, j*s+v-left, c] over the taps inside the image",
    attrs=(KERNEL, POOL_STRIDE, PADDING),
    aux=(Aux("index", "u8", lambda a, x, y: y),),
    tolerance=(0.0, 0.0),
    int8=("same",),
)


def out_shape(a, x):
    shape = pool_shape(a, image(x, "maxpool2d"))
    if a.kernel_size[0] * a.kernel_size[1] > 256:
        raise ShapeError(f"maxpool2d takes windows of at most 256 taps, not {a.kernel_size[0]} x {a.kernel_size[1]}")
    return shape


def macs(a, x, y):
    return 0


def forward(a, x):  # (N,H,W,C) -> (N,Ho,Wo,C)
    Ho, Wo, _ = out_shape(a, x.shape[1:])
    y = None
    for _u, _v, seen in taps(a, pad(x, a.padding, -np.inf), Ho, Wo):
        y = seen.copy() if y is None else np.maximum(y, seen, out=y)
    return y


def forward_train(a, x):
    """Also the winning tap u*kw+v of each window; among equal values the first in row order wins."""
    Ho, Wo, C = out_shape(a, x.shape[1:])
    y, index = None, np.zeros((len(x), Ho, Wo, C), np.uint8)
    for u, v, seen in taps(a, pad(x, a.padding, -np.inf), Ho, Wo):
        if y is None:
            y = seen.copy()
            continue
        index[seen > y] = u * a.kernel_size[1] + v
        np.maximum(y, seen, out=y)
    return y, {"index": index}


def backward(a, dy, index, x_shape):
    """dx[winner of each window] += dy."""
    H, W = x_shape[1:3]
    dxp = np.zeros(
        (len(dy), H + a.padding[0] + a.padding[2], W + a.padding[1] + a.padding[3], dy.shape[-1]), dy.dtype
    )
    for u, v, seen in taps(a, dxp, *dy.shape[1:3]):
        seen += dy * (index == u * a.kernel_size[1] + v)
    return {"x": unpad(dxp, a.padding, H, W)}


CASES = [
    {"kernel_size": 1, "x": (1, 1, 1)},
    {"kernel_size": 2, "stride": 2, "x": (4, 6, 3)},
    {"kernel_size": 3, "stride": 2, "x": (7, 5, 17)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "x": (6, 7, 16)},
    {"kernel_size": [2, 3], "stride": [1, 2], "padding": [0, 1, 1, 0], "x": (3, 5, 5)},
]
