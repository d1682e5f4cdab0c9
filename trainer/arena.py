"""Placing buffers with known lifetimes into one block: two greedy orders, and the bound neither can pass."""

from __future__ import annotations

Lifetime = tuple[int, int, int]  # bytes, first launch, last launch (inclusive)


def align(n: int, step: int) -> int:
    """n rounded up to a multiple of step."""
    return -(-n // step) * step


def place(lifetimes: list[Lifetime], step: int) -> tuple[list[int], int, int]:
    """(offset of each buffer, bytes in all, lower bound). Offsets are multiples of `step`, sizes rounded up to it.

    Largest first into the smallest gap that fits; then the same in order of first use; the smaller block wins. The
    bound is the most bytes that live during one launch: no placement needs less.
    """
    sized = [(align(size, step), first, last) for size, first, last in lifetimes]
    numbers = range(len(sized))
    by_size = sorted(numbers, key=lambda i: (-sized[i][0], sized[i][1], i))
    by_use = sorted(numbers, key=lambda i: (sized[i][1], -sized[i][2], -sized[i][0], i))
    offsets, total = min((_greedy(sized, order) for order in (by_size, by_use)), key=lambda found: found[1])
    return offsets, total, max_live(sized)[0]


def _greedy(sized: list[Lifetime], order: list[int]) -> tuple[list[int], int]:
    offsets, total = [0] * len(sized), 0
    placed: list[int] = []
    for i in order:
        size, first, last = sized[i]
        taken = sorted(
            (offsets[j], offsets[j] + sized[j][0]) for j in placed if sized[j][1] <= last and first <= sized[j][2]
        )
        best, best_gap, at = None, None, 0
        for start, end in taken:
            gap = start - at
            if gap >= size and (best_gap is None or gap < best_gap):
                best, best_gap = at, gap
            at = max(at, end)
        offsets[i] = at if best is None else best
        total = max(total, offsets[i] + size)
        placed.append(i)
    return offsets, total


def max_live(sized: list[Lifetime]) -> tuple[int, int]:
    """(most bytes alive at once, the launch where that is)."""
    best, where = 0, 0
    for at in {first for _, first, _ in sized}:
        live = sum(size for size, first, last in sized if first <= at <= last)
        if live > best or (live == best and at < where):
            best, where = live, at
    return best, where
