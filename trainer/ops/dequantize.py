"""dequantize: int8 as the real numbers they stand for. Here, where tensors have no scale, it is y = x."""

from .spec import Op

OP = Op(
    "dequantize",
    id=25,
    summary="y = scale (x - zero point): i8 to f32",
    imported=True,
    crosses=True,
    int8=(),
)


def out_shape(a, x):
    return x


def macs(a, x, y):
    return 0


def forward(a, x):
    return x


def backward(a, dy):
    return {"x": dy}


CASES: list[dict] = []  # tests/test_int8.py has them
