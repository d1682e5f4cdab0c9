"""conv2d: slide a kernel over an image; each output channel is one weighted sum of what the window sees."""

import numpy as np

from . import activations as act
from .spec import BIAS, Attr, Op, ShapeError, Weight, image
from .windows import DILATION, KERNEL, PADDING, STRIDE, out_hw, pad, taps, unpad

OP = Op(
    "conv2d",
    id=2,
    summary="y[i,j,o] = act(b[o] + sum_uvc x[i*s+u*d-top, j*s+v*d-left, c] w[o,u,v,c]), zero outside the image",
    attrs=(
        Attr("out_channels", "u32", 1, 1 << 20, record=False, doc="channels of y"),
        KERNEL,
        STRIDE,
        PADDING,
        DILATION,
        Attr("groups", "u16", 1, 65535, 1, doc="blocks of channels that do not see each other"),
        BIAS,
    ),
    weights=(
        Weight(
            "weight",
            lambda a, x: (a.out_channels, *a.kernel_size, x[-1] // a.groups),
            fans=lambda a, x: (
                a.kernel_size[0] * a.kernel_size[1] * (x[-1] // a.groups),
                a.kernel_size[0] * a.kernel_size[1] * (a.out_channels // a.groups),
            ),
            decay=True,
        ),
        Weight("bias", lambda a, x: (a.out_channels,), init="zeros", needs="bias"),
    ),
    activation=True,
    layout="panels",
    inferred=(("in_channels", -1),),
    int8=("bounds", "fine"),
    int8_layout="panels8",
)


def out_shape(a, x):
    H, W, C = image(x, "conv2d")
    if C % a.groups or a.out_channels % a.groups:
        raise ShapeError(
            f"groups {a.groups} must divide both the {C} input and the {a.out_channels} output channels"
        )
    return (*out_hw(a, H, W, a.dilation), a.out_channels)


def macs(a, x, y):
    return int(np.prod(y)) * a.kernel_size[0] * a.kernel_size[1] * (x[-1] // a.groups)


BLOCK = 1 << 18  # values of a block of columns: 1 MB of float32, so that it stays in the cache


def blocks(a, N, Ho, Wo, C):
    """Slices of a few samples each, whose columns are at most BLOCK values where one sample allows it."""
    size = Ho * Wo * a.kernel_size[0] * a.kernel_size[1] * C
    step = max(1, BLOCK // size)
    return [slice(n, min(n + step, N)) for n in range(0, N, step)]


def columns(a, padded, Ho, Wo):
    """What each window sees, (groups, N*Ho*Wo, kh*kw*C/groups): the rows that multiply the kernel."""
    N, _, _, C = padded.shape
    cols = np.empty((a.groups, N, Ho, Wo, *a.kernel_size, C // a.groups), padded.dtype)
    for u, v, seen in taps(a, padded, Ho, Wo, a.dilation):
        cols[:, :, :, :, u, v] = np.moveaxis(seen.reshape(N, Ho, Wo, a.groups, -1), 3, 0)
    return cols.reshape(a.groups, N * Ho * Wo, -1)


def forward(a, x, weight, bias):  # x (N,H,W,C)  weight (O,kh,kw,C/groups)  ->  (N,Ho,Wo,O)
    Ho, Wo, O = out_shape(a, x.shape[1:])
    w = weight.reshape(a.groups, O // a.groups, -1)
    padded = pad(x, a.padding)
    y = np.empty((len(x), Ho, Wo, O), x.dtype)
    for some in blocks(a, len(x), Ho, Wo, x.shape[-1]):
        h = columns(a, padded[some], Ho, Wo) @ w.transpose(0, 2, 1)  # (groups, rows, O/groups)
        h = h.transpose(1, 0, 2).reshape(-1, O)
        if bias is not None:
            h += bias
        y[some] = act.apply(a.activation, h, a.alpha).reshape(-1, Ho, Wo, O)
    return y


def backward(a, dy, x, weight, y, want):
    """dw = dh^T columns(x); dx scatters dh w back to where each tap had looked. `want`: the gradients asked for."""
    (_, H, W, C), (Ho, Wo, O), G = x.shape, dy.shape[1:], a.groups
    w = weight.reshape(G, O // G, -1)
    padded, dw, db = pad(x, a.padding), np.zeros_like(w), np.zeros(O, w.dtype)
    dpadded = np.zeros_like(padded) if "x" in want else None
    for some in blocks(a, len(x), Ho, Wo, C):
        dh = act.backward_from_output(a.activation, dy[some], (dy if y is None else y)[some], a.alpha)
        dh = dh.reshape(-1, G, O // G).transpose(1, 0, 2)  # (groups, rows, O/groups)
        cols = columns(a, padded[some], Ho, Wo)
        dw += dh.transpose(0, 2, 1) @ cols
        db += dh.sum(1).reshape(-1)
        if dpadded is None:
            continue
        dcols = np.matmul(dh, w, out=cols).reshape(G, -1, Ho, Wo, *a.kernel_size, C // G)
        for u, v, seen in taps(a, dpadded[some], Ho, Wo, a.dilation):
            seen += np.moveaxis(dcols[:, :, :, :, u, v], 0, 3).reshape(seen.shape)
    grads = {"weight": dw.reshape(weight.shape), "bias": db}
    return grads if dpadded is None else grads | {"x": unpad(dpadded, a.padding, H, W)}


CASES = [
    {"out_channels": 1, "kernel_size": 1, "x": (1, 1, 1)},
    {"out_channels": 8, "kernel_size": 3, "padding": 1, "x": (5, 6, 1), "activation": "relu"},
    {"out_channels": 16, "kernel_size": 3, "x": (5, 4, 3), "activation": "relu6"},
    {"out_channels": 17, "kernel_size": 3, "stride": 2, "padding": [0, 1, 1, 0], "x": (7, 5, 2)},
    {"out_channels": 5, "kernel_size": [1, 3], "dilation": 2, "padding": 2, "x": (4, 9, 4), "bias": 0},
    {"out_channels": 6, "kernel_size": 3, "padding": 1, "groups": 2, "x": (4, 4, 4), "activation": "tanh"},
    {"out_channels": 34, "kernel_size": 2, "stride": [1, 2], "groups": 2, "x": (3, 5, 6)},
    {"out_channels": 33, "kernel_size": 1, "x": (3, 3, 16), "activation": "leaky_relu"},
    {"out_channels": 4, "kernel_size": 5, "stride": 3, "padding": 2, "dilation": [2, 1], "x": (9, 8, 3)},
    {"out_channels": 9, "kernel_size": 3, "padding": 1, "x": (4, 4, 5), "activation": "hard_swish"},
]
