"""Which variant of a kernel is fastest on this card, for this shape: measured when a net is planned, kept for the next.

Every variant is correct; they differ in tiles and splits, and so in the order of sums. The table is a small JSON file
for each card; without a device that can measure, the variant expected to be fastest is taken.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..ops import OPS
from . import calls_gemm, calls_other
from .call import Call, Ref, Shapes
from .calls_gemm import Variant
from .tiles import COUNTERS

CANDIDATES = 10  # variants of a part that are timed: those expected to be best
ALIGN = 256  # bytes: where each part's scratch memory starts
BLOCK = 1 << 20  # values of the random numbers that fill the arrays


# what a blueprint's word asks for, "auto" for nothing; columns (im2col) are gathered in passing, never stored
ALGORITHMS = {"winograd": "winograd", "direct": "direct", "implicit": "implicit", "im2col": "implicit"}


def algorithm_of(name: str) -> str:
    """Which algorithm of a blueprint a variant is: by its name, which is that of a tile for implicit GEMM."""
    return "winograd" if name.startswith("winograd") else "implicit" if name[0].isdigit() else "direct"


def _shifted(call: Call, offset: int) -> Call:
    """The call with its scratch memory so many bytes further on."""
    args = tuple(
        replace(arg, offset=arg.offset + offset) if isinstance(arg, Ref) and arg.role == "scratch" else arg
        for arg in call.args
    )
    return replace(call, args=args)


def _read(path: Path) -> dict[str, int]:
    """The table in a file; a damaged one is measured anew."""
    try:
        found = json.loads(path.read_text())
        return {str(key): int(place) for key, place in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


class Choice:
    """The calls of an operator with the variants chosen for a device. path: where the table is kept, or None.

    given: choices that hold whatever the table says, those of a run to be continued, whose bits depend on them. used:
    the choices asked for so far. limit: bytes of scratch memory a variant may need, where there is one of so little.
    """

    def __init__(self, device: Any, path: Path | None = None, given: dict[str, int] | None = None):
        self.device, self.path, self.given = device, path, given or {}
        self.table: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.limit: int | None = None
        self.measured = 0
        if path is not None and path.exists():
            self.table = _read(path)

    def calls(self, op: str, direction: str, s: Shapes, room: int | None = None) -> list[Call]:
        """room: of fewer samples than the net was planned for, the bytes of scratch memory there are; then nothing is
        measured."""
        if op not in calls_gemm.PARTS:
            return calls_other.CALLS[op](direction, s)
        if room is not None:
            chosen = [self._allowed(v, s.algorithm, room)[0] for v in calls_gemm.parts(op, direction, s).values()]
            assert all(v.scratch <= room for v in chosen), "fewer samples need more scratch memory"
            return [call for variant in chosen for call in variant.calls]
        chosen, out, at = self._chosen(op, direction, s), list[Call](), 0
        for variant in chosen:
            out += [_shifted(call, at) for call in variant.calls] if at else variant.calls
            at += self._apart(variant)
        return out

    def scratch(self, op: str, direction: str, s: Shapes) -> int:
        if op not in calls_gemm.PARTS:
            return calls_other.SCRATCH.get(op, lambda direction, s: 0)(direction, s)
        chosen, at, most = self._chosen(op, direction, s), 0, 0
        for variant in chosen:
            most = max(most, at + variant.scratch)
            at += self._apart(variant)
        return most

    def _apart(self, variant: Variant) -> int:
        """How far after this part's scratch the next part's begins: behind it, so that both can run at once, unless
        memory is short."""
        return 0 if self.limit is not None else -(-variant.scratch // ALIGN) * ALIGN

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
        for part, every in calls_gemm.parts(op, direction, s).items():
            variants = self._allowed(every, s.algorithm, self.limit)
            names = [variant.name for variant in variants]
            shape = (sorted(vars(s.a).items()), s.N, s.x, s.y, sorted(s.adds), sorted(s.want), s.half)
            way = "train" if direction == "again" else direction  # the same variant, and so the same bits
            key = sha256(repr((op, way, part, shape, names)).encode()).hexdigest()[:16]
            place = self.given.get(key, self.table.get(key))
            if place is None and len(names) > 1 and hasattr(self.device, "measure"):
                place = self.table[key] = self._fastest(op, s, variants)
                self.measured += 1
            if place is not None and len(names) > 1:
                self.used[key] = place
            chosen.append(variants[place or 0])
        return chosen

    @staticmethod
    def _allowed(variants: list[Variant], algorithm: str, limit: int | None) -> list[Variant]:
        """Those of the algorithm the blueprint asks for, if there are any, that need no more scratch than the limit,
        or else the least."""
        wanted = ALGORITHMS.get(algorithm)
        found = [v for v in variants if wanted in (None, algorithm_of(v.name))] or variants
        if limit is not None:
            found = found if min(v.scratch for v in found) <= limit else variants
            least = max(limit, min(v.scratch for v in found))
            found = [v for v in found if v.scratch <= least]
        return found[:CANDIDATES]

    def _fastest(self, op: str, s: Shapes, variants: list[Variant]) -> int:
        """Time each on arrays of its own, filled with random numbers."""
        sizes = {"x": s.N * prod(s.x), "y": s.N * prod(s.y)}
        sizes |= {"d:x": sizes["x"], "add:x": sizes["x"], "dy": sizes["y"]}
        for w in OPS[op].OP.weights:
            sizes[w.name] = sizes[f"d:{w.name}"] = prod(w.shape(s.a, s.x))
        sizes["scratch"] = max(variant.scratch for variant in variants) // 4 + 1
        sizes |= {"counters": COUNTERS, "index": sizes["y"] // 4 + 1}
        numbers = np.random.default_rng(0).standard_normal(BLOCK).astype(np.float32) * np.float32(0.1)
        at, starts = 0, {}
        for role, size in sizes.items():
            starts[role] = at
            at += -(-4 * size // 256) * 256
        base = self.device.allocate(at)
        try:
            for start in range(0, at, 4 * BLOCK):
                self.device.upload(base + start, numbers[: min(BLOCK, (at - start) // 4)])
            self.device.upload(base + starts["counters"], np.zeros(COUNTERS, np.int32))
            winners = np.random.default_rng(1).integers(0, 4, sizes["y"], np.uint8)
            self.device.upload(base + starts["index"], winners)
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
