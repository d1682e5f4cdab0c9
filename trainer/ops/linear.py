"""linear: y = activation(x W^T + b), one output for each row of W."""

import numpy as np

from . import activations as act
from .spec import BIAS, Attr, Op, ShapeError, Weight, shape_text

OP = Op(
    "linear",
    id=1,
    summary="y[o] = act(b[o] + sum_i x[i] w[o,i])",
    attrs=(Attr("out_features", "u32", 1, 1 << 24, record=False, doc="length of y's last axis"), BIAS),
    weights=(
        Weight("weight", lambda a, x: (a.out_features, x[-1]), fans=lambda a, x: (x[-1], a.out_features), decay=True),
        Weight("bias", lambda a, x: (a.out_features,), init="zeros", needs="bias"),
    ),
    activation=True,
    layout="panels",
    inferred=(("in_features", -1),),
    int8=("bounds", "fine"),
    int8_layout="panels8",
)


def out_shape(a, x):
    if len(x) > 2:
        raise ShapeError(
            f"linear needs a row of values, but its input is {shape_text(x)}.\n"
            "Put a flatten or a global_avg_pool before it."
        )
    return (*x[:-1], a.out_features)


def macs(a, x, y):
    return int(np.prod(x)) * a.out_features


def forward(a, x, weight, bias):  # x (N,...,I)  weight (O,I)  bias (O)  ->  (N,...,O)
    h = x @ weight.T
    if bias is not None:
        h += bias
    return act.apply(a.activation, h, a.alpha)


def backward(a, dy, x, weight, y):
    dh = act.backward_from_output(a.activation, dy, y, a.alpha)
    rows, cols = dh.reshape(-1, dh.shape[-1]), x.reshape(-1, x.shape[-1])
    return {"x": dh @ weight, "weight": rows.T @ cols, "bias": rows.sum(0)}


CASES = [
    {"out_features": 1, "x": (1,)},
    {"out_features": 10, "x": (17,), "activation": "relu"},
    {"out_features": 16, "x": (16,), "activation": "tanh"},
    {"out_features": 17, "x": (33,), "bias": 0},
    {"out_features": 37, "x": (65,), "activation": "leaky_relu", "alpha": 0.2},
    {"out_features": 5, "x": (3, 7), "activation": "sigmoid"},
    {"out_features": 20, "x": (9,), "activation": "relu6"},
    {"out_features": 19, "x": (21,), "activation": "gelu"},
    {"out_features": 19, "x": (21,), "activation": "gelu_tanh"},
    {"out_features": 19, "x": (21,), "activation": "silu"},
    {"out_features": 19, "x": (21,), "activation": "hard_swish"},
]
