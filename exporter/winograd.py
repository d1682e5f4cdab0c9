"""3 x 3 weights transformed for Winograd's algorithm, stored behind the others: runtime_c/FORMAT.md,
section 5. A device whose kernels use them takes them from the file instead of making them as it loads.

They are the same on every machine: sums and products are rounded as the kernels of processors with fused multiply-add
round them, whose answers stay the same bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from litenet.pyruntime import InferenceEngine
from litenet.trainer.memory import bytes_text

from . import format
from .pack import PANEL

TILES = {1: 4, 2: 2}  # outputs along a tile, by the algorithm of the record: F(4 x 4, 3 x 3) and F(2 x 2, 3 x 3)
AGREES = 1e-3  # of the largest value: kernels without fused multiply-add round otherwise


def store(model: format.Model, most: float) -> tuple[format.Model, list[str]]:
    """The model with the transformed weights of the layers that the runtime would run by Winograd's algorithm on
    this machine, the largest first, as long as they take at most so many megabytes; and what to tell about it. Raises
    ValueError where the runtime does not agree with itself."""
    before = format.write(model)
    with InferenceEngine(before, tuned=False) as engine:
        chosen = {i: algorithm for i, layer in enumerate(engine.layers) for algorithm, m in TILES.items()
                  if layer.algorithm.startswith(f"winograd {m}x{m}") and layer.weight_dtype == "float32"}  # fmt: skip
        kernels = engine.kernels
    ops, left, count = list(model.ops), 1e6 * most, 0
    for i in sorted(chosen, key=lambda i: -len(ops[i].weights)):
        channels = model.tensors[ops[i].inputs[0]].shape[2]
        size = stored_bytes(chosen[i], channels, model.tensors[ops[i].output].shape[2])
        if size > left:
            continue
        left, count = left - size, count + 1
        added = transformed(chosen[i], ops[i].weights, channels)
        assert len(added) == size
        ops[i] = replace(ops[i], weights=ops[i].weights + added, algorithm=chosen[i])
    if not chosen:
        return model, [f"  nothing is stored for Winograd: no layer is run by it by the kernels {kernels}"]
    if not count:
        return model, [f"  nothing is stored for Winograd: no layer's weights fit in {most:g} MB"]
    made = replace(model, ops=ops)
    after = format.write(made)
    _agree(before, after)
    more, others = len(after) - len(before), len(chosen) - count
    what = f"{count} layer{'s' * (count > 1)}"
    told = f"  {more:,} of these bytes ({bytes_text(more)}) are the weights of {what} as Winograd's algorithm"
    told += " needs them: loading does not make them" + (f", but those of {others} more" if others else "")
    return made, [told]


def stored_bytes(algorithm: int, channels: int, outputs: int) -> int:
    """What a convolution's transformed weights take."""
    return 4 * (TILES[algorithm] + 2) ** 2 * (channels * outputs + PANEL)


def transformed(algorithm: int, block: bytes, channels: int) -> bytes:
    """G g G' of the panels of a 3 x 3 convolution with so many input channels; rows and columns of g in that order."""
    panels = np.frombuffer(block, "<f4").reshape(-1, 1 + 9 * channels, PANEL)  # the biases, then (u, v, c)
    g = panels[:, 1:].reshape(-1, 3, 3, channels, PANEL)
    m = TILES[algorithm]
    rows = _points(m, g[:, 0], g[:, 1], g[:, 2])  # each (panel, v, c, lane)
    gap, parts = bytes(4 * PANEL), []
    for h in rows:
        for point in _points(m, h[:, 0], h[:, 1], h[:, 2]):
            parts += [np.ascontiguousarray(point, "<f4").tobytes(), gap]
    return b"".join(parts)


def _points(m: int, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    """G g, at the points 0, 1, -1, for m = 4 also 2, -2, and infinity: as runtime_c/src/fast_winograd.h has it."""
    if m == 2:
        s, h = (a + c) * np.float32(0.5), b * np.float32(0.5)
        return a, s + h, s - h, c
    one, sixth = np.float32(1), np.float32(1) / np.float32(6)
    s, h = (a + c) * -sixth, b * sixth
    p, q = _fused(a, one / np.float32(24), c * sixth), b * (one / np.float32(12))
    return a * np.float32(0.25), s - h, s + h, p + q, p - q, c


def _fused(a: np.ndarray, k: np.float32, b: np.ndarray) -> np.ndarray:
    """a k + b in float32, rounded once: the product is exact in float64, and a sum that is not is made odd, so that the
    second rounding cannot take it for a tie (Boldo and Melquiond 2008)."""
    x, y = a.astype(np.float64) * np.float64(k), b.astype(np.float64)
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)  # two-sum: exact
    bits = total.view(np.int64)
    nudge = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    bits += np.where(nudge, np.where((error > 0) == (total > 0), 1, -1), 0)
    return total.astype(np.float32)


def _agree(before: bytes, after: bytes) -> None:
    """Both files give the same, as far as kernels round alike."""
    with InferenceEngine(before, tuned=False) as one, InferenceEngine(after, tuned=False) as two:
        x = np.random.default_rng(0).standard_normal(one.input_shape).astype(np.float32)
        pairs = [(np.atleast_1d(v).ravel() for v in (y, z)) for y, z in zip(_all(one, x), _all(two, x), strict=True)]
    for y, z in pairs:
        if not np.abs(y - z).max() <= AGREES * np.abs(y).max():
            raise ValueError("the runtime does not give the same by stored weights of Winograd")


def _all(engine: InferenceEngine, x: np.ndarray) -> list[np.ndarray]:
    found = engine.predict(x)
    return list(found) if isinstance(found, tuple) else [found]
