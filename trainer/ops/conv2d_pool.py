"""conv2d_pool: a conv2d and the 2 x 2 maxpool2d behind it as one, so that the image between them never exists.

No blueprint and no file has it: fuse.py makes it from the two where a device trains. The activation comes after the
maximum, which is the same since none that may be fused here decreases; y then also tells the winner's derivative.
"""

from . import activations as act
from . import conv2d, maxpool2d
from .spec import Attrs, Aux, Op, ShapeError

OP = Op(
    "conv2d_pool",
    id=-1,
    summary="y[i,j,o] = act(max_uv of conv2d's sum at [2i+u, 2j+v, o]), u, v < 2; a last odd row or column is left out",
    attrs=conv2d.OP.attrs,
    weights=conv2d.OP.weights,
    aux=(Aux("index", "u8", lambda a, x, y: y),),
    activation=True,
    inferred=conv2d.OP.inferred,
    fused=True,
)
POOL = Attrs(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0), activation="none")


def _sum(a):
    """The convolution's attributes without its activation."""
    return Attrs(**(vars(a) | {"activation": "none"}))


def out_shape(a, x):
    shape = conv2d.out_shape(a, x)
    if min(shape[:2]) < 2:
        raise ShapeError(f"conv2d_pool needs at least 2 x 2 sums, not {shape[0]} x {shape[1]}")
    return maxpool2d.out_shape(POOL, shape)


def macs(a, x, y):
    return conv2d.macs(a, x, (2 * y[0], 2 * y[1], y[2]))


def forward(a, x, weight, bias):  # x (N,H,W,C)  weight (O,kh,kw,C/groups)  ->  (N,Ho/2,Wo/2,O)
    return act.apply(a.activation, maxpool2d.forward(POOL, conv2d.forward(_sum(a), x, weight, bias)), a.alpha)


def forward_train(a, x, weight, bias):
    """Also the winner 2u+v of each window; among equal sums the first in row order wins."""
    y, aux = maxpool2d.forward_train(POOL, conv2d.forward(_sum(a), x, weight, bias))
    return act.apply(a.activation, y, a.alpha), aux


def backward(a, dy, x, weight, y, index, want):
    """The gradient of a window's sums is dy * act'(y) at the winner, 0 elsewhere."""
    shape = (len(x), *conv2d.out_shape(a, x.shape[1:]))
    dh = act.backward_from_output(a.activation, dy, dy if y is None else y, a.alpha)
    return conv2d.backward(_sum(a), maxpool2d.backward(POOL, dh, index, shape)["x"], x, weight, None, want)


CASES = [
    {"out_channels": 1, "kernel_size": 1, "x": (2, 2, 1)},
    {"out_channels": 8, "kernel_size": 3, "padding": 1, "x": (4, 6, 3), "activation": "relu"},
    {"out_channels": 33, "kernel_size": 3, "padding": 1, "x": (6, 4, 5), "activation": "leaky_relu"},
    {"out_channels": 5, "kernel_size": [2, 3], "padding": [1, 0, 0, 1], "x": (5, 7, 4), "bias": 0},
    {"out_channels": 6, "kernel_size": 3, "stride": 2, "groups": 2, "x": (9, 8, 4), "activation": "tanh"},
]
