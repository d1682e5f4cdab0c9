"""The launch that gathers a batch from a data set on the device; see load.cu."""

from __future__ import annotations

from .call import Arg, Call, Int, Kernel, Ref, constants
from .grids import flat, vector


def load_calls(
    dtype: str, rows: int, batch: int, count: int, D: int, C: int, words: int = 1, normalise: bool = True, sms: int = 0
) -> list[Call]:
    """Gather `rows` samples of D values (C channels) of a set of `count`; dtype "u8" or "f32" is the set's. With the
    role "order" in that order. words: 4-byte words of one answer. Without normalise, values are copied."""
    V = vector(D)
    grid, block = flat(max(rows * D // V * 4, rows * words), sms)
    args: tuple[Arg, ...] = (
        Ref("set"), Ref("labels"), Ref("order"), Ref("step"), Ref("mean" if normalise else ""),
        Ref("std" if normalise else ""), Ref("x"), Ref("target"), Int(rows), Int(batch), Int(count), Int(D), Int(C),
        Int(words),
    )  # fmt: skip
    return [Call(Kernel("load.cu", f"load_{dtype}_f32", constants(VEC=V)), grid, block, args)]
