"""mul: the product of two tensors, or of a tensor with one factor for each channel."""

from .spec import Op, ShapeError, shape_text

OP = Op(
    "mul",
    id=16,
    summary="y = x x2, or y[..,c] = x[..,c] x2[c] where x2 is a row",
    inputs=("x", "x2"),
    inplace=("x", "x2"),
    imported=True,
    int8=("bounds", "requant"),
)


def out_shape(a, x, x2):
    if x2 not in (x, x[-1:]):
        raise ShapeError(f"mul needs two tensors of one shape, or a row of {x[-1]} factors, not {shape_text(x2)}")
    return x


def macs(a, x, y):
    return 0


def over(x, x2):
    """x2 (N,C) beside x (N,..,C)."""
    return x2 if x2.ndim == x.ndim else x2.reshape(len(x2), *[1] * (x.ndim - 2), -1)


def forward(a, x, x2):
    return x * over(x, x2)


def backward(a, dy, x, x2):
    dx2 = dy * x
    if x2.ndim != x.ndim:
        dx2 = dx2.sum(tuple(range(1, x.ndim - 1)))
    return {"x": dy * over(x, x2), "x2": dx2}


CASES = [{"x": (1,)}, {"x": (17,)}, {"x": (3, 16)}, {"x": (4, 3, 5)}]
