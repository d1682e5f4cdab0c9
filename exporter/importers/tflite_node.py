"""A node of a TFLite model, the names of its operators, and what is calculated where all inputs are constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .builder import Value
from .foreign import Place
from .tables import Table

BUILTIN = {
    0: "ADD", 1: "AVERAGE_POOL_2D", 2: "CONCATENATION", 3: "CONV_2D", 4: "DEPTHWISE_CONV_2D", 5: "DEPTH_TO_SPACE",
    6: "DEQUANTIZE", 8: "FLOOR", 9: "FULLY_CONNECTED", 11: "L2_NORMALIZATION", 12: "L2_POOL_2D",
    13: "LOCAL_RESPONSE_NORMALIZATION", 14: "LOGISTIC", 16: "LSTM", 17: "MAX_POOL_2D", 18: "MUL", 19: "RELU",
    20: "RELU_N1_TO_1", 21: "RELU6", 22: "RESHAPE", 23: "RESIZE_BILINEAR", 24: "RNN", 25: "SOFTMAX",
    26: "SPACE_TO_DEPTH", 27: "SVDF", 28: "TANH", 34: "PAD", 36: "GATHER", 37: "BATCH_TO_SPACE_ND",
    38: "SPACE_TO_BATCH_ND", 39: "TRANSPOSE", 40: "MEAN", 41: "SUB", 42: "DIV", 43: "SQUEEZE",
    44: "UNIDIRECTIONAL_SEQUENCE_LSTM", 45: "STRIDED_SLICE", 47: "EXP", 48: "TOPK_V2", 49: "SPLIT", 50: "LOG_SOFTMAX",
    53: "CAST", 54: "PRELU", 55: "MAXIMUM", 56: "ARG_MAX", 57: "MINIMUM", 59: "NEG", 60: "PADV2", 65: "SLICE",
    67: "TRANSPOSE_CONV", 69: "TILE", 70: "EXPAND_DIMS", 74: "SUM", 75: "SQRT", 76: "RSQRT", 77: "SHAPE", 78: "POW",
    80: "FAKE_QUANT", 81: "REDUCE_PROD", 82: "REDUCE_MAX", 83: "PACK", 88: "UNPACK", 92: "SQUARE", 94: "FILL",
    96: "RANGE", 97: "RESIZE_NEAREST_NEIGHBOR", 98: "LEAKY_RELU", 99: "SQUARED_DIFFERENCE", 100: "MIRROR_PAD",
    101: "ABS", 102: "SPLIT_V", 111: "ELU", 114: "QUANTIZE", 117: "HARD_SWISH", 118: "IF", 119: "WHILE",
    126: "BATCH_MATMUL", 130: "BROADCAST_TO", 150: "GELU",
}  # fmt: skip


@dataclass(frozen=True)
class TfliteNode:
    """A node with its inputs looked up: values, constants, or None where one is left out."""

    place: Place
    op: str
    inputs: list[Any]
    options: Table
    outputs: int

    def value(self, i: int = 0) -> Value:
        v = self.inputs[i] if i < len(self.inputs) else None
        if not isinstance(v, Value):
            self.place.refuse(f"its input {i} is a constant; a value that hangs on the model's input is expected")
        return v

    def constant(self, i: int, what: str) -> np.ndarray:
        v = self.optional(i, what)
        if v is None:
            self.place.refuse(f"its input {i} ({what}) is missing")
        return v

    def optional(self, i: int, what: str) -> np.ndarray | None:
        v = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(v, Value):
            self.place.refuse(
                f"its input {i} ({what}) is calculated while the net runs", "Only constants can stand there."
            )
        return v

    def ints(self, i: int, what: str) -> list[int]:
        return [int(k) for k in self.constant(i, what).reshape(-1)]

    def axis(self, i: int, what: str = "axis") -> int:
        return self.ints(i, what)[0]


def strided(shape: tuple[int, ...], n: TfliteNode) -> tuple[Any, ...]:
    """The index of a STRIDED_SLICE."""
    begin, end, step = n.ints(1, "begin"), n.ints(2, "end"), n.ints(3, "strides")
    masks = [n.options.whole(k) for k in range(5)]
    if masks[2] or masks[3]:
        n.place.refuse("it has an ellipsis or new axes")
    index: list[Any] = []
    for k in range(len(begin)):
        if masks[4] >> k & 1:
            index.append(begin[k])
            continue
        first = None if masks[0] >> k & 1 else begin[k]
        last = None if masks[1] >> k & 1 else end[k]
        index.append(slice(first, last, step[k]))
    return tuple(index)


CALCULATED: dict[str, Callable[[TfliteNode], Any]] = {
    "STRIDED_SLICE": lambda n: n.inputs[0][strided(n.inputs[0].shape, n)],
    "PACK": lambda n: np.stack(n.inputs, n.options.whole(1)),
    "CONCATENATION": lambda n: np.concatenate(n.inputs, n.options.whole(0)),
    "RESHAPE": lambda n: n.inputs[0].reshape([int(k) for k in n.inputs[1].reshape(-1)]),
    "EXPAND_DIMS": lambda n: np.expand_dims(n.inputs[0], n.axis(1)),
    "SQUEEZE": lambda n: np.squeeze(n.inputs[0], tuple(n.options.ints(0)) or None),
    "TRANSPOSE": lambda n: n.inputs[0].transpose(n.ints(1, "axes")),
    "GATHER": lambda n: np.take(n.inputs[0], n.inputs[1], n.options.whole(0)),
    "CAST": lambda n: n.inputs[0],
    "DEQUANTIZE": lambda n: n.inputs[0].astype(np.float32),
    "ADD": lambda n: n.inputs[0] + n.inputs[1],
    "SUB": lambda n: n.inputs[0] - n.inputs[1],
    "MUL": lambda n: n.inputs[0] * n.inputs[1],
    "NEG": lambda n: -n.inputs[0],
    "REDUCE_PROD": lambda n: n.inputs[0].prod(tuple(n.ints(1, "axes"))),
    "FILL": lambda n: np.full(n.ints(0, "dims"), n.inputs[1]),
    "RANGE": lambda n: np.arange(n.inputs[0], n.inputs[1], n.inputs[2]),
    "SLICE": lambda n: n.inputs[0][
        tuple(slice(p, None if s < 0 else p + s) for p, s in zip(n.ints(1, "begin"), n.ints(2, "size"), strict=True))
    ],
}
