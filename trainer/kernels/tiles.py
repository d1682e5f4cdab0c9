"""The tiles of gemm.cuh, and which of them, with how many parts of the sum, suits a product of M x N results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .call import blocks

DEFAULT_SMS = 20  # multiprocessors, where the card is not known: near a GTX 1660


@dataclass(frozen=True)
class Tile:
    """The macro TILE of gemm.cuh. share: of a multiprocessor's peak that it reaches on a full card."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    ks: int
    blocks: int
    share: float

    @property
    def threads(self) -> int:
        return self.bm // self.tm * (self.bn // self.tn) * self.ks

    @property
    def text(self) -> str:
        return f"{self.bm},{self.bn},{self.bk},{self.tm},{self.tn},{self.ks},{self.blocks}"

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk}" + (f"s{self.ks}" if self.ks > 1 else "")

    @property
    def strided(self) -> bool:
        """Whether the registers of a thread also hold what finding the pixels of a strided dgrad takes."""
        return 65536 // (self.threads * self.blocks) >= 2 * self.tm * self.tn + 16

    @property
    def part(self) -> int:
        """Floats of one part of a tile's sum (PART of gemm.cuh)."""
        return self.bm * self.bn + self.bm

    def cover(self, M: int, N: int) -> int:
        return blocks(M, self.bm) * blocks(N, self.bn)


TILES = (
    Tile(128, 128, 8, 8, 8, 1, 2, 0.75),  # large products: 64 results a thread, most work for a float loaded
    Tile(128, 64, 8, 8, 8, 1, 2, 0.70),  # as good where N is 64
    Tile(64, 128, 8, 8, 8, 1, 2, 0.70),  # as good where M is 64 (weight gradients)
    Tile(64, 64, 16, 8, 4, 1, 4, 0.60),  # more blocks, for middling products
    Tile(128, 32, 16, 8, 4, 1, 4, 0.60),  # N = 32, the first layers of small nets
    Tile(32, 128, 16, 4, 8, 1, 4, 0.60),  # M = 32: their weight gradients
    Tile(64, 32, 16, 4, 4, 1, 4, 0.50),
    Tile(32, 32, 32, 4, 4, 4, 2, 0.40),  # few results with long sums: 4 slices of the sum in one block
    Tile(16, 16, 64, 4, 2, 8, 2, 0.20),  # very few results: 8 slices
)
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
KEPT = 8  # variants of a part worth measuring
SCRATCH_LIMIT = 4 << 20  # floats that parts of a sum may take: memory is what small cards lack
COUNTERS = 4096  # of the role "counters": int32, zero between launches; a launch counts the parts of a tile in one
LAST_BLOCK = 17 << 10  # floats that the last block of a tile adds as fast as a second launch of all multiprocessors
LAST_SPLITS = 4  # and parts, one after another

# Cycles of a multiprocessor, for choosing only: what a step waits for memory when nothing else runs, what a launch
# costs, and the floats all multiprocessors together move in a cycle to and from scratch. The last block of a tile
# waits JOIN cycles to be told so, and moves LAST_FLOATS a cycle.
STEP_WAIT, LAUNCH, SCRATCH_FLOATS = 700, 2500, 600
JOIN, LAST_FLOATS = 1500, 10


def cost(t: Tile, M: int, N: int, steps: int, splits: int, sms: int) -> float:
    """Expected cycles of a product of `steps` steps, its sum in `splits` parts."""
    per_sm = blocks(t.cover(M, N) * splits, sms)  # the busiest multiprocessor's blocks
    part = blocks(steps, splits)
    compute = per_sm * part * (t.bm * t.bn * t.bk) / (128 * t.share)
    waiting = blocks(per_sm, t.blocks) * part * STEP_WAIT
    if splits == 1:
        adding = 0.0
    elif joins(t, t.cover(M, N), splits):
        adding = JOIN + t.part * splits / LAST_FLOATS
    else:
        adding = LAUNCH + M * N * splits * 2 / SCRATCH_FLOATS
    return LAUNCH + max(compute, waiting) + adding


def ranked(
    M: int, N: int, steps_of: Callable[[Tile], int], sms: int, splits: Iterable[int] = SPLITS
) -> list[tuple[Tile, int]]:
    """(tile, splits) by expected time; of each tile its best two. steps_of(tile): steps of its whole sum.

    One at least does not split: it needs no scratch memory, and so can stand in for any other."""
    sms, limit = sms or DEFAULT_SMS, SCRATCH_LIMIT
    found: list[tuple[float, Tile, int]] = []
    whole: list[tuple[float, Tile, int]] = []
    for t in TILES:
        steps = steps_of(t)
        mine = [(cost(t, M, N, steps, z, sms), t, z) for z in splits if z == 1 or z <= steps and z * M * N <= limit]
        found += sorted(mine, key=lambda c: c[0])[:2]
        whole += [c for c in mine if c[2] == 1]
    kept = sorted(found, key=lambda c: c[0])[:KEPT]
    if all(z > 1 for _, _, z in kept):
        kept[-1] = min(whole, key=lambda c: c[0])
    return [(t, z) for _, t, z in kept]


def joins(t: Tile, count: int, splits: int) -> bool:
    """Whether the last block of each of `count` tiles adds the parts of its sum, instead of a second launch."""
    return count <= COUNTERS and t.part * splits <= LAST_BLOCK and splits <= LAST_SPLITS
