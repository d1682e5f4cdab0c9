"""What format.py writes for int8: the numbers of an operator's record, and preprocessing in whole numbers.

    OpRec("add", (1, 2), 3, attrs, quant=Quant(lo=-128, hi=127, shift=20, m1=700000, m2=350000))

What they mean, and what a reader refuses: runtime_c/FORMAT.md, "int8".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from litenet.trainer.ops import Op

LEAST_SHIFT, MOST_SHIFT, MOST_FACTOR = 1, 24, 1 << 21
MULTIPLIER_END, OFFSET_END = 1 << 22, 1 << 30  # of preprocessing
SOFTMAX = (2.0**-8, -128)  # scale and zero point of its output
MOST_CLASSES, MOST_PIXELS = (1 << 15) - 1, 1 << 22  # of a softmax, of a global_avg_pool


@dataclass(frozen=True)
class Quant:
    """The numbers of an operator whose output is int8; what it does not use stays as it is here."""

    lo: int = -128
    hi: int = 127
    shift: int = 0
    border: int = 0
    m1: int = 0
    m2: int = 0


@dataclass(frozen=True)
class Steps:
    """What a tensor's numbers stand for: scale * (q - zero_point)."""

    dtype: str
    scale: float
    zero_point: int


def tensor_bytes(name: str, t: Steps) -> tuple[int, float]:
    """(zero point, scale) as a record has them. Raises ValueError with one sentence."""
    if t.dtype != "i8":
        if (t.scale, t.zero_point) != (1.0, 0):
            raise ValueError(f"{name} has scale {t.scale}, zero point {t.zero_point}; of {t.dtype}, 1 and 0 are expected")
        return 0, 1.0
    scale = np.float32(t.scale)
    if not isfinite(scale) or not scale > 0:
        raise ValueError(f"{name} has scale {t.scale}; a finite number above 0, in float32 too, is expected")
    if not -128 <= t.zero_point <= 127:
        raise ValueError(f"{name} has zero point {t.zero_point}; -128 to 127 is expected")
    return t.zero_point, float(scale)


def check_types(name: str, op: Op, inputs: Sequence[str], output: str) -> None:
    """The types of an operator's tensors go together."""
    if op.crosses:
        want = ("f32", "i8") if op.name == "quantize" else ("i8", "f32")
    else:
        want = (output, output)
    if output != want[1] or any(x != want[0] for x in inputs):
        raise ValueError(f"{name} goes from {' and '.join(inputs)} to {output}; {want[0]} to {want[1]} is expected")
    if output == "i8" and op.int8 is None:
        raise ValueError(f"{name} has no int8 form")


def record_bytes(name: str, op: Op, q: Quant | None, inputs: Sequence[Steps], y: Steps) -> bytes:
    """The last 12 bytes of an operator record."""
    if y.dtype != "i8":
        if q is not None:
            raise ValueError(f"{name} gives {y.dtype}, but has numbers of an int8 operator")
        return bytes(12)
    if q is None:
        raise ValueError(f"{name} gives int8 and needs the numbers that say how")
    uses = op.int8 or ()

    def within(what: str, value: int, lo: int, hi: int) -> None:
        if not lo <= value <= hi:
            raise ValueError(f"{name}: {what} is {value}; {lo if lo == hi else f'{lo} to {hi}'} is expected")

    bounds = "bounds" in uses
    within("lo", q.lo, -128, 127 if bounds else -128)
    within("hi", q.hi, q.lo if bounds else 127, 127)
    within("shift", q.shift, *((LEAST_SHIFT, MOST_SHIFT) if "shift" in uses else (0, 0)))
    within("border", q.border, *((-128, 127) if "border" in uses else (0, 0)))
    if "requant" in uses:
        within("m1", q.m1, 0, (1 << 31) - 1)
    else:
        within("m1", q.m1, *((-MOST_FACTOR, MOST_FACTOR) if "m1" in uses else (0, 0)))
    within("m2", q.m2, *((-MOST_FACTOR, MOST_FACTOR) if "m2" in uses else (0, 0)))
    want = None
    if "same" in uses:
        want = (np.float32(inputs[0].scale), inputs[0].zero_point)
    if op.name == "softmax":
        want = SOFTMAX
    if want is not None and (np.float32(y.scale), y.zero_point) != want:
        raise ValueError(
            f"{name} gives scale {y.scale}, zero point {y.zero_point}; {want[0]:.9g} and {want[1]} are expected"
        )
    return struct.pack("<bbBbii", q.lo, q.hi, q.shift, q.border, q.m1, q.m2)


def multipliers(mean: Sequence[float], std: Sequence[float], x: Steps) -> tuple[list[int], list[int]]:
    """P and Q of each channel, so that (v P + Q) >> 16 is (v - mean) / std in steps of x, rounded, halves up.

    P = round(65536 / (std scale)), Q = round(65536 (zero point - mean / (std scale)) + 32768). ValueError where they
    leave their range.
    """
    P, Q = [], []
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        step = float(np.float32(s)) * float(np.float32(x.scale))
        p = round(65536 / step)
        q = round(65536 * (x.zero_point - float(np.float32(m)) / step) + 32768)
        if not 0 < p < MULTIPLIER_END or not -OFFSET_END < q < OFFSET_END:
            raise ValueError(
                f"preprocessing: mean {m} and std {s} of channel {c} in steps of {x.scale} make the multiplier {p} and "
                f"the offset {q}; 1 to {MULTIPLIER_END - 1} and, in size, at most {OFFSET_END - 1} are expected"
            )
        P.append(p)
        Q.append(q)
    return P, Q
