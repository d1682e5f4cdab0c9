"""Sections 4 and 5 of runtime_c/FORMAT.md for tests/reader.py: what operators do on f32 tensors.

Written from the page alone, as the reader is.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np


def unpack(op: Any, channels: int, K: int, groups: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """bias (channels) and weights (K, channels) of panels."""
    flat = np.frombuffer(op.weights, "<f2" if op.half else "<f4").astype(np.float32)
    out, at, each = [], 0, channels // groups
    for _ in range(groups):
        for start in range(0, each, 16):
            have = min(16, each - start)
            width = (have + 3) // 4 * 4
            out.append(flat[at : at + width * (1 + K)].reshape(1 + K, width)[:, :have])
            at += width * (1 + K)
    table = np.concatenate(out, axis=1)
    return table[0], table[1:]


def compute(op: Any, inputs: list[np.ndarray], y: tuple[int, ...]) -> np.ndarray:
    x, a = inputs[0], op.attrs
    if op.name == "linear":
        rows = x.reshape(1, -1) if len(y) == 1 else x
        b, w = unpack(op, y[-1], rows.shape[1])
        h = (rows @ w + b).reshape(y)
    elif op.name == "conv2d":
        G, C, O = a["groups"], x.shape[2] // a["groups"], y[2] // a["groups"]
        taps = a["kernel_size"][0] * a["kernel_size"][1]
        b, w = unpack(op, y[2], taps * C, G)
        seen = np.stack(list(look(op, x, y)))  # (taps, Ho, Wo, channels)
        h = np.concatenate(
            [
                np.tensordot(
                    seen[..., g * C : (g + 1) * C], w[:, g * O : (g + 1) * O].reshape(taps, C, O), ([0, 3], [0, 1])
                )
                for g in range(G)
            ],
            axis=2,
        )
        h = h + b
    elif op.name == "depthwise_conv2d":
        b, w = unpack(op, y[2], a["kernel_size"][0] * a["kernel_size"][1])
        h = b + sum(seen * wk for seen, wk in zip(look(op, x, y), w, strict=True))
    elif op.name == "maxpool2d":
        h = np.max(np.stack(list(look(op, x, y, -np.inf))), axis=0)
    elif op.name == "avgpool2d":
        counts = sum(look(op, np.ones_like(x), y, float(a["count_include_pad"])))
        h = sum(look(op, x, y)) / counts
    elif op.name == "global_avg_pool":
        h = x.mean((0, 1))
    elif op.name in ("flatten", "reshape"):
        h = x.reshape(y)
    elif op.name == "concat":
        h = np.concatenate(inputs, a["axis"])
    elif op.name == "resize":
        h = resize(x, a)
    elif op.name == "pad":
        h = np.full(y, a["value"], np.float32)
        h[tuple(slice(p, p + n) for p, n in zip(a["before"], x.shape, strict=False))] = x
    elif op.name == "slice":
        h = np.take(x, a["begin"] + a["step"] * np.arange(a["size"]), a["axis"])
    elif op.name == "transpose":
        h = x.transpose(a["axes"][: x.ndim])
    elif op.name == "unary":
        h = (np.exp(x), np.sqrt(np.maximum(x, 0)), 1 / x)[a["function"]]
    elif op.name == "prelu":
        h = np.where(x > 0, x, x * np.frombuffer(op.weights, "<f4"))
    elif op.name == "mul":
        h = x * inputs[1]
    elif op.name == "add":
        h = x + inputs[1]
    elif op.name in ("batchnorm", "layernorm"):
        first, second = np.frombuffer(op.weights, "<f4").reshape(2, -1)
        if op.name == "layernorm":
            d = x - x.mean(-1, keepdims=True)
            x = d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(a["eps"]))
        h = x * first + second
    elif op.name == "softmax":
        e = np.exp(x - x.max(-1, keepdims=True))
        h = e / e.sum(-1, keepdims=True)
    elif op.name == "embed_projection":
        pixels = x.reshape(-1, x.shape[2]).T  # (C, P)
        rows = pixels if a["keep_channels"] else pixels.sum(0, keepdims=True)
        h = (rows @ unpack(op, a["embed_dim"], rows.shape[1])[1]).reshape(-1)
    else:
        h = x
    return activate(op.activation, h, np.float32(a.get("alpha", 0)))


def look(op: Any, x: np.ndarray, y: tuple[int, ...], outside: float = 0.0):
    """For each tap, row by row, what all windows see through it: (Ho, Wo, C)."""
    (kh, kw), (sh, sw), (top, left, bottom, right) = (op.attrs[n] for n in ("kernel_size", "stride", "padding"))
    dh, dw = op.attrs.get("dilation", (1, 1))
    padded = np.pad(x, ((top, bottom), (left, right), (0, 0)), constant_values=outside)
    for u in range(kh):
        for v in range(kw):
            yield padded[u * dh :: sh, v * dw :: sw][: y[0], : y[1]]


def resize(x: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    """Each axis alone, as "Resize" has it; exact fractions."""
    for axis, m in enumerate(a["size"]):
        n, rows = x.shape[axis], []
        for i in range(m):
            p = (
                Fraction((2 * i + 1) * n - m, 2 * m),
                Fraction(i * n, m),
                Fraction(i * (n - 1), max(m - 1, 1)),
            )[a["coordinates"]]
            half = Fraction(1, 2)
            j = (math.floor(p), math.ceil(p - half), math.floor(p + half), math.ceil(p))[a["rounding"]]
            if a["mode"] == 0:
                rows.append(np.take(x, min(max(j, 0), n - 1), axis))
                continue
            p = min(max(p, Fraction(0)), Fraction(n - 1))
            j, f = math.floor(p), float(p - math.floor(p))
            rows.append(np.take(x, j, axis) * (1 - f) + np.take(x, min(j + 1, n - 1), axis) * f)
        x = np.stack(rows, axis)
    return x


def activate(number: int, h: np.ndarray, alpha: np.float32) -> np.ndarray:
    if number == 1:
        return np.maximum(h, 0)
    if number == 2:
        return np.minimum(np.maximum(h, 0), 6)
    if number == 3:
        return np.where(h > 0, h, alpha * h)
    if number == 4:
        return h * (1 + np.array([math.erf(v) for v in (h / math.sqrt(2)).reshape(-1)]).reshape(h.shape)) / 2
    if number == 5:
        return 1 / (1 + np.exp(-h))
    if number == 6:
        return np.tanh(h)
    if number == 7:
        return h / (1 + np.exp(-h))
    if number == 8:
        return h * np.minimum(np.maximum(h + 3, 0), 6) / 6
    if number == 9:
        return h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3))) / 2
    return h
