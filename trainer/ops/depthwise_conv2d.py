"""depthwise_conv2d: one small kernel for each channel; channels never mix."""

import numpy as np

from . import activations as act
from .spec import BIAS, Op, Weight, image
from .windows import DILATION, KERNEL, PADDING, STRIDE, out_hw, pad, taps, unpad

OP = Op(
    "depthwise_conv2d",
    id=3,
    summary="y[i,j,c] = act(b[c] + sum_uv x[i*s+u*d-top, j*s+v*d-left, c] w[u,v,c]), zero outside the image",
    attrs=(KERNEL, STRIDE, PADDING, DILATION, BIAS),
    weights=(
        Weight(
            "weight",
            lambda a, x: (*a.kernel_size, x[-1]),
            fans=lambda a, x: (a.kernel_size[0] * a.kernel_size[1],) * 2,
            decay=True,
        ),
        Weight("bias", lambda a, x: (x[-1],), init="zeros", needs="bias"),
    ),
    activation=True,
    layout="depthwise",
    inferred=(("in_channels", -1), ("out_channels", -1)),
    int8=("bounds", "fine"),
    int8_layout="depthwise8",
)


def out_shape(a, x):
    H, W, C = image(x, "depthwise_conv2d")
    return (*out_hw(a, H, W, a.dilation), C)


def macs(a, x, y):
    return int(np.prod(y)) * a.kernel_size[0] * a.kernel_size[1]


def forward(a, x, weight, bias):  # x (N,H,W,C)  weight (kh,kw,C)  ->  (N,Ho,Wo,C)
    Ho, Wo, C = out_shape(a, x.shape[1:])
    h = np.zeros((len(x), Ho, Wo, C), x.dtype)
    for u, v, seen in taps(a, pad(x, a.padding), Ho, Wo, a.dilation):
        h += seen * weight[u, v]
    if bias is not None:
        h += bias
    return act.apply(a.activation, h, a.alpha)


def backward(a, dy, x, weight, y):
    (H, W), (Ho, Wo) = x.shape[1:3], dy.shape[1:3]
    dh = act.backward_from_output(a.activation, dy, y, a.alpha)
    xp = pad(x, a.padding)
    dxp, dw = np.zeros_like(xp), np.empty_like(weight)
    sees = zip(taps(a, xp, Ho, Wo, a.dilation), taps(a, dxp, Ho, Wo, a.dilation), strict=True)
    for (u, v, seen), (_, _, dseen) in sees:
        dw[u, v] = (seen * dh).sum((0, 1, 2))
        dseen += dh * weight[u, v]
    return {"x": unpad(dxp, a.padding, H, W), "weight": dw, "bias": dh.sum((0, 1, 2))}


CASES = [
    {"kernel_size": 1, "x": (1, 1, 1)},
    {"kernel_size": 3, "padding": 1, "x": (5, 6, 7), "activation": "relu"},
    {"kernel_size": 3, "stride": 2, "padding": [0, 0, 1, 1], "x": (6, 6, 16), "activation": "relu6"},
    {"kernel_size": [5, 3], "padding": [2, 1, 2, 1], "x": (5, 4, 17), "bias": 0},
    {"kernel_size": 3, "dilation": 2, "padding": 2, "x": (6, 5, 33), "activation": "tanh"},
    {"kernel_size": 3, "padding": 1, "x": (4, 4, 5), "activation": "silu"},
]
