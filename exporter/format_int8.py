"""What format.py writes for int8: a tensor's scale and zero point, and the numbers of an operator's record.

    TensorRec((28, 28, 1), "i8", input=True, quant=Quant(1 / 256, -128))
    OpRec("add", (1, 2), 3, attrs, numbers=Numbers(lo=-128, hi=127, shift=20, m1=700000, m2=350000))

What they mean, and what a reader refuses: runtime_c/FORMAT.md, "int8". What they are made from: trainer/int8.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from litenet.trainer.int8.scheme import FINE, HI, LO, PROBABILITIES, RESCALE, SHIFT, Numbers, Quant
from litenet.trainer.ops import Op

REQUANT_END = 1 << 31
RESCALES = (-RESCALE, RESCALE)


def tensor_numbers(name: str, dtype: str, q: Quant | None) -> tuple[int, float]:
    """(zero point, scale) as a record has them. Raises ValueError with one sentence."""
    if (q is None) != (dtype != "i8"):
        raise ValueError(
            f"{name} is {dtype} and has {'no' if q is None else 'a'} scale; int8 has one, and nothing else"
        )
    return (0, 1.0) if q is None else (q.zero, q.scale)


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


def record_bytes(name: str, op: Op, n: Numbers | None, x: Quant | None, y: Quant | None) -> bytes:
    """The last 12 bytes of an operator record. x: of the first input; None where a tensor is not int8."""
    if y is None:
        if n is not None:
            raise ValueError(f"{name} gives floats, but has the numbers of an int8 operator")
        return bytes(12)
    if n is None:
        raise ValueError(f"{name} gives int8 and needs the numbers that say how")
    uses = op.int8 or ()

    def within(what: str, value: int, lo: int, hi: int) -> None:
        if not lo <= value <= hi:
            raise ValueError(f"{name}: {what} is {value}; {lo if lo == hi else f'{lo} to {hi}'} is expected")

    bounds = "bounds" in uses
    within("lo", n.lo, LO, HI if bounds else LO)
    within("hi", n.hi, n.lo if bounds else HI, HI)
    within("shift", n.shift, *((1, SHIFT) if "shift" in uses else (0, FINE) if "fine" in uses else (0, 0)))
    within("border", n.border, *((LO, HI) if "border" in uses else (0, 0)))
    if "requant" in uses:
        within("m1", n.m1, 0, REQUANT_END - 1)
    else:
        within("m1", n.m1, *(RESCALES if "m1" in uses else (0, 0)))
    within("m2", n.m2, *(RESCALES if "m2" in uses else (0, 0)))
    want = x if "same" in uses else PROBABILITIES if op.name == "softmax" else y
    if y != want:
        raise ValueError(f"{name} gives {y}; {want} is expected")
    return struct.pack("<bbBbii", n.lo, n.hi, n.shift, n.border, n.m1, n.m2)
