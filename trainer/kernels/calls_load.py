"""The launch that gathers a batch from a data set on the device; see load.cu."""

from __future__ import annotations

from ..data.augment import Augmentation
from .call import Arg, Call, Float, Int, Kernel, Ref, blocks, constants
from .grids import MAX_Y, THREADS, flat, vector

FLIPS = {"none": 0, "horizontal": 1, "vertical": 2, "both": 3, "alternate": 4}  # the bits load.cu reads


def load_calls(
    dtype: str,
    rows: int,
    batch: int,
    count: int,
    D: int,
    C: int,
    words: int = 1,
    normalise: bool = True,
    sms: int = 0,
    half: bool = False,
    cursor: bool = True,
    augment: Augmentation | None = None,
    width: int = 0,
) -> list[Call]:
    """Gather `rows` samples of D values (C channels) of a set of `count`; dtype "u8" or "f32" is the set's. With the
    role "order" in that order. words: 4-byte words of one answer. Without normalise, values are copied. half: the net's
    input is stored so. cursor: the batch of the step's cursor, else the first one.

    augment: samples are pictures of this width, changed by numbers that follow from the role "step"; with the role
    "numbers" the samples' places in the data set are these, where the set on the device is only a part of it.
    """
    real = {"REAL": "Half"} if half else {}
    common: tuple[Arg, ...] = (
        Ref("set"), Ref("labels"), Ref("order"), Ref("step" if cursor else ""), Ref("mean" if normalise else ""),
        Ref("std" if normalise else ""), Ref("x"), Ref("target"), Int(rows), Int(batch), Int(count),
    )  # fmt: skip
    if augment is None:
        V = vector(D)
        grid, block = flat(max(rows * D // V * 4, rows * words), sms)
        kernel = Kernel("load.cu", f"load_{dtype}_f32", constants(VEC=V, **real))
        return [Call(kernel, grid, block, (*common, Int(D), Int(C), Int(words)))]
    H, pixels = D // (width * C), D // C
    grid, block = (rows, min(blocks(pixels, 4 * THREADS), MAX_Y), 1), (min(THREADS, 32 * blocks(pixels, 32)), 1, 1)
    own: tuple[Arg, ...] = (
        Int(words), Ref("step"), Ref("numbers"), Int(H), Int(width), Int(C), Int(FLIPS[augment.flip]),
        Int(augment.translate), Int(augment.pad_mode == "reflect"), Int(augment.cutout), *map(Int, augment.limits()),
        *map(Float, augment.color_limits(dtype == "u8")),
    )  # fmt: skip
    macros = constants(AUGMENT=1, FULL=int(augment.in_full), MIX=int(augment.mixes), **real)
    kernel = Kernel("load.cu", f"load_augmented_{dtype}_f32", macros)
    return [Call(kernel, grid, block, (*common, *own))]
