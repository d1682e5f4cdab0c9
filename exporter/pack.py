"""Weights as the device reads them: one block of bytes an operator, in the layout of its `Op.layout`.

    block = pack("conv2d", attrs, {"weight": w, "bias": b}, dtype="f16")

`panels` and `depthwise` cut the output channels into panels of 16; each panel holds its biases, then for every
tap one weight a channel, so that a vector unit of any width reads straight on. The layouts are described, with an
example, in runtime_c/FORMAT.md, "Weights". Values are rounded once, here, to nearest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from litenet.trainer.ops import OPS, Attrs, Op

PANEL = 16  # channels of a panel
QUAD = 4  # the last panel of a group is as wide as its channels, rounded up to this
TYPES: dict[str, np.dtype[Any]] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2")}
HALF_MAX = float(np.finfo(np.float16).max)  # 65504


def pack(op: str, a: Attrs, weights: Mapping[str, np.ndarray | None], dtype: str = "f32") -> bytes:
    """The block of one operator. weights: as in training; a bias that is missing or None is zero.

    Raises ValueError with one sentence for shapes that do not go together, for values that are not finite, and
    for values that float16 cannot hold.
    """
    spec = OPS[op].OP
    arrays = _present(spec, weights)
    if spec.layout == "none":
        return b""
    if spec.layout == "vectors":
        return _vectors(spec, a, arrays)
    w = arrays["weight"]
    if op == "embed_projection":
        rows = w.T  # (E, P)
    elif spec.layout == "depthwise":
        rows = w.reshape(-1, w.shape[-1]).T  # (C, kh*kw)
    else:
        rows = w.reshape(len(w), -1)  # (O, K)
    bias = arrays.get("bias")
    if bias is not None and bias.shape != (len(rows),):
        raise ValueError(f"{op}: bias has shape {bias.shape}; {(len(rows),)} is expected")
    values = panels(rows, np.zeros(len(rows)) if bias is None else bias, getattr(a, "groups", 1))
    return _rounded(values, dtype, op).tobytes()


def packed_type(op: Op, wanted: str) -> str:
    """The type the weights of this operator get where the user wants `wanted`: some stay float32."""
    return wanted if op.layout in ("panels", "depthwise") else "f32"


def panels(rows: np.ndarray, bias: np.ndarray, groups: int = 1) -> np.ndarray:
    """rows (O,K) and bias (O) to panels: for each its biases, then K times its weights; zeros fill it up."""
    O, K = rows.shape
    if O % groups:
        raise ValueError(f"{groups} groups do not divide {O} output channels")
    table = np.concatenate([bias.reshape(1, O), rows.T])  # (1+K, O): one line a step of the kernel
    each = O // groups
    parts = []
    for group in range(groups):
        for start in range(0, each, PANEL):
            width = min(PANEL, each - start)
            panel = np.zeros((1 + K, -(-width // QUAD) * QUAD), table.dtype)
            panel[:, :width] = table[:, group * each + start : group * each + start + width]
            parts.append(panel.reshape(-1))
    return np.concatenate(parts)


def _vectors(op: Op, a: Attrs, w: Mapping[str, np.ndarray]) -> bytes:
    """Rows of C numbers: y = x * first + second, after layernorm's own normalisation; one row of slopes for prelu."""
    if op.name == "prelu":
        values = [w["slope"]]
    elif op.name == "batchnorm":
        scale = w["gamma"] / np.sqrt(w["running_var"] + a.eps)
        values = [scale, w["beta"] - w["running_mean"] * scale]
    else:
        values = [w["gamma"], w["beta"]]
    if len({v.shape for v in w.values()}) != 1:
        raise ValueError(f"{op.name}: its weights have shapes {[v.shape for v in w.values()]}; one is expected")
    return _rounded(np.concatenate(values), "f32", op.name).tobytes()


def _present(op: Op, weights: Mapping[str, np.ndarray | None]) -> dict[str, np.ndarray]:
    """The operator's weights in float64."""
    unknown = set(weights) - {w.name for w in op.weights}
    if unknown:
        raise ValueError(f"{op.name} has no weights called {', '.join(sorted(unknown))}")
    out = {}
    for w in op.weights:
        array = weights.get(w.name)
        if array is not None:
            out[w.name] = np.asarray(array, np.float64)
        elif w.needs is None:
            raise ValueError(f"{op.name} has no {w.name} to pack")
    return out


def _rounded(values: np.ndarray, dtype: str, name: str) -> np.ndarray:
    if dtype not in TYPES:
        raise ValueError(f"weights can be {' or '.join(TYPES)}, not {dtype!r}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has a weight that is not finite (NaN or infinity): training has diverged")
    with np.errstate(over="ignore"):
        out = values.astype(TYPES[dtype])
    if not np.isfinite(out).all():
        worst = values[np.argmax(np.abs(values))]
        limit = f"{HALF_MAX:g}, where half precision ends" if dtype == "f16" else "what float32 holds"
        raise ValueError(f"{name} has a weight of {worst:g}, beyond {limit}: export it with float32 weights")
    return out
