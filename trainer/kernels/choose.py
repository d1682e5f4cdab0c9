"""Which variant of a kernel is fastest on this card, for this shape: measured when a net is planned, kept for the next.

Every variant is correct; they differ in tiles and splits, and so in the order of sums. The table is a small JSON file
for each card; without a device that can measure, the variant expected to be fastest is taken.
"""

from __future__ import annotations

import json
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..ops import OPS
from . import calls_gemm, calls_other
from .call import Call, Ref, Shapes
from .calls_gemm import Variant

CANDIDATES = 10  # variants of a part that are timed: those expected to be best
BLOCK = 1 << 20  # values of the random numbers that fill the arrays


class Choice:
    """The calls of an operator with the variants chosen for a device. path: where the table is kept, or None."""

    def __init__(self, device: Any, path: Path | None = None):
        self.device, self.path = device, path
        self.table: dict[str, int] = {}
        self.measured = 0
        if path is not None and path.exists():
            self.table = json.loads(path.read_text())

    def calls(self, op: str, direction: str, s: Shapes) -> list[Call]:
        if op not in calls_gemm.PARTS:
            return calls_other.CALLS[op](direction, s)
        return [call for variant in self._chosen(op, direction, s) for call in variant.calls]

    def scratch(self, op: str, direction: str, s: Shapes) -> int:
        if op not in calls_gemm.PARTS:
            return calls_other.SCRATCH.get(op, lambda direction, s: 0)(direction, s)
        return max((variant.scratch for variant in self._chosen(op, direction, s)), default=0)

    def save(self) -> None:
        """Keep the table for the next run. A folder that cannot be written is no reason to stop."""
        if self.path is None or not self.measured:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(".tmp")
            draft.write_text(json.dumps(self.table, indent=0))
            draft.replace(self.path)
        except OSError:
            pass

    def _chosen(self, op: str, direction: str, s: Shapes) -> list[Variant]:
        chosen = []
        for part, variants in calls_gemm.parts(op, direction, s).items():
            names = [variant.name for variant in variants[:CANDIDATES]]
            shape = (sorted(vars(s.a).items()), s.N, s.x, s.y, sorted(s.adds), sorted(s.want))
            key = sha256(repr((op, direction, part, shape, names)).encode()).hexdigest()[:16]
            if key not in self.table and len(names) > 1 and hasattr(self.device, "measure"):
                self.table[key] = self._fastest(op, s, variants[:CANDIDATES])
                self.measured += 1
            chosen.append(variants[self.table.get(key, 0)])
        return chosen

    def _fastest(self, op: str, s: Shapes, variants: list[Variant]) -> int:
        """Time each on arrays of its own, filled with random numbers."""
        sizes = {"x": s.N * prod(s.x), "y": s.N * prod(s.y)}
        sizes |= {"d:x": sizes["x"], "add:x": sizes["x"], "dy": sizes["y"]}
        for w in OPS[op].OP.weights:
            sizes[w.name] = sizes[f"d:{w.name}"] = prod(w.shape(s.a, s.x))
        sizes["scratch"] = max(variant.scratch for variant in variants) // 4 + 1
        numbers = np.random.default_rng(0).standard_normal(BLOCK).astype(np.float32) * np.float32(0.1)
        at, starts = 0, {}
        for role, size in sizes.items():
            starts[role] = at
            at += -(-4 * size // 256) * 256
        base = self.device.allocate(at)
        try:
            for start in range(0, at, 4 * BLOCK):
                self.device.upload(base + start, numbers[: min(BLOCK, (at - start) // 4)])
            times = []
            for variant in variants:
                bound = []
                for call in variant.calls:
                    refs = [arg for arg in call.args if isinstance(arg, Ref)]
                    bound.append(
                        (call, tuple(base + starts[r.role] + r.offset if r.role in starts else None for r in refs))
                    )
                times.append(self.device.measure(bound))
        finally:
            self.device.release(base)
        return times.index(min(times))
