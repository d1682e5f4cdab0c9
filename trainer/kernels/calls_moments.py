"""How convolutions leave the moments of their output for the batch normalisation behind them; see moments.cuh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

from .call import Arg, Call, Int, Kernel, Ref, Shapes, blocks, constants
from .grids import CARD, columns
from .tiles import COUNTERS
from .variants import NULL, Variant, ints, storage, vector

TAIL = 4  # floats of a row besides origin, mean and m2
ONE_GROUP = 64  # rows that one block puts together in the time that two would take one after another
NO_ROWS: tuple[Arg, ...] = (NULL, NULL, NULL, *ints(0, 0, 1))  # ROW_PLAN of a kernel that leaves none


def wanted(direction: str, s: Shapes) -> bool:
    """Whether a forward pass is the one of training, or that again, whose bits have to be the same."""
    return s.moments and direction in ("train", "again")


@dataclass(frozen=True)
class Rows:
    """Rows of `blocks` blocks, for each of `columns` groups of `width` channels."""

    blocks: int
    columns: int
    width: int
    group: int  # rows that are put together at a time

    @property
    def groups(self) -> int:
        return blocks(self.blocks, self.group)

    @property
    def bytes(self) -> int:
        return 4 * self.columns * (self.blocks + self.groups) * (3 * self.width + TAIL)

    @property
    def counters(self) -> int:
        return self.columns * (1 + self.groups)

    def args(self, direction: str, at: int, counter: int = 0, before: int = 0, last: bool = True) -> tuple[Arg, ...]:
        """ROW_PLAN. at: where in scratch memory the rows lie; counter: the first that is free. The second time a pass
        is run it leaves none."""
        if direction == "again":
            return NO_ROWS
        place = Ref("scratch", at, self.bytes)
        out = Ref("moments") if last else NULL
        return (place, Ref("counters", 4 * counter), out, *ints(self.blocks, before, self.group))


def rows(count: int, across: int, width: int, together: bool = False) -> Rows:
    """Of `count` blocks and `across` groups of columns. together: one block puts all rows together."""
    return Rows(count, across, width, count if together or count <= ONE_GROUP else max(ONE_GROUP // 2, isqrt(count)))


def fit(found: Rows, counter: int = 0) -> bool:
    """Whether there are counters enough."""
    return found.counters + counter <= COUNTERS


def with_pass(variant: Variant, direction: str, s: Shapes) -> Variant:
    """A variant whose kernels leave no moments, and a launch behind it that reads its output for them."""
    R, C = s.N * s.y[0] * s.y[1], s.y[2]
    cut = columns(R, C, 2 * (s.sms or CARD), 128, 4, threads=512)
    at = blocks(variant.scratch, 16) * 16
    size = 4 * C * (2 * cut.bound + 1)
    calls = variant.calls
    if direction == "train":
        kernel = Kernel("batchnorm.cu", "batchnorm_moments_f32", constants(ACT=0, VEC=vector(C), **storage(s)))
        args: tuple[Arg, ...] = (Ref("y"), Ref("scratch", at, size), Ref("moments"), Ref("counters"))
        sizes = (Int(R), Int(C), Int(cut.chunk), Int(cut.log_tx))
        calls += (Call(kernel, cut.grid, cut.block, (*args, *sizes)),)
    return replace(variant, calls=calls, scratch=at + size)
