"""What the nodes of ONNX and TFLite have in common: each function adds one of their operators to a Builder.

Images are tensors of ours, (H,W,C), and so are their weights, [O][kh][kw][I]; values are `Value`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from .builder import Builder, Value

Pads = tuple[int, int, int, int]  # top, left, bottom, right


# ---- convolution and matrix product


def conv(
    b: Builder, x: int, weight: np.ndarray, bias: np.ndarray | None, stride: Sequence[int], pads: Pads,
    dilation: Sequence[int], groups: int,
) -> int:  # fmt: skip
    """A convolution of any kind: weight (O, kh, kw, C / groups)."""
    O, kh, kw, _ = weight.shape
    C = b.shape(x)[2]
    if weight.shape[3] * groups != C:
        b.place.refuse(f"its kernel takes {weight.shape[3] * groups} channels, but the image has {C}")
    if max(pads) > 255:
        x = pad(b, x, [*pads[:2], 0], [*pads[2:], 0])
        pads = (0, 0, 0, 0)
    given = {
        "kernel_size": (kh, kw), "stride": tuple(stride), "padding": pads, "dilation": tuple(dilation),
        "bias": int(bias is not None),
    }  # fmt: skip
    if groups > 1 and {C, O} == {groups}:
        weights = {"weight": weight[..., 0].transpose(1, 2, 0), "bias": bias}
        return b.node("depthwise_conv2d", [x], given, weights)
    return b.node("conv2d", [x], given | {"out_channels": O, "groups": groups}, {"weight": weight, "bias": bias})


def linear(b: Builder, v: Value, weight: np.ndarray, bias: np.ndarray | None) -> Value:
    """v (..., I) times weight (O, I), and bias (O)."""
    O, I = weight.shape
    if v.shape[-1] != I:
        b.place.refuse(f"its weights take rows of {I} values, but the input is {v.shape}")
    rows = prod(v.shape) // I
    shape = (*v.shape[:-1], O)
    given = {"out_features": O, "bias": int(bias is not None)}
    if rows > 1:
        x = b.shaped(v, (rows, I))
    else:  # our memory may have another order than the source's: then the weights are turned instead
        x = b.view(v.tensor, (I,)) if len(b.shape(v.tensor)) == 2 else v.tensor  # two axes would be rows
        order = np.arange(I).reshape(b.base(v)).transpose(v.order).reshape(-1)
        weight = weight[:, np.argsort(order)]
    y = b.node("linear", [x], given, {"weight": weight, "bias": bias})
    return b.plain(y, shape)


# ---- element by element


def activation(b: Builder, v: Value, name: str, alpha: float = 0.01) -> Value:
    return b.same(v, b.node("activation", [v.tensor], {"activation": name, "alpha": alpha}))


def clip(b: Builder, v: Value, lo: float, hi: float) -> Value:
    """min(max(x, lo), hi), made of relu and relu6."""
    if (lo, hi) == (0, np.inf):
        return activation(b, v, "relu")
    if (lo, hi) == (0, 6):
        return activation(b, v, "relu6")
    if (lo, hi) == (-np.inf, np.inf):
        return v
    if not lo < hi:
        b.place.refuse(f"it clips to {lo} .. {hi}, which leaves nothing")
    if hi == np.inf:  # lo + relu(x - lo)
        return affine(b, activation(b, affine(b, v, 1, -lo), "relu"), 1, lo)
    if lo == -np.inf:  # hi - relu(hi - x)
        return affine(b, activation(b, affine(b, v, -1, hi), "relu"), -1, hi)
    k = 6 / (hi - lo)
    return affine(b, activation(b, affine(b, v, k, -lo * k), "relu6"), 1 / k, lo)


def affine(b: Builder, v: Value, scale: np.ndarray | float, shift: np.ndarray | float) -> Value:
    """x * scale + shift; both broadcast to the source's shape as NumPy does, and are constants."""
    scale, shift = np.broadcast_arrays(np.asarray(scale, np.float64), np.asarray(shift, np.float64))
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        b.place.refuse("it calculates with NaN or infinite constants")
    if scale.ndim > len(v.shape):
        over = scale.ndim - len(v.shape)
        if any(n != 1 for n in scale.shape[:over]):
            b.place.refuse(f"its constant of shape {scale.shape} makes a larger tensor of {v.shape}")
        scale, shift = scale.reshape(scale.shape[over:]), shift.reshape(shift.shape[over:])
    full = (*[1] * (len(v.shape) - scale.ndim), *scale.shape)
    if any(n not in (1, m) for n, m in zip(full, v.shape, strict=True)):
        b.place.refuse(f"its constant of shape {scale.shape} does not go with {v.shape}")
    v, axis = along_last(b, v, [k for k, n in enumerate(full) if n > 1])
    C = b.shape(v.tensor)[-1]
    if axis is None:  # one number for all, or numbers in our memory's order
        rows = [s.reshape(-1) if s.size == 1 else np.broadcast_to(s, v.shape).reshape(-1) for s in (scale, shift)]
    else:
        rows = [s.reshape(-1) for s in (scale, shift)]
    scale, shift = (np.broadcast_to(r, (C,)) for r in rows)
    return b.same(v, batchnorm(b, v.tensor, scale, shift))


def along_last(b: Builder, v: Value, axes: list[int]) -> tuple[Value, int | None]:
    """(v so lying in memory that this one axis of the source is our last, that axis). Of several axes, v as one row
    and None."""
    if not axes:
        return v, None
    k = axes[0]
    if len(axes) > 1 or v.shape[0] != 1 or prod(v.shape) == v.shape[k]:
        return b.plain(b.shaped(v, (prod(v.shape),)), v.shape), None
    if b.turned(v) == v.shape and v.order[k] == len(v.order) - 1:
        return v, k
    order = [*(j for j in range(len(v.shape)) if j != k), k]
    return b.transposed(b.shaped_value(b.transposed(v, order)), np.argsort(order).tolist()), k


def batchnorm(b: Builder, x: int, scale: np.ndarray, shift: np.ndarray) -> int:
    """x * scale + shift by channel."""
    zeros, ones = np.zeros(len(scale)), np.ones(len(scale))
    weights = {"gamma": scale, "beta": shift, "running_mean": zeros, "running_var": ones}
    return b.node("batchnorm", [x], {"eps": 1e-12}, weights)


def prelu(b: Builder, v: Value, slope: np.ndarray) -> Value:
    """Leaky relu with the slopes of a constant that broadcasts to v."""
    if slope.size == 1 and 0 <= slope.item() <= 1:
        return activation(b, v, "leaky_relu", float(slope.item()))
    full = (*[1] * (len(v.shape) - slope.ndim), *slope.shape)
    if len(full) != len(v.shape) or any(n not in (1, m) for n, m in zip(full, v.shape, strict=True)):
        b.place.refuse(f"its slopes of shape {slope.shape} do not go with {v.shape}")
    v, axis = along_last(b, v, [k for k, n in enumerate(full) if n > 1])
    C = b.shape(v.tensor)[-1]
    flat = slope.reshape(-1) if axis is not None or slope.size == 1 else np.broadcast_to(slope, v.shape).reshape(-1)
    return b.same(v, b.node("prelu", [v.tensor], {}, {"slope": np.broadcast_to(flat, (C,))}))


def add(b: Builder, v: Value, w: Value) -> Value:
    if v.shape != w.shape:
        b.place.refuse(
            f"it adds tensors of {v.shape} and {w.shape}, one of them repeated", "Both must have the same shape."
        )
    v, t = together(b, v, w)
    return b.same(v, b.node("add", [v.tensor, t], {}))


def together(b: Builder, v: Value, w: Value) -> tuple[Value, int]:
    """(v, a tensor of w that lies as v's), for two of one shape."""
    if v.order == w.order and b.shape(v.tensor) == b.shape(w.tensor):
        return v, w.tensor
    if b.turned(v) != v.shape:  # both in the source's order
        v = b.shaped_value(v)
        return v, b.view(b.rows(w), b.shape(v.tensor))
    return v, b.shaped(b.transposed(w, np.argsort(v.order).tolist()), b.shape(v.tensor))


def subtract(b: Builder, v: Value, w: Value) -> Value:
    return add(b, v, affine(b, w, -1, 0))


def multiply(b: Builder, v: Value, w: Value) -> Value:
    """Of two tensors of one shape, or of a tensor and a factor for each channel."""
    if prod(v.shape) < prod(w.shape):
        v, w = w, v
    if v.shape == w.shape:
        v, t = together(b, v, w)
        return b.same(v, b.node("mul", [v.tensor, t], {}))
    full = (*[1] * (len(v.shape) - len(w.shape)), *w.shape)
    axes = [k for k, n in enumerate(full) if n > 1]
    if len(axes) != 1 or len(full) != len(v.shape) or full[axes[0]] != v.shape[axes[0]]:
        b.place.refuse(
            f"it multiplies tensors of {v.shape} and {w.shape}",
            "The second may have the same shape, or one factor for each channel.",
        )
    v, axis = along_last(b, v, axes)
    if axis is None:
        b.place.refuse(f"it multiplies tensors of {v.shape} and {w.shape}, neither along the channels")
    return b.same(v, b.node("mul", [v.tensor, b.shaped(w, (prod(w.shape),))], {}))


def unary(b: Builder, v: Value, function: int) -> Value:
    """EXP, SQRT or RECIPROCAL of trainer/ops/unary.py."""
    return b.same(v, b.node("unary", [v.tensor], {"function": function}))


# ---- rows


def softmax(b: Builder, v: Value, axis: int, together: bool = False) -> Value:
    """Along one axis of the source; together: along that and all behind it, as before opset 13."""
    axis %= len(v.shape)
    if together and prod(v.shape[axis + 1 :]) > 1:
        rows = b.shaped(v, (prod(v.shape[:axis]), prod(v.shape[axis:])))
        return b.plain(b.node("softmax", [rows], {}), v.shape)
    v, last = lasting(b, v, axis)
    return last(b.node("softmax", [v.tensor], {}))


def layernorm(b: Builder, v: Value, gamma: np.ndarray, beta: np.ndarray, eps: float, axis: int) -> Value:
    """Over this axis and all behind it."""
    axis %= len(v.shape)
    weights = {"gamma": gamma.reshape(-1), "beta": beta.reshape(-1)}
    given = {"eps": max(eps, 1e-12)}
    if prod(v.shape[axis + 1 :]) > 1:
        shape = (prod(v.shape[:axis]), prod(v.shape[axis:]))
        rows = b.shaped(v, shape if shape[0] > 1 else shape[1:])
        return b.plain(b.node("layernorm", [rows], given, weights), v.shape)
    v, last = lasting(b, v, axis)
    return last(b.node("layernorm", [v.tensor], given, weights))


def lasting(b: Builder, v: Value, axis: int):
    """(v so lying that this axis is our last; what makes a value of the tensor an operator makes of it)."""
    rest = prod(v.shape) // v.shape[axis]
    if rest == 1:
        row = b.shaped(v, (v.shape[axis],))
        return b.plain(row, v.shape), lambda t: b.plain(t, v.shape)
    if v.shape[0] == 1:
        moved, k = along_last(b, v, [axis])
        assert k is not None
        return moved, lambda t: b.same(moved, t)
    order = [*(j for j in range(len(v.shape)) if j != axis), axis]
    turned = b.transposed(v, order)
    rows = b.plain(b.shaped(turned, (rest, v.shape[axis])), turned.shape)
    return rows, lambda t: b.transposed(b.plain(t, turned.shape), np.argsort(order).tolist())


# ---- windows


def maxpool(b: Builder, x: int, kernel: Sequence[int], stride: Sequence[int], pads: Pads) -> int:
    if kernel[0] * kernel[1] <= 256:
        return b.node("maxpool2d", [x], {"kernel_size": tuple(kernel), "stride": tuple(stride), "padding": pads})
    rows = {"kernel_size": (kernel[0], 1), "stride": (stride[0], 1), "padding": (pads[0], 0, pads[2], 0)}
    columns = {"kernel_size": (1, kernel[1]), "stride": (1, stride[1]), "padding": (0, pads[1], 0, pads[3])}
    return b.node("maxpool2d", [b.node("maxpool2d", [x], rows)], columns)


def avgpool(
    b: Builder, x: int, kernel: Sequence[int], stride: Sequence[int], pads: Pads, extra: tuple[int, int], count: bool
) -> int:
    """extra: rows below and columns to the right that ceil_mode asks for; they are never counted."""
    if count and any(extra) and any(pads):
        x = pad(b, x, [*pads[:2], 0], [*pads[2:], 0])
        pads = (0, 0, 0, 0)
    count = count and not any(extra)
    pads = (pads[0], pads[1], pads[2] + extra[0], pads[3] + extra[1])
    given = {"kernel_size": tuple(kernel), "stride": tuple(stride), "padding": pads, "count_include_pad": int(count)}
    H, W, _ = b.shape(x)
    if tuple(kernel) == (H, W) and not any(pads):
        return b.node("reshape", [b.node("global_avg_pool", [x], {})], {"shape": [1, 1, b.shape(x)[2], 0]})
    return b.node("avgpool2d", [x], given)


def ceil_extra(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """What ceil_mode adds behind one axis, so that a last window that begins inside is taken too."""
    reach = dilation * (kernel - 1) + 1
    n = -(-(size + before + after - reach) // stride) + 1
    if (n - 1) * stride >= size + before:
        n -= 1
    return max(0, (n - 1) * stride + reach - size - before - after)


def reduce(b: Builder, v: Value, axes: Sequence[int], keep: bool, how: str) -> Value:
    """mean, sum or max over some axes of the source."""
    axes = sorted(k % len(v.shape) for k in axes)
    rest = [k for k in range(len(v.shape)) if k not in axes]
    shape = tuple(1 if k in axes else n for k, n in enumerate(v.shape) if keep or k not in axes) or (1,)
    n, m = prod(v.shape[k] for k in axes), prod(v.shape[k] for k in rest)
    if n == 1:
        return b.reshaped(v, shape)
    x = v.tensor if image_axes(b, v, axes) else b.shaped(b.transposed(v, [*axes, *rest]), (n, 1, m))
    if how == "max":
        while b.shape(x)[:2] != (1, 1):  # windows of at most 255, then the windows of their results
            H, W, _ = b.shape(x)
            kernel = (min(H, 255), min(W, 255))
            x = maxpool(b, x, kernel, kernel, (0, 0, -H % kernel[0], -W % kernel[1]))
        y = b.view(x, (m,))
    else:
        y = b.node("global_avg_pool", [x], {})
    out = b.plain(y, shape)
    return affine(b, out, n, 0) if how == "sum" else out


def image_axes(b: Builder, v: Value, axes: Sequence[int]) -> bool:
    """Whether these are height and width of an image of ours as it lies."""
    return len(v.order) == 4 and b.turned(v) == v.shape and {v.order[k] for k in axes} == {1, 2}


# ---- moving values


def pad(b: Builder, x: int, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> int:
    """Borders by the axes of our tensor."""
    if not any(before) and not any(after):
        return x
    fill = [0] * (4 - len(before))
    return b.node("pad", [x], {"before": [*before, *fill], "after": [*after, *fill], "value": value})


def pad_value(b: Builder, v: Value, before: Sequence[int], after: Sequence[int], value: float) -> Value:
    """Borders by the axes of the source; a negative one cuts."""
    for k, (p, q) in enumerate(zip(before, after, strict=True)):
        if p < 0 or q < 0:
            v = cut(b, v, k, max(0, -p), v.shape[k] + min(0, q), 1)
    before, after = [max(0, p) for p in before], [max(0, q) for q in after]
    if not any(before) and not any(after):
        return v
    if v.shape[0] != 1:
        out = pad_value(b, b.reshaped(v, (1, *v.shape)), [0, *before], [0, *after], value)
        return b.reshaped(out, out.shape[1:])
    if before[0] or after[0]:
        b.place.refuse("it pads the batch")
    v = v if b.turned(v) == v.shape and v.order[0] == 0 else b.shaped_value(v)
    ours = np.zeros((2, len(v.order)), int)
    for k, axis in enumerate(v.order):
        ours[:, axis] = before[k], after[k]
    t = pad(b, v.tensor, ours[0, 1:].tolist(), ours[1, 1:].tolist(), value)
    return Value(t, v.order, tuple(n + p + q for n, p, q in zip(v.shape, before, after, strict=True)))


def cut(b: Builder, v: Value, axis: int, begin: int, end: int, step: int) -> Value:
    """v[begin:end:step] along an axis of the source; begin and end are inside, step is positive."""
    size = max(0, -(-(end - begin) // step))
    if size == 0:
        b.place.refuse("it takes no value at all")
    shape = (*v.shape[:axis], size, *v.shape[axis + 1 :])
    if size == v.shape[axis]:
        return v
    if v.shape[0] != 1:
        out = cut(b, b.reshaped(v, (1, *v.shape)), axis + 1, begin, end, step)
        return b.reshaped(out, out.shape[1:])
    v = v if b.turned(v) == v.shape and v.order[axis] > 0 else b.shaped_value(v)
    ours = v.order[axis] - 1
    if ours < 0:
        b.place.refuse("it cuts the batch")
    given = {"axis": ours, "begin": begin, "size": size, "step": step}
    return replace(v, tensor=b.node("slice", [v.tensor], given), shape=shape)


def concat(b: Builder, values: Sequence[Value], axis: int) -> Value:
    axis %= len(values[0].shape)
    if any(v.shape[0] != 1 for v in values):
        y = concat(b, [b.reshaped(v, (1, *v.shape)) for v in values], axis + 1)
        return b.reshaped(y, y.shape[1:])
    out = values[0]
    out = out if b.turned(out) == out.shape and out.order[axis] > 0 else b.shaped_value(out)
    if out.order[axis] == 0:
        b.place.refuse("it joins along the batch")
    for v in values[1:]:
        k = v.shape[axis]
        if b.turned(v) != v.shape or v.order != out.order:
            v = b.transposed(b.shaped_value(b.transposed(v, np.argsort(out.order).tolist())), out.order)
        t = b.node("concat", [out.tensor, v.tensor], {"axis": out.order[axis] - 1})
        out = replace(out, tensor=t, shape=(*out.shape[:axis], out.shape[axis] + k, *out.shape[axis + 1 :]))
    return out


def resize(b: Builder, x: int, size: Sequence[int], mode: int, coordinates: int, rounding: int = 0) -> int:
    if tuple(size) == b.shape(x)[:2]:
        return x
    given = {"size": tuple(size), "mode": mode, "coordinates": coordinates, "rounding": rounding}
    return b.node("resize", [x], given)
