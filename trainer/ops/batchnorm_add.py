"""batchnorm_add: a batchnorm and the sum behind it, where a residual path joins: y = act(batchnorm(x) + x2).

Made by fuse.py from a batchnorm and an add; the sum costs no pass over memory of its own.
"""

from . import activations as act
from . import batchnorm
from .spec import Op

OP = Op(
    "batchnorm_add",
    id=-2,
    summary="y[..,c] = act(x[..,c] * scale[c] + shift[c] + x2[..,c]), scale and shift as batchnorm has them",
    attrs=batchnorm.OP.attrs,
    inputs=("x", "x2"),
    weights=batchnorm.OP.weights,
    aux=batchnorm.OP.aux,
    activation=True,
    inplace=("x", "x2"),
    backward_inplace=True,
    fused=True,
)


def out_shape(a, x, x2):
    return x  # the graph has checked that both shapes are equal


def macs(a, x, y):
    return batchnorm.macs(a, x, y)


def forward(a, x, x2, gamma, beta, running_mean, running_var):
    h = batchnorm.scaled(a, x, gamma, beta, running_mean, running_var)
    return act.apply(a.activation, h + x2, a.alpha)


def forward_train(a, x, x2, gamma, beta, running_mean, running_var):
    aux = batchnorm.statistics(a, x, running_mean, running_var)
    return forward_again(a, x, x2, gamma, beta, aux["mean"], aux["inv_std"]), aux


def forward_again(a, x, x2, gamma, beta, mean, inv_std):
    return act.apply(a.activation, batchnorm.normalised(x, gamma, beta, mean, inv_std) + x2, a.alpha)


def backward(a, dy, x, gamma, mean, inv_std, y):
    """Both inputs see the same dh; x2 gets it as it is. y is read where batchnorm alone needs none: x2 is gone."""
    dh = act.backward_from_output(a.activation, dy, y, a.alpha)
    return {"x2": dh} | batchnorm.gradients(dh, x, gamma, mean, inv_std)


CASES = [
    {"x": (1,)},
    {"x": (3, 4, 17), "activation": "relu"},
    {"x": (2, 2, 4), "activation": "leaky_relu", "alpha": 0.3},
    {"x": (2, 3, 5), "activation": "tanh"},
]
