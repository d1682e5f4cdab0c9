"""Section 12 of runtime_c/FORMAT.md for tests/reader.py: operators on i8, in Python's whole numbers and NumPy's int64.

Written from the page alone, as the reader is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

# operator: lo and hi are bounds, least and largest S, border, M1 ("s" rescales, "q" requantises), M2, y has the scale
# of x, weights
BOUNDS = {
    "linear": (True, (0, 7), False, "", "", False, "panels8"),
    "conv2d": (True, (0, 7), False, "", "", False, "panels8"),
    "depthwise_conv2d": (True, (0, 7), False, "", "", False, "depthwise8"),
    "embed_projection": (True, (0, 7), False, "", "", False, "panels8"),
    "maxpool2d": (False, (0, 0), False, "", "", True, None),
    "avgpool2d": (False, (0, 0), False, "", "", True, None),
    "global_avg_pool": (True, (0, 0), False, "q", "", False, None),
    "flatten": (False, (0, 0), False, "", "", True, None),
    "reshape": (False, (0, 0), False, "", "", True, None),
    "transpose": (False, (0, 0), False, "", "", True, None),
    "slice": (False, (0, 0), False, "", "", True, None),
    "resize": (False, (0, 0), False, "", "", True, None),
    "pad": (False, (0, 0), True, "", "", True, None),
    "add": (True, (1, 24), False, "s", "s", False, None),
    "concat": (True, (1, 24), False, "s", "s", False, None),
    "mul": (True, (0, 0), False, "q", "", False, None),
    "batchnorm": (True, (1, 24), False, "", "", False, "vectors8"),
    "prelu": (True, (1, 24), False, "s", "", False, "vectors8"),
    "activation": (False, (0, 0), False, "", "", False, "table"),
    "unary": (False, (0, 0), False, "", "", False, "table"),
    "softmax": (False, (0, 0), False, "", "", False, "exponentials"),
    "quantize": (True, (0, 0), False, "", "", False, None),
}


@dataclass(frozen=True)
class Numbers:
    lo: int
    hi: int
    shift: int
    border: int
    m1: int
    m2: int


def numbers(r: bytes) -> Numbers:
    return Numbers(*struct.unpack_from("<bbBbii", r, 52))


def holds(name: str, n: Numbers) -> str:
    """What is wrong with the numbers of an operator; "" if nothing is."""
    bounds, shift, border, m1, m2, _, _ = BOUNDS[name]
    if n.lo > n.hi or not (bounds or (n.lo, n.hi) == (-128, 127)):
        return "lo and hi"
    if not shift[0] <= n.shift <= shift[1]:
        return "S"
    if n.border and not border:
        return "border"
    for m, kind in ((n.m1, m1), (n.m2, m2)):
        if not (m >= 0 if kind == "q" else abs(m) <= 1 << 21 if kind == "s" else m == 0):
            return "M"
    return ""


def weights_bytes(name: str, channels: int, K: int, groups: int, given: int) -> int:
    """given: what the record says, which decides the length of a table of exponentials."""
    layout = BOUNDS[name][6]
    if layout == "exponentials":
        return given if given % 2 == 0 and 2 <= given <= 512 else 512
    if layout in ("panels8", "depthwise8"):
        deep = -(-K // 4) * 4 if layout == "panels8" else K
        return groups * (-(-(channels // groups) // 4) * 4) * (8 + deep)
    return {"table": 256, None: 0}.get(layout, channels * (8 if name == "batchnorm" else 4))


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def unpack(name: str, block: bytes, channels: int, K: int, groups: int = 1) -> Arrays:
    """B (channels), M (channels), weights (K, channels)."""
    together = 4 if BOUNDS[name][6] == "panels8" else 1
    B, M, w, at = [], [], [], 0
    for _ in range(groups):
        for start in range(0, channels // groups, 16):
            have = min(16, channels // groups - start)
            width, fours = -(-have // 4) * 4, -(-K // together)
            both = np.frombuffer(block, "<i4", 2 * width, at).reshape(2, width)
            B.append(both[0, :have])
            M.append(both[1, :have])
            at += 8 * width
            v = np.frombuffer(block, np.int8, width * fours * together, at).reshape(fours, width, together)
            w.append(v[:, :have].transpose(0, 2, 1).reshape(fours * together, have)[:K])
            at += v.size
    return (np.concatenate(B).astype(np.int64), np.concatenate(M).astype(np.int64),
            np.concatenate(w, axis=1).astype(np.int64))  # fmt: skip


def wrap(v: np.ndarray) -> np.ndarray:
    return (v + (1 << 31)) % (1 << 32) - (1 << 31)


def requant(acc: np.ndarray, M: Any, S: int = 0) -> np.ndarray:
    return (acc * M + (1 << 30 + S)) >> 31 + S


def shifted(total: np.ndarray, S: int) -> np.ndarray:
    return wrap(total + (1 << (S - 1))) >> S


def compute(op: Any, inputs: list[np.ndarray], zeros: list[int], zy: int, scales: tuple[float, float],
            y: tuple[int, ...], look: Callable[..., Any]) -> np.ndarray:  # fmt: skip
    """y of one operator on i8, of quantize or dequantize. zeros: of the inputs; scales: of x and y; look: the taps."""
    a, n, name = op.attrs, op.numbers, op.name
    if name == "dequantize":
        return np.float32(scales[0]) * (inputs[0].astype(np.int32) - zeros[0]).astype(np.float32)
    if name == "quantize":
        return clamp(n, zy + rounded(inputs[0] * (np.float32(1) / np.float32(scales[1]))))
    x = inputs[0].astype(np.int64)
    v = [x.astype(np.int64) - z for x, z in zip(inputs, zeros, strict=True)]
    if name in ("linear", "conv2d", "depthwise_conv2d", "embed_projection"):
        acc, M = sums(op, x, zeros[0], y, look)
        return clamp(n, zy + requant(wrap(acc), M, n.shift)).reshape(y)
    if name == "add":
        return clamp(n, zy + shifted(v[0] * n.m1 + v[1] * n.m2, n.shift))
    if name == "mul":
        return clamp(n, zy + requant(v[0] * v[1], n.m1))
    if name == "concat":
        parts = [zy + shifted(part * m, n.shift) for part, m in zip(v, (n.m1, n.m2), strict=True)]
        return clamp(n, np.concatenate(parts, a["axis"]))
    if name == "batchnorm":
        M, B = np.frombuffer(op.weights, "<i4").reshape(2, -1).astype(np.int64)
        return clamp(n, zy + shifted(v[0] * M + B, n.shift))
    if name == "prelu":
        M = np.where(v[0] >= 0, n.m1, np.frombuffer(op.weights, "<i4").astype(np.int64))
        return clamp(n, zy + shifted(v[0] * M, n.shift))
    if name == "global_avg_pool":
        return clamp(n, zy + requant(v[0].sum((0, 1)), n.m1))
    if name == "avgpool2d":
        inside = sum(look(op, np.ones_like(x), y))
        taps = a["kernel_size"][0] * a["kernel_size"][1]
        count = np.full_like(inside, taps) if a["count_include_pad"] else inside
        return (2 * (sum(look(op, x, y)) + (count - inside) * zeros[0]) + count) // (2 * count)
    if name == "maxpool2d":
        return np.max(np.stack(list(look(op, x, y, -128))), axis=0)
    if name in ("activation", "unary"):
        return np.frombuffer(op.weights, np.int8)[x + 128]
    if name == "softmax":
        stored = np.frombuffer(op.weights, "<u2").astype(np.int64)
        T = np.append(stored, np.zeros(256 - stored.size, np.int64))[x.max(-1, keepdims=True) - x]
        total = T.sum(-1, keepdims=True)
        return np.minimum(127, (256 * T + total // 2) // total - 128)
    return moved(op, x, y)


def sums(op: Any, x: np.ndarray, zx: int, y: tuple[int, ...], look: Any) -> tuple[np.ndarray, np.ndarray]:
    """The accumulators in the shape of y, or the rows of it, and M."""
    a = op.attrs
    if op.name == "linear":
        rows = x.reshape(1, -1) if len(y) == 1 else x
        B, M, w = unpack(op.name, op.weights, y[-1], rows.shape[1])
        return (rows @ w + B).reshape(y), M
    if op.name == "embed_projection":
        pixels = x.reshape(-1, x.shape[2]).T
        rows = pixels if a["keep_channels"] else pixels.sum(0, keepdims=True)
        B, M, w = unpack(op.name, op.weights, a["embed_dim"], rows.shape[1])
        return rows @ w + B, M
    taps = a["kernel_size"][0] * a["kernel_size"][1]
    seen = list(look(op, x, y, zx))
    if op.name == "depthwise_conv2d":
        B, M, w = unpack(op.name, op.weights, y[2], taps)
        return B + sum(s * wk for s, wk in zip(seen, w, strict=True)), M
    G, C, O = a["groups"], x.shape[2] // a["groups"], y[2] // a["groups"]
    B, M, w = unpack(op.name, op.weights, y[2], taps * C, G)
    parts = []
    for g in range(G):
        columns = np.concatenate([s[..., g * C : (g + 1) * C] for s in seen], axis=2)
        parts.append(columns @ w[:, g * O : (g + 1) * O])
    return np.concatenate(parts, axis=2) + B, M


def moved(op: Any, x: np.ndarray, y: tuple[int, ...]) -> np.ndarray:
    a = op.attrs
    if op.name == "pad":
        h = np.full(y, op.numbers.border)
        h[tuple(slice(p, p + n) for p, n in zip(a["before"], x.shape, strict=False))] = x
        return h
    if op.name == "slice":
        return np.take(x, a["begin"] + a["step"] * np.arange(a["size"]), a["axis"])
    if op.name == "transpose":
        return x.transpose(a["axes"][: x.ndim])
    return resize(x, a) if op.name == "resize" else x.reshape(y)


def resize(x: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    D = 1
    for axis, m in enumerate(a["size"]):
        n, rows = x.shape[axis], []
        d = (2 * m, m, max(m - 1, 1))[a["coordinates"]]
        D *= d
        for i in range(m):
            p = ((2 * i + 1) * n - m, i * n, i * (n - 1))[a["coordinates"]]
            if a["mode"] == 0:
                exact, half = Fraction(p, d), Fraction(1, 2)
                j = (math.floor(exact), math.ceil(exact - half), math.floor(exact + half), math.ceil(exact))
                rows.append(np.take(x, min(max(j[a["rounding"]], 0), n - 1), axis))
                continue
            p = min(max(p, 0), (n - 1) * d)
            j, f = divmod(p, d)
            rows.append(np.take(x, j, axis) * (d - f) + np.take(x, min(j + 1, n - 1), axis) * f)
        x = np.stack(rows, axis)
    return x if a["mode"] == 0 else (2 * x + D) // (2 * D)


def clamp(n: Numbers, v: np.ndarray) -> np.ndarray:
    return np.clip(v, n.lo, n.hi)


def rounded(t: np.ndarray) -> np.ndarray:
    t = np.clip(np.where(np.isnan(t), np.float32(0), t), np.float32(-512), np.float32(512)).astype(np.float32)
    return np.trunc(np.where(t >= 0, t + np.float32(0.5), t - np.float32(0.5))).astype(np.int64)


def mixed(k: int) -> int:
    k = (k ^ k >> 16) * 0x7FEB352D % 2**32
    k = (k ^ k >> 15) * 0x846CA68B % 2**32
    return k ^ k >> 16


def made(seed: int, n: int) -> list[int]:
    """Section 7, kind 2: n values of 0 to 255."""

    def wave(phase: int) -> int:
        return (phase if phase < 2**31 else 2**32 - 1 - phase) >> 23

    a, b = mixed(seed) >> 4, mixed((seed + 1) % 2**32)
    waves = [2 * wave(i * a % 2**32) + wave(i * b % 2**32) for i in range(n)]
    return [(w + (mixed((seed + 2 + i) % 2**32) >> 24)) // 4 for i, w in enumerate(waves)]


def frame(v: np.ndarray, P: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Step 5 of section 8 for an i8 input; v (H, W, C)."""
    return np.clip((v.astype(np.int64) * P + Q) >> 16, -128, 127).astype(np.int8)
