"""Which launches of a step may run side by side: an order that is partial, and lanes to carry it out.

Launches are given in an order that is right when one follows the other. Two of them may run at the same time unless
one writes bytes of the arena that the other reads or writes. A lane is a stream: what stands in one lane runs in order,
and a launch waits for those before it, in other lanes, that it depends on. Sums have the order they always have, so the
bits are those of one lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels.call import Call, Ref
from ..kernels.tiles import COUNTERS

LANES = 3  # side by side on a device; more find little to do in the nets this is made for


@dataclass(frozen=True)
class Span:
    """Bytes [start, end) that a launch reads, or (writes) may change."""

    start: int
    end: int
    writes: bool


class Bound(tuple[Call, tuple[int | None, ...]]):
    """A call, and the address of each of its Refs in order. spans: what it touches; None: nothing may run beside it."""

    spans: tuple[Span, ...] | None

    def __new__(
        cls, call: Call, addresses: tuple[int | None, ...], spans: tuple[Span, ...] | None = None
    ) -> Bound:
        bound = super().__new__(cls, (call, addresses))
        bound.spans = spans
        return bound


@dataclass(frozen=True)
class Task:
    """A launch in its lane, and the launches (indices) in other lanes it waits for. follows: it waits for the one
    before it in its lane, and for no other."""

    lane: int
    waits: tuple[int, ...]
    follows: bool


def conflict(a: Bound, b: Bound) -> bool:
    """Whether one has to wait for the other. A plain pair of call and addresses has to, always."""
    mine, other = getattr(a, "spans", None), getattr(b, "spans", None)
    if mine is None or other is None:
        return True
    return any((s.writes or t.writes) and s.start < t.end and t.start < s.end for s in mine for t in other)


def needs(launches: Sequence[Bound]) -> list[set[int]]:
    """For each launch those before it that it has to wait for and that nothing between makes it wait for already."""
    direct: list[set[int]] = []
    behind: list[set[int]] = []  # all that a launch waits for, through others too
    for i, launch in enumerate(launches):
        found: set[int] = set()
        known: set[int] = set()
        for j in range(i - 1, -1, -1):
            if j not in known and conflict(launches[j], launch):
                found.add(j)
                known |= behind[j] | {j}
        direct.append(found)
        behind.append(known)
    return direct


def schedule(launches: Sequence[Bound], lanes: int = LANES) -> list[Task]:
    """A launch follows the latest it depends on in that one's lane, if it is the last there; else it goes to the lane
    that has been idle longest."""
    tasks: list[Task] = []
    last = [-1] * lanes  # the last launch of each lane
    for depends in needs(launches):
        after = [last.index(j) for j in sorted(depends, reverse=True) if j in last]
        free = min(range(lanes), key=lambda lane: last[lane])
        lane = after[0] if after else free if depends or not tasks else 0
        index = len(tasks)
        waits = tuple(sorted(j for j in depends if tasks[j].lane != lane))
        tasks.append(Task(lane, waits, last[lane] >= 0 and not waits))
        last[lane] = index
    return tasks


def in_lane(call: Call, addresses: Sequence[int | None], lane: int) -> tuple[int | None, ...]:
    """The addresses of a call that runs in this lane, which has counters of its own."""
    refs = [arg for arg in call.args if isinstance(arg, Ref)]
    shift = 4 * COUNTERS * lane
    return tuple(
        at + shift if at is not None and ref.role == "counters" else at for ref, at in zip(refs, addresses, strict=True)
    )
