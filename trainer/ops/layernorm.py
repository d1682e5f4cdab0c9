"""layernorm: bring each row (the last axis) to mean 0 and variance 1, then scale and shift it."""

import numpy as np

from .spec import Attr, Aux, Op, Weight

OP = Op(
    "layernorm",
    id=10,
    summary="y[..,c] = gamma[c] * (x[..,c] - mean) / sqrt(var + eps) + beta[c], mean and var over c",
    attrs=(Attr("eps", "f32", 1e-12, 1.0, 1e-5, doc="added to the variance"),),
    weights=(
        Weight("gamma", lambda a, x: (x[-1],), init="ones"),
        Weight("beta", lambda a, x: (x[-1],), init="zeros"),
    ),
    aux=(
        Aux("mean", "f32", lambda a, x, y: (*x[:-1], 1)),
        Aux("inv_std", "f32", lambda a, x, y: (*x[:-1], 1)),
    ),
    inplace=("x",),
    backward_inplace=True,
    layout="vectors",
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return 2 * int(np.prod(x))


def forward(a, x, gamma, beta):
    return forward_train(a, x, gamma, beta)[0]


def forward_train(a, x, gamma, beta):
    mean = x.mean(-1, keepdims=True)
    inv_std = 1 / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(a.eps))
    return (x - mean) * inv_std * gamma + beta, {"mean": mean, "inv_std": inv_std}


def backward(a, dy, x, gamma, mean, inv_std):
    """With xh = (x-mean)*inv_std and g = dy*gamma: dx = inv_std * (g - mean(g) - xh * mean(g*xh))."""
    axes = tuple(range(x.ndim - 1))
    xh, g = (x - mean) * inv_std, dy * gamma
    dx = inv_std * (g - g.mean(-1, keepdims=True) - xh * (g * xh).mean(-1, keepdims=True))
    return {"x": dx, "gamma": (dy * xh).sum(axes), "beta": dy.sum(axes)}


CASES = [{"x": (2,)}, {"x": (7,)}, {"x": (17,), "eps": 1e-3}, {"x": (3, 16)}, {"x": (2, 3, 5)}, {"x": (64,)}]
