"""activation: an activation on its own, where no operator before it can carry it."""

from . import activations as act
from .spec import Op

OP = Op(
    "activation",
    id=14,
    summary="y = act(x)",
    activation=True,
    inplace=("x",),
    backward_inplace=True,
    int8=(),
    int8_layout="table",
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return 0


def forward(a, x):
    return act.apply(a.activation, x, a.alpha)


def needs(a):
    """What backward reads: relu and the like keep y, so that it may overwrite x; gelu and the like keep x."""
    return {"y"} if a.activation in act.FROM_OUTPUT else {"x"}


def backward(a, dy, x, y):
    if a.activation in act.FROM_OUTPUT:
        return {"x": act.backward_from_output(a.activation, dy, y, a.alpha)}
    return {"x": act.backward_from_input(a.activation, dy, x)}


CASES = [{"x": (17,), "activation": name} for name in act.IDS] + [
    {"x": (3, 5, 7), "activation": "relu"},
    {"x": (5,), "activation": "leaky_relu", "alpha": 0.5},
]
