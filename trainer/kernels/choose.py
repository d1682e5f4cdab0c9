"""Which variant of a kernel is fastest on this card, for this shape: measured when a net is planned, kept for the next.

Every variant is correct; they differ in tiles and splits, and so in the order of sums. The table is a small JSON file
for each card; without a device that can measure, the variant expected to be fastest is taken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..ops import OPS
from . import calls_gemm, calls_int8, calls_moments, calls_other
from .call import Call, Kernel, Ref, Shapes
from .calls_gemm import Variant
from .tiles import COUNTERS

CANDIDATES = 12  # variants of a part that are timed: those expected to be best
CLOSE = 1.02  # times the fastest's time: as good, where it takes less scratch memory
ALIGN = 256  # bytes: where each part's scratch memory starts
BLOCK = 1 << 20  # values of the random numbers that fill the arrays

Order = list[tuple[int, float]]  # (place among the variants, microseconds), fastest first; NaN: not known


# what a blueprint's word asks for, "auto" for nothing; columns (im2col) are gathered in passing, never stored
ALGORITHMS = {"winograd": "winograd", "direct": "direct", "implicit": "implicit", "im2col": "implicit"}


def algorithm_of(name: str) -> str:
    """Which algorithm of a blueprint a variant is: by its name, which is that of a tile for implicit GEMM."""
    return "winograd" if name.startswith("winograd") else "implicit" if name[0].isdigit() else "direct"


def candidates(variants: list[Variant], algorithm: str) -> list[Variant]:
    """Those of the algorithm the blueprint asks for, if there are any, that are expected to be best; variants that are
    another with a launch for the moments are not counted."""
    wanted = ALGORITHMS.get(algorithm)
    found = [v for v in variants if wanted in (None, algorithm_of(v.name))] or variants
    passed = {v.name for v in found if v.name.endswith(calls_moments.PASS)}
    best = {v.name for v in [v for v in found if v.name not in passed][:CANDIDATES]}
    return [v for v in found if v.name in best | passed]


def by_time(times: list[float], scratch: list[int]) -> list[int]:
    """Places of the variants, fastest first; of those as good as the fastest, that which takes least memory."""
    close = CLOSE * min(times)
    return sorted(
        range(len(times)), key=lambda i: (0.0, scratch[i], times[i]) if times[i] <= close else (1.0, times[i], 0.0)
    )


def within(scratch: Sequence[Sequence[int]], limit: int | None) -> tuple[bool, list[int | None]]:
    """scratch: bytes of each part's variants, fastest first. (Whether each part has scratch memory of its own, so that
    they can run at once; the place of each part's variant.) Where that is more than the limit the parts share it, and
    take the fastest variants that need no more; None: there is none."""
    together = sum(_aligned(sizes[0]) for sizes in scratch[:-1]) + (scratch[-1][0] if scratch else 0)
    if limit is None or together <= limit:
        return True, [0] * len(scratch)
    return False, [next((i for i, size in enumerate(sizes) if size <= limit), None) for sizes in scratch]


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _placed(call: Call, at: int, size: int) -> Call:
    """The call of a variant with `size` bytes of scratch memory, which start at `at`."""

    def place(ref: Ref) -> Ref:
        return replace(ref, offset=at + ref.offset, bytes=ref.bytes or size - ref.offset)

    return replace(
        call, args=tuple(place(arg) if isinstance(arg, Ref) and arg.role == "scratch" else arg for arg in call.args)
    )


def _read(path: Path) -> dict[str, Order]:
    """The table in a file; a damaged one, and one without times, is measured anew."""
    try:
        found = json.loads(path.read_text())
        return {str(key): [(int(place), float(us)) for place, us in order] for key, order in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _timed(entry: Any) -> tuple[int, float]:
    return (entry, math.nan) if isinstance(entry, int) else (int(entry[0]), float(entry[1]))


class Choice:
    """The calls of an operator with the variants chosen for a device. path: where the table is kept, or None.

    The table holds, for each part of an operator at a shape, its variants in the order of their times, so that what is
    fastest within a bound of scratch memory follows from one measurement. given: orders that hold whatever the table
    says, those of a run to be continued, whose bits depend on them; places alone, of older runs, have no times. used:
    the orders asked for so far.
    """

    def __init__(self, device: Any, path: Path | None = None, given: Mapping[str, Sequence[Any]] | None = None):
        self.device, self.path = device, path
        self.given = {key: [_timed(entry) for entry in order] for key, order in (given or {}).items()}
        self.table = _read(path) if path is not None and path.exists() else {}
        self.used: dict[str, Order] = {}
        self.measured = 0

    def calls(self, op: str, direction: str, s: Shapes, room: int, measure: bool = True) -> list[Call]:
        """room: bytes of scratch memory there are, what `scratch` said when the net was planned. Of fewer samples than
        it was planned for nothing is measured."""
        if s.scales and direction != "backward":
            return calls_int8.forward(op, s)[0]
        if s.scales:
            first, own, instead = calls_int8.before(op, s)
            rest = self.calls(op, direction, replace(s, scales=()), room - own, measure)
            return [*first, *(calls_int8.over(call, own, room - own, instead) for call in rest)]
        if op not in calls_gemm.PARTS:
            return calls_other.CALLS[op](direction, s)
        apart, chosen = self._within(op, direction, s, room, measure)
        apart = apart and len(chosen) > 1
        assert all(v.scratch <= room for v in chosen), f"{op} needs more scratch memory than {room} bytes"
        out, at = list[Call](), 0
        for variant in chosen:
            out += [_placed(call, at, variant.scratch) for call in variant.calls] if apart else variant.calls
            at += _aligned(variant.scratch) if apart else 0
        return out

    def scratch(self, op: str, direction: str, s: Shapes, limit: int | None = None) -> int:
        """Bytes of scratch memory of the fastest variants, or of the fastest that need no more than `limit`."""
        if s.scales and direction != "backward":
            return calls_int8.forward(op, s)[1]
        if s.scales:
            own = calls_int8.before(op, s)[1]
            left = None if limit is None else max(limit - own, 0)
            return own + self.scratch(op, direction, replace(s, scales=()), left)
        if op not in calls_gemm.PARTS:
            return calls_other.SCRATCH.get(op, lambda direction, s: 0)(direction, s)
        apart, chosen = self._within(op, direction, s, limit, True)
        if apart:
            return sum(_aligned(v.scratch) for v in chosen[:-1]) + chosen[-1].scratch if chosen else 0
        return max(v.scratch for v in chosen)

    def options(self, op: str, direction: str, s: Shapes) -> list[list[tuple[float, int]]]:
        """Of a matrix product, for each part: (microseconds, bytes of scratch memory) of its variants, fastest first.
        NaN where nothing was measured; 0 where there is no choice."""
        found = []
        for part, every in calls_gemm.parts(op, direction, s).items():
            variants = candidates(every, s.algorithm)
            ordered = self._ordered(op, direction, part, s, variants, True)
            order = self._known(self._key(op, direction, part, s, variants)) if len(variants) > 1 else [(0, 0.0)]
            times = [us for _, us in order] if order else [math.nan] * len(ordered)
            found.append([(us, v.scratch) for us, v in zip(times, ordered, strict=True)])
        return found

    def kernels(self, op: str, direction: str, s: Shapes) -> set[Kernel]:
        """What has to be compiled before the calls are known: of a part still to be measured, every variant."""
        if s.scales and direction != "backward":
            return {call.kernel for call in calls_int8.forward(op, s)[0]}
        if s.scales:
            own = {call.kernel for call in calls_int8.before(op, s)[0]}
            return own | self.kernels(op, direction, replace(s, scales=()))
        if op not in calls_gemm.PARTS:
            return {call.kernel for call in calls_other.CALLS[op](direction, s)}
        found: list[Variant] = []
        for part, every in calls_gemm.parts(op, direction, s).items():
            variants = candidates(every, s.algorithm)
            order = self._known(self._key(op, direction, part, s, variants))
            measured = order is None and hasattr(self.device, "measure")
            found += variants if measured else [variants[order[0][0] if order else 0]]
        return {call.kernel for variant in found for call in variant.calls}

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

    def _within(
        self, op: str, direction: str, s: Shapes, limit: int | None, measure: bool
    ) -> tuple[bool, list[Variant]]:
        """As `within`, with the variants themselves."""
        parts = calls_gemm.parts(op, direction, s)
        ordered = {
            part: self._ordered(op, direction, part, s, candidates(every, s.algorithm), measure)
            for part, every in parts.items()
        }
        apart, places = within([[v.scratch for v in variants] for variants in ordered.values()], limit)
        return apart, [
            min(every, key=lambda v: v.scratch) if place is None else ordered[part][place]
            for (part, every), place in zip(parts.items(), places, strict=True)
        ]

    def _ordered(
        self, op: str, direction: str, part: str, s: Shapes, variants: list[Variant], measure: bool
    ) -> list[Variant]:
        """Fastest first: as measured, or, where nothing can be, as expected."""
        if len(variants) == 1:
            return variants
        key = self._key(op, direction, part, s, variants)
        order = self._known(key)
        if order is None and measure and hasattr(self.device, "measure"):
            times = self._times(op, s, variants)
            places = by_time(times, [v.scratch for v in variants])
            order = self.table[key] = [(i, round(1e6 * times[i], 3)) for i in places]
            self.measured += 1
        if order is None:
            return variants
        self.used[key] = order
        return [variants[i] for i, _ in order]

    def _known(self, key: str) -> Order | None:
        return self.given.get(key, self.table.get(key))

    @staticmethod
    def _key(op: str, direction: str, part: str, s: Shapes, variants: list[Variant]) -> str:
        names = [variant.name for variant in variants]
        shape: tuple[Any, ...] = (sorted(vars(s.a).items()), s.N, s.x, s.y, sorted(s.adds), sorted(s.want), s.half)
        shape += ("moments",) if calls_moments.wanted(direction, s) else ()
        way = "train" if direction == "again" else direction  # the same variant, and so the same bits
        return sha256(repr((op, way, part, shape, names)).encode()).hexdigest()[:16]

    def _times(self, op: str, s: Shapes, variants: list[Variant]) -> list[float]:
        """Seconds of each, on arrays of its own, filled with random numbers."""
        sizes = {"x": s.N * prod(s.x), "y": s.N * prod(s.y)}
        sizes |= {"d:x": sizes["x"], "add:x": sizes["x"], "dy": sizes["y"]}
        for w in OPS[op].OP.weights:
            sizes[w.name] = sizes[f"d:{w.name}"] = prod(w.shape(s.a, s.x))
        sizes["scratch"] = max(variant.scratch for variant in variants) // 4 + 1
        sizes["moments"] = calls_moments.floats(s.N * prod(s.y[:-1]), s.y[-1])
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
        return times
