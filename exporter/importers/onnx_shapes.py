"""The operators of ONNX that move values or say what shape they have: (builder, node) -> what it puts out.

The first line of a function's text stands in docs/import.md.
"""

from __future__ import annotations

from math import prod

import numpy as np

from . import layers
from .builder import Builder, Value
from .onnx_node import OnnxNode


def reshape(b: Builder, n: OnnxNode) -> Value:
    """moves nothing where the order of values allows it"""
    v = n.value()
    wanted = n.ints("shape", 1) or []
    keep = not n.attrs.get("allowzero", 0)
    shape = [v.shape[k] if size == 0 and keep else size for k, size in enumerate(wanted)]
    if -1 in shape:
        k = shape.index(-1)
        shape[k] = prod(v.shape) // max(1, prod(shape[:k] + shape[k + 1 :]))
    return b.reshaped(v, shape)


def flatten(b: Builder, n: OnnxNode) -> Value:
    """as Reshape; before a Gemm its weights are turned instead"""
    v, axis = n.value(), n.attrs.get("axis", 1)
    return b.reshaped(v, (prod(v.shape[:axis]), prod(v.shape[axis:])))


def squeeze(b: Builder, n: OnnxNode) -> Value:
    """as Reshape"""
    v, axes = n.value(), n.ints("axes", 1)
    gone = [k % len(v.shape) for k in axes] if axes else [k for k, size in enumerate(v.shape) if size == 1]
    return b.reshaped(v, tuple(size for k, size in enumerate(v.shape) if k not in gone) or (1,))


def unsqueeze(b: Builder, n: OnnxNode) -> Value:
    """as Reshape"""
    v, axes = n.value(), n.ints("axes", 1) or []
    shape = list(v.shape)
    for k in sorted(a % (len(v.shape) + len(axes)) for a in axes):
        shape.insert(k, 1)
    return b.reshaped(v, shape)


def transpose(b: Builder, n: OnnxNode) -> Value:
    """left out where it only turns images; else moved"""
    v = n.value()
    return b.transposed(v, n.ints("perm") or list(range(len(v.shape)))[::-1])


def concat(b: Builder, n: OnnxNode) -> Value:
    """of values, along any axis but the batch"""
    if not all(isinstance(v, Value) for v in n.inputs):
        n.place.refuse("it joins values with constants")
    return layers.concat(b, n.inputs, n.attrs.get("axis", 1))


def split(b: Builder, n: OnnxNode) -> list[Value]:
    """as slices"""
    v, axis = n.value(), n.attrs.get("axis", 0) % len(n.value().shape)
    sizes, size = n.ints("split", 1), v.shape[axis]
    if not sizes:
        each = -(-size // n.outputs)
        sizes = [min(each, size - each * i) for i in range(n.outputs)]
    starts = np.cumsum([0, *sizes])
    return [layers.cut(b, v, axis, int(p), int(q), 1) for p, q in zip(starts, starts[1:], strict=False)]


def slice_(b: Builder, n: OnnxNode) -> Value:
    """constant bounds, positive steps"""
    v = n.value()
    starts, ends = n.ints("starts", 1) or [], n.ints("ends", 2) or []
    axes = n.ints("axes", 3) or list(range(len(starts)))
    steps = n.ints("steps", 4) or [1] * len(starts)
    for axis, p, q, step in zip((k % len(v.shape) for k in axes), starts, ends, steps, strict=True):
        if step < 1:
            n.place.refuse(f"it goes backwards, by {step}", "Steps of 1 and more are known.")
        size = v.shape[axis]
        p, q = (min(max(k + size if k < 0 else k, 0), size) for k in (p, q))
        v = layers.cut(b, v, axis, p, q, step)
    return v


def gather(b: Builder, n: OnnxNode) -> Value:
    """with constant indices that follow one another"""
    v, index = n.value(), n.constant(1, "indices")
    axis = n.attrs.get("axis", 0) % len(v.shape)
    places = [int(k) % v.shape[axis] for k in index.reshape(-1)]
    step = places[1] - places[0] if len(places) > 1 else 1
    if step < 1 or places != list(range(places[0], places[-1] + 1, step)):
        n.place.refuse(f"it picks {places[:5]} ... in an order of their own", "Indices with one step are known.")
    y = layers.cut(b, v, axis, places[0], places[-1] + 1, step)
    return b.reshaped(y, (*y.shape[:axis], *index.shape, *y.shape[axis + 1 :]) or (1,))


def pad(b: Builder, n: OnnxNode) -> Value:
    """with a constant; part of the convolution behind it where it can be"""
    v, mode = n.value(), n.attrs.get("mode", "constant")
    if mode != "constant":
        n.place.refuse(f"it pads by {mode}", "Padding with a constant is known.")
    pads, axes, value = n.ints("pads", 1) or [], n.ints("axes", 3), n.optional(2, "value")
    rank = len(v.shape)
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(axes if axes is not None else range(rank)):
        before[axis % rank], after[axis % rank] = pads[k], pads[k + len(pads) // 2]
    given = n.attrs.get("value", 0.0) if value is None or value.size == 0 else value.reshape(-1)[0]
    return layers.pad_value(b, v, before, after, float(given))


def expand(b: Builder, n: OnnxNode) -> Value:
    """where it repeats nothing"""
    v = n.value()
    if n.op == "Tile":
        times = n.ints("repeats", 1) or []
        repeats = any(t != 1 for t in times)
    else:
        wanted = n.ints("shape", 1) or []
        repeats = any(w not in (1, s) for w, s in zip(wanted[::-1], v.shape[::-1], strict=False))
        if not repeats and len(wanted) > len(v.shape):
            return b.reshaped(v, (*wanted[: len(wanted) - len(v.shape)], *v.shape))
    if repeats:
        n.place.refuse("it repeats values", "A resize by nearest repeats rows and columns of images.")
    return v


COORDINATES = {"half_pixel": 0, "pytorch_half_pixel": 0, "asymmetric": 1, "align_corners": 2}
ROUNDING = {"floor": 0, "round_prefer_floor": 1, "round_prefer_ceil": 2, "ceil": 3}


def resize(b: Builder, n: OnnxNode) -> Value:
    """nearest and linear, by scales or sizes of height and width"""
    v, mode = n.value(), n.attrs.get("mode", "nearest")
    if mode not in ("nearest", "linear") or n.attrs.get("antialias", 0):
        n.place.refuse(f"it resizes by {mode}{' with antialias' if mode == 'linear' else ''}", "Use nearest or linear.")
    if n.op == "Upsample":
        how, scales, sizes = "asymmetric", n.attrs.get("scales", n.optional(1, "scales")), None
    else:
        at = 1 if n.opset < 11 else 2
        how = n.attrs.get("coordinate_transformation_mode", "asymmetric" if n.opset < 11 else "half_pixel")
        scales, sizes = n.optional(at, "scales"), n.ints("sizes", 3)
    if how not in COORDINATES or n.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        n.place.refuse(f"it takes positions by {how}", f"Known are {', '.join(COORDINATES)}.")
    axes = n.ints("axes") or list(range(len(v.shape)))
    full = list(v.shape)
    for k, axis in enumerate(axes):
        if sizes:
            full[axis] = sizes[k]
        elif scales is not None and len(scales):
            full[axis] = int(np.floor(v.shape[axis] * float(scales[k]) + 1e-6))
            if abs(full[axis] / v.shape[axis] - float(scales[k])) > 1e-6 * full[axis]:
                n.place.refuse(f"its scale {float(scales[k]):g} makes no whole size of {v.shape[axis]}", "Give sizes.")
    if len(full) != 4 or full[:2] != list(v.shape[:2]):
        n.place.refuse(f"it resizes {v.shape} to {tuple(full)}; height and width of an image may change")
    x = b.image(v, True)
    rounding = ROUNDING[n.attrs.get("nearest_mode", "floor" if n.opset < 11 else "round_prefer_floor")]
    if how == "pytorch_half_pixel" and 1 in full[2:]:
        n.place.refuse("it resizes to a side of 1 by pytorch_half_pixel", "Use half_pixel.")
    return b.of_image(layers.resize(b, x, full[2:], int(mode == "linear"), COORDINATES[how], rounding), True)
