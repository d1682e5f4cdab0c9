"""dropout: in training, set a share of the values to 0 and scale the rest up; absent at inference.

The mask is a function of (seed, step, node, position), so backward draws it again: nothing is stored.
"""

from .spec import Attr, Op

OP = Op(
    "dropout",
    id=11,
    summary="y = x at inference; in training y = x * keep / (1 - rate), keep = 1 with probability 1 - rate",
    attrs=(Attr("rate", "f32", 0.0, 0.99, 0.5, record=False, doc="share of the values set to 0"),),
    inplace=("x",),
    backward_inplace=True,
    training_only=True,
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return 0


def forward(a, x):
    return x


def _scale(a, shape, dtype, rng):
    return (rng.uniform(shape) >= a.rate) * dtype.type(1 / (1 - a.rate))


def forward_train(a, x, rng):
    return x * _scale(a, x.shape, x.dtype, rng), {}


def backward(a, dy, rng):
    return {"x": dy * _scale(a, dy.shape, dy.dtype, rng)}


CASES = [{"x": (5,)}, {"x": (3, 4, 5), "rate": 0.25}, {"x": (4,), "rate": 0.0}]
