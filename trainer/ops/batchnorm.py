"""batchnorm: bring each channel to mean 0 and variance 1 over the batch, then scale and shift it.

Training uses the batch's own mean and (biased) variance and keeps running averages of them; inference uses the
averages, so that it is y = x * scale + shift, which the exporter folds into the convolution before it.
"""

import numpy as np

from . import activations as act
from .spec import Attr, Aux, Op, Weight

OP = Op(
    "batchnorm",
    id=9,
    summary="y[..,c] = act(x[..,c] * scale[c] + shift[c]), scale = gamma/sqrt(var+eps), shift = beta - mean*scale",
    attrs=(
        Attr("eps", "f32", 1e-12, 1.0, 1e-5, record=False, doc="added to the variance"),
        Attr("momentum", "f32", 0.0, 1.0, 0.1, record=False, doc="share of the new batch in the running averages"),
    ),
    weights=(
        Weight("gamma", lambda a, x: (x[-1],), init="ones"),
        Weight("beta", lambda a, x: (x[-1],), init="zeros"),
        Weight("running_mean", lambda a, x: (x[-1],), init="zeros", trainable=False),
        Weight("running_var", lambda a, x: (x[-1],), init="ones", trainable=False),
    ),
    aux=(
        Aux("mean", "f32", lambda a, x, y: (x[-1],), batched=False),
        Aux("inv_std", "f32", lambda a, x, y: (x[-1],), batched=False),
    ),
    activation=True,
    inplace=("x",),
    backward_inplace=True,
    layout="vectors",
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return int(np.prod(x))


def forward(a, x, gamma, beta, running_mean, running_var):
    scale = gamma / np.sqrt(running_var + x.dtype.type(a.eps))
    return act.apply(a.activation, x * scale + (beta - running_mean * scale), a.alpha)


def forward_train(a, x, gamma, beta, running_mean, running_var):
    axes, m = tuple(range(x.ndim - 1)), x.dtype.type(a.momentum)
    count = x.size // x.shape[-1]
    mean, var = x.mean(axes), x.var(axes)
    inv_std = 1 / np.sqrt(var + x.dtype.type(a.eps))
    h = (x - mean) * (inv_std * gamma) + beta
    unbiased = var * x.dtype.type(count / max(count - 1, 1))
    return act.apply(a.activation, h, a.alpha), {
        "mean": mean,
        "inv_std": inv_std,
        "running_mean": (1 - m) * running_mean + m * mean,
        "running_var": (1 - m) * running_var + m * unbiased,
    }


def backward(a, dy, x, gamma, mean, inv_std, y):
    """With xh = (x-mean)*inv_std: dx = gamma*inv_std * (dh - mean(dh) - xh * mean(dh*xh))."""
    axes = tuple(range(x.ndim - 1))
    dh = act.backward_from_output(a.activation, dy, y, a.alpha)
    xh = (x - mean) * inv_std
    dgamma, dbeta, count = (dh * xh).sum(axes), dh.sum(axes), x.dtype.type(x.size // x.shape[-1])
    dx = gamma * inv_std * (dh - dbeta / count - xh * (dgamma / count))
    return {"x": dx, "gamma": dgamma, "beta": dbeta}


CASES = [
    {"x": (1,)},
    {"x": (7,), "activation": "relu"},
    {"x": (3, 4, 17)},
    {"x": (5, 3, 16), "activation": "relu6"},
    {"x": (2, 2, 3), "activation": "leaky_relu", "alpha": 0.3},
    {"x": (2, 3, 5), "activation": "silu"},
]
