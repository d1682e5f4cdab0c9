"""int8 weights as the device reads them: one block of bytes an operator, as pack.py has it for floats.

    block = sums("conv2d", w, bias, multipliers)      # linear, conv2d, depthwise_conv2d, embed_projection
    block = vectors(factors, offsets)                 # batchnorm; without offsets prelu
    block = table(values)                             # activation, unary
    block = exponentials(scale)                       # softmax

The layouts are described in runtime_c/FORMAT.md, "int8".
"""

from __future__ import annotations

import numpy as np

from .pack import PANEL, QUAD

STEPS = 256  # of an int8 number


def sums(op: str, w: np.ndarray, bias: np.ndarray, multipliers: np.ndarray, groups: int = 1) -> bytes:
    """w: int8, shaped as in training. bias, multipliers: B and M of each output channel.

    B has taken up the zero point of x: B[o] = round(b[o] / (scale of x * scale of w[o])) - zero point * sum of w[o].
    Raises ValueError with one sentence.
    """
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


def vectors(factors: np.ndarray, offsets: np.ndarray | None = None) -> bytes:
    """M of each channel and, for batchnorm, B."""
    rows = [_whole("a rescaling", "a factor", factors, -(1 << 21), 1 << 21)]
    if offsets is not None:
        rows.append(_whole("a rescaling", "an offset", offsets, -(1 << 30) + 1, (1 << 30) - 1))
    return b"".join(row.astype("<i4").tobytes() for row in rows)


def table(values: np.ndarray) -> bytes:
    """values[q + 128] for q from -128 to 127."""
    values = _whole("a table", "an entry", values, -128, 127)
    if values.shape != (STEPS,):
        raise ValueError(f"a table has shape {values.shape}; ({STEPS},) is expected")
    return values.astype(np.int8).tobytes()


def exponentials(scale: float) -> bytes:
    """T[d] = round(65535 e^(-scale d)): of a softmax whose input has this scale."""
    d = np.arange(STEPS) * float(np.float32(scale))
    return np.rint(65535 * np.exp(-d)).astype("<u2").tobytes()


def _whole(op: str, what: str, values: np.ndarray, lo: int, hi: int) -> np.ndarray:
    given = np.asarray(values)
    if not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"{op}: {what} has type {given.dtype}; whole numbers are expected")
    whole = given.astype(np.int64)
    if whole.size and not lo <= whole.min() <= whole.max() <= hi:
        worst = whole.max() if whole.max() > hi else whole.min()
        raise ValueError(f"{op}: {what} is {worst}; {lo} to {hi} is expected")
    return whole
