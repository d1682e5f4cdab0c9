"""int8 weights as the device reads them: one block of bytes an operator, as pack.py has it for floats.

    block = pack("conv2d", attrs, {"weight": w, "bias": b, "multiplier": m})

weight is int8, shaped as in training; bias and multiplier are int32, B and M of each channel; activation, unary and
softmax have a table instead. trainer/int8 makes them. The layouts are described in runtime_c/FORMAT.md, "int8".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from litenet.trainer.int8.scheme import RESCALE, SUM
from litenet.trainer.ops import OPS, Attrs

from .pack import PANEL, QUAD

TABLES: dict[str, tuple[np.dtype[Any], int, int]] = {
    "table": (np.dtype(np.int8), -128, 127),
    "exponentials": (np.dtype("<u2"), 0, 65535),
}
STEPS = 256  # entries of a table: of an int8 number


def pack(op: str, a: Attrs, roles: Mapping[str, np.ndarray]) -> bytes:
    """The block of one int8 operator; b"" for one without. Raises ValueError with one sentence."""
    layout = OPS[op].OP.int8_layout
    if layout in TABLES:
        packed = _table(op, roles["table"], *TABLES[layout])
        return packed if layout == "table" else _short(packed)
    if layout == "vectors8":
        rows = [_whole(op, "a multiplier", roles["multiplier"], -RESCALE, RESCALE)]
        if op == "batchnorm":
            rows.append(_whole(op, "a bias", roles["bias"], 1 - SUM, SUM - 1))
        return b"".join(row.astype("<i4").tobytes() for row in rows)
    if layout == "-":
        return b""
    return _sums(op, roles["weight"], roles["bias"], roles["multiplier"], getattr(a, "groups", 1))


def _short(packed: bytes) -> bytes:
    """Exponentials without the zeros at the end, to which they fall."""
    values = np.frombuffer(packed, "<u2")
    return values[: int(values.nonzero()[0][-1]) + 1].tobytes()


def is_short(op: str, block: bytes) -> bool:
    """Whether readers of format 1.0 do not know such a block."""
    return OPS[op].OP.int8_layout == "exponentials" and len(block) < 2 * STEPS


def _sums(op: str, w: np.ndarray, bias: np.ndarray, multipliers: np.ndarray, groups: int) -> bytes:
    """Panels of B, M and weights."""
    depthwise = op == "depthwise_conv2d"
    w = _whole(op, "a weight", w, -127, 127)
    if depthwise:
        rows = w.reshape(-1, w.shape[-1]).T  # (C, kh*kw)
    else:
        rows = w.T if op == "embed_projection" else w.reshape(len(w), -1)  # (O, K)
    O = len(rows)
    B = _whole(op, "a bias", bias, -(1 << 31), (1 << 31) - 1)
    M = _whole(op, "a multiplier", multipliers, 0, (1 << 31) - 1)
    if B.shape != (O,) or M.shape != (O,) or O % groups:
        raise ValueError(f"{op}: {O} channels in {groups} groups have {B.shape} biases and {M.shape} multipliers")
    each, out = O // groups, b""
    for group in range(groups):
        for start in range(0, each, PANEL):
            here = slice(group * each + start, group * each + min(start + PANEL, each))
            out += _panel(rows[here], B[here], M[here], 1 if depthwise else QUAD)
    return out


def _panel(rows: np.ndarray, B: np.ndarray, M: np.ndarray, together: int) -> bytes:
    """`together` weights of a channel stand side by side."""
    n, K = rows.shape
    width, deep = -(-n // QUAD) * QUAD, -(-K // together)
    numbers = np.zeros((2, width), "<i4")
    numbers[0, :n], numbers[1, :n] = B, M
    weights = np.zeros((width, deep * together), np.int8)
    weights[:n, :K] = rows
    return numbers.tobytes() + weights.reshape(width, deep, together).transpose(1, 0, 2).tobytes()


def _table(op: str, values: np.ndarray, kind: np.dtype[Any], lo: int, hi: int) -> bytes:
    values = _whole(op, "an entry", values, lo, hi)
    if values.shape != (STEPS,):
        raise ValueError(f"{op}: its table has shape {values.shape}; ({STEPS},) is expected")
    if op == "softmax" and values[0] == 0:
        raise ValueError(f"{op}: its table begins with 0, and it would divide by that")
    return values.astype(kind).tobytes()


def _whole(op: str, what: str, values: np.ndarray, lo: int, hi: int) -> np.ndarray:
    given = np.asarray(values)
    if not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"{op}: {what} has type {given.dtype}; whole numbers are expected")
    whole = given.astype(np.int64)
    if whole.size and not lo <= whole.min() <= whole.max() <= hi:
        worst = whole.max() if whole.max() > hi else whole.min()
        raise ValueError(f"{op}: {what} is {worst}; {lo} to {hi} is expected")
    return whole
