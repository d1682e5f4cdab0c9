"""embed_projection: project all pixels of an image to `embed_dim` numbers, with one weight matrix for all channels.

keep_channels 0 sums the channels (so the net sees grey); 1 keeps each channel's projection apart, [c][e].
"""

import numpy as np

from . import activations as act
from .spec import Attr, Op, Weight, image

OP = Op(
    "embed_projection",
    id=13,
    summary="y[e] = act(sum_c sum_p x[p,c] w[p,e]); with keep_channels y[c*E+e] = act(sum_p x[p,c] w[p,e]), p = i*W+j",
    attrs=(
        Attr("embed_dim", "u32", 1, 1 << 20, doc="E, numbers a projection gives"),
        Attr("keep_channels", "u8", 0, 1, 0, doc="1: one projection a channel instead of their sum"),
    ),
    weights=(
        Weight(
            "weight",
            lambda a, x: (x[0] * x[1], a.embed_dim),
            fans=lambda a, x: (x[0] * x[1] * (1 if a.keep_channels else x[2]), a.embed_dim),
            decay=True,
        ),
    ),
    activation=True,
    layout="panels",
    int8=("bounds", "fine"),
    int8_layout="panels8",
)


def out_shape(a, x):
    C = image(x, "embed_projection")[2]
    return (a.embed_dim * (C if a.keep_channels else 1),)


def macs(a, x, y):
    return int(np.prod(x[:2])) * int(np.prod(y))


def pixel_rows(a, x):
    """(N,C,P), or (N,1,P) with the channels summed."""
    flat = x.reshape(len(x), -1, x.shape[-1])
    return flat.transpose(0, 2, 1) if a.keep_channels else flat.sum(-1)[:, None]


def forward(a, x, weight):  # x (N,H,W,C)  weight (H*W,E)  ->  (N,E) or (N,C*E)
    return act.apply(a.activation, (pixel_rows(a, x) @ weight).reshape(len(x), -1), a.alpha)


def backward(a, dy, x, weight, y):
    dh = act.backward_from_output(a.activation, dy, y, a.alpha).reshape(len(x), -1, a.embed_dim)
    rows = pixel_rows(a, x)
    dw = rows.reshape(-1, rows.shape[-1]).T @ dh.reshape(-1, a.embed_dim)
    dpixels = (dh @ weight.T).transpose(0, 2, 1)  # (N,P,C), or (N,P,1) for all channels alike
    dx = np.broadcast_to(dpixels, (len(x), rows.shape[-1], x.shape[-1]))
    return {"x": dx.reshape(x.shape), "weight": dw}


CASES = [
    {"embed_dim": 1, "x": (1, 1, 1)},
    {"embed_dim": 8, "x": (3, 4, 3)},
    {"embed_dim": 17, "x": (2, 3, 3), "keep_channels": 1},
    {"embed_dim": 16, "x": (4, 4, 2), "activation": "relu"},
]
