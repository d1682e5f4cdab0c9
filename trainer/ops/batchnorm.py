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
    int8=("bounds", "shift"),
    int8_layout="vectors8",
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return int(np.prod(x))


def forward(a, x, gamma, beta, running_mean, running_var):
    return act.apply(a.activation, scaled(a, x, gamma, beta, running_mean, running_var), a.alpha)


def scaled(a, x, gamma, beta, running_mean, running_var):
    scale = gamma / np.sqrt(running_var + x.dtype.type(a.eps))
    return x * scale + (beta - running_mean * scale)


def forward_train(a, x, gamma, beta, running_mean, running_var):
    aux = statistics(a, x, running_mean, running_var)
    return forward_again(a, x, gamma, beta, aux["mean"], aux["inv_std"]), aux


def statistics(a, x, running_mean, running_var):
    """Of this batch, and the running averages after it."""
    axes, m = tuple(range(x.ndim - 1)), x.dtype.type(a.momentum)
    count = x.size // x.shape[-1]
    mean, var = x.mean(axes), x.var(axes)
    unbiased = var * x.dtype.type(count / max(count - 1, 1))
    return {
        "mean": mean,
        "inv_std": 1 / np.sqrt(var + x.dtype.type(a.eps)),
        "running_mean": (1 - m) * running_mean + m * mean,
        "running_var": (1 - m) * running_var + m * unbiased,
    }


def forward_again(a, x, gamma, beta, mean, inv_std):
    return act.apply(a.activation, normalised(x, gamma, beta, mean, inv_std), a.alpha)


def normalised(x, gamma, beta, mean, inv_std):
    return (x - mean) * (inv_std * gamma) + beta


def backward(a, dy, x, gamma, beta, mean, inv_std):
    """y is computed again from x for the mask, so it need not be kept."""
    dh = dy
    if a.activation != "none":
        y = forward_again(a, x, gamma, beta, mean, inv_std)
        dh = act.backward_from_output(a.activation, dy, y, a.alpha)
    return gradients(dh, x, gamma, mean, inv_std)


def gradients(dh, x, gamma, mean, inv_std):
    """With xh = (x-mean)*inv_std: dx = gamma*inv_std * (dh - mean(dh) - xh * mean(dh*xh))."""
    axes = tuple(range(x.ndim - 1))
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
