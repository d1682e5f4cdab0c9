"""What a plan says about memory, without training: exact bytes, the peak and its owners, reuse, the largest batch.

Two reuse ratios, because one number hides half (b: bytes of each transient buffer, B: their sum):
    reuse by bytes = 1 - transient arena / sum of all transient values      values that overwrite count in the sum
    reuse by count = values whose bytes some other value also uses / all transient values
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .arena import max_live
from .errors import UserError
from .plan import FIXED, Buffer, Plan

UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
         "kib": 2**10, "mib": 2**20, "gib": 2**30}  # fmt: skip

LIMIT, TRIES = 1 << 21, 1000


@dataclass(frozen=True)
class MemoryReport:
    """All in bytes. peak_owners: (layer, kind, bytes) of what is alive at the peak, largest first."""

    arena: int
    lower_bound: int
    persistent: dict[str, int]
    transient: int
    peak_launch: str
    peak_owners: list[tuple[str, str, int]]
    by_owner: dict[str, int]
    reuse_by_bytes: float
    reuse_by_count: float


def report(plan: Plan) -> MemoryReport:
    moving = [b for b in plan.buffers if b.kind not in FIXED]
    _, at = max_live([(b.bytes, b.first, b.last) for b in moving])
    live = sorted(plan.live(at), key=lambda b: -b.bytes)
    persistent: dict[str, int] = {}
    by_owner: dict[str, int] = {}
    for b in plan.buffers:
        if b.persistent:
            persistent[b.kind] = persistent.get(b.kind, 0) + b.bytes
        by_owner[b.owner] = by_owner.get(b.owner, 0) + b.bytes
    values = [v for v in plan.values.values() if not plan.buffers[v.buffer].persistent]
    transient = plan.arena_bytes - plan.persistent_bytes
    return MemoryReport(
        plan.arena_bytes,
        plan.lower_bound,
        persistent,
        transient,
        plan.launches[at].name,
        [(b.owner, b.kind, b.bytes) for b in live],
        by_owner,
        1 - transient / max(sum(v.bytes for v in values), 1),
        sum(_shared(plan, v.buffer, moving) for v in values) / max(len(values), 1),
    )


def _shared(plan: Plan, buffer: int, moving: list[Buffer]) -> bool:
    """Whether another value uses some of the buffer's bytes."""
    mine = plan.buffers[buffer]
    if sum(v.buffer == buffer for v in plan.values.values()) > 1:
        return True
    return any(
        b is not mine and b.offset < mine.offset + mine.bytes and mine.offset < b.offset + b.bytes for b in moving
    )


def largest_batch(
    arena_bytes: Callable[[int], int], budget: int, bound: Callable[[int], int] | None = None
) -> int:
    """The largest batch whose arena fits the budget; 0 if not even one sample does.

    A larger batch may need a little less, where its buffers happen to fall into place better. Its lower bound never
    does: with `bound`, what lies between the two answers of bisection is tried, from above (at most TRIES batches).
    """
    found = _bisect(arena_bytes, budget)
    most = _bisect(bound, budget) if bound else found
    return next((b for b in range(min(most, found + TRIES), found, -1) if arena_bytes(b) <= budget), found)


def _bisect(need: Callable[[int], int], budget: int) -> int:
    """The largest batch below LIMIT with need(batch) <= budget, if need never decreases."""
    low, high = 0, 1
    while high < LIMIT and need(high) <= budget:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if need(middle) <= budget:
            low = middle
        else:
            high = middle
    return low


def parse_bytes(text: str) -> int:
    """ "2GB" -> 2,000,000,000; "512MiB" -> 536,870,912; a bare number is bytes."""
    body = text.strip().lower().replace(" ", "").replace("_", "")
    number = body.rstrip("bgikm")
    try:
        size = int(float(number) * UNITS[body[len(number) :]])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size < 1:
        raise UserError(f"--memory is {text!r}; a size such as 2GB, 512MB or 1GiB is expected.")
    return size


def bytes_text(n: int) -> str:
    """1234567 -> "1.23 MB" (powers of ten)."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}" if n / size < 100 else f"{n / size:.0f} {unit}"
    return f"{n} B"


def render(plan: Plan, found: MemoryReport) -> str:
    """The report as `edge-train plan` prints it."""
    params = sum(v.bytes for v in plan.values.values() if plan.buffers[v.buffer].kind == "weights") // 4
    gap = 100 * (found.arena / found.lower_bound - 1) if found.lower_bound else 0.0
    lines = [
        f"{plan.graph.name}: batch {plan.batch}, {params:,} parameters, {len(plan.launches)} launches a step",
        "",
        f"a training step needs  {found.arena:>14,} bytes  ({bytes_text(found.arena)}), one block",
        f"no plan needs less than{found.lower_bound:>14,} bytes  (most that lives at once; this plan: +{gap:.1f} %)",
        "",
    ]
    lines += [f"  {kind:<12}{size:>14,}" for kind, size in found.persistent.items()]
    lines += [f"  {'transient':<12}{found.transient:>14,}  reused: {100 * found.reuse_by_bytes:.0f} % of bytes, "
              f"{100 * found.reuse_by_count:.0f} % of tensors share their bytes"]  # fmt: skip
    lines += ["", f"peak: {found.peak_launch}"]
    lines += [f"  {owner:<24}{kind:<12}{size:>14,}" for owner, kind, size in found.peak_owners]
    lines += ["", "bytes by layer, before reuse:"]
    lines += [f"  {owner:<24}{size:>26,}" for owner, size in found.by_owner.items()]
    return "\n".join(lines)
