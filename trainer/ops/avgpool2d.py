"""avgpool2d: the mean of what each window sees."""

import numpy as np

from .spec import Attr, Op, image
from .windows import KERNEL, PADDING, POOL_STRIDE, pad, pool_shape, taps, unpad

OP = Op(
    "avgpool2d",
    id=5,
    summary="y[i,j,c] = mean_uv x[i*s+u-top, j*s+v-left, c]",
    attrs=(
        KERNEL,
        POOL_STRIDE,
        PADDING,
        Attr("count_include_pad", "u8", 0, 1, 1, doc="1: divide by all taps; 0: by the taps inside the image"),
    ),
    int8=("same",),
)


def out_shape(a, x):
    return pool_shape(a, image(x, "avgpool2d"))


def macs(a, x, y):
    return 0


def counts(a, H, W, Ho, Wo, dtype):
    """The divisor of each window, (1,Ho,Wo,1)."""
    if a.count_include_pad:
        return np.full((1, 1, 1, 1), a.kernel_size[0] * a.kernel_size[1], dtype)
    ones = pad(np.ones((1, H, W, 1), dtype), a.padding)
    return sum(seen for _, _, seen in taps(a, ones, Ho, Wo))


def forward(a, x):  # (N,H,W,C) -> (N,Ho,Wo,C)
    (N, H, W, C), (Ho, Wo, _) = x.shape, out_shape(a, x.shape[1:])
    y = np.zeros((N, Ho, Wo, C), x.dtype)
    for _u, _v, seen in taps(a, pad(x, a.padding), Ho, Wo):
        y += seen
    return y / counts(a, H, W, Ho, Wo, x.dtype)


def backward(a, dy, x_shape):
    (N, H, W, C), (Ho, Wo) = x_shape, dy.shape[1:3]
    share = dy / counts(a, H, W, Ho, Wo, dy.dtype)
    dxp = np.zeros((N, H + a.padding[0] + a.padding[2], W + a.padding[1] + a.padding[3], C), dy.dtype)
    for _u, _v, seen in taps(a, dxp, Ho, Wo):
        seen += share
    return {"x": unpad(dxp, a.padding, H, W)}


CASES = [
    {"kernel_size": 1, "x": (1, 1, 1)},
    {"kernel_size": 2, "stride": 2, "x": (4, 6, 3)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "x": (6, 7, 17)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": 0, "x": (6, 7, 16)},
    {"kernel_size": [2, 3], "padding": [0, 1, 1, 0], "count_include_pad": 0, "x": (3, 5, 5)},
]
