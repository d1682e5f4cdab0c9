"""How convolutions leave the moments of their output for the batch normalisation behind them; see moments.cuh."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .call import Arg, Call, Int, Kernel, Ref, Shapes, blocks, constants
from .grids import CARD, columns
from .tiles import COUNTERS
from .variants import NULL, Variant, ints, storage, vector

MOST, LEAST_PIXELS = 256, 64  # rows that batchnorm puts together in passing, and pixels of a row at least
PASS = " +pass"  # at the end of the name of a variant that is another, with a launch for the moments
TAIL = 4  # floats of a part besides origin, mean and m2
NO_ROWS: tuple[Arg, ...] = (NULL, NULL, NULL, *ints(0, 0, 1, 0))  # ROW_PLAN of a kernel that leaves none


def wanted(direction: str, s: Shapes) -> bool:
    """Whether a forward pass is the one of training, or that again, whose bits have to be the same."""
    return s.moments and direction in ("train", "again")


def most(pixels: int) -> int:
    """Rows of the role "moments" for so many values of a channel."""
    return max(1, min(MOST, pixels // LEAST_PIXELS))


def floats(pixels: int, C: int) -> int:
    """Of the role "moments"."""
    return most(pixels) * (3 * C + 2)


@dataclass(frozen=True)
class Rows:
    """Rows of `blocks` blocks, for each of `columns` groups of `width` channels; put together `group` at a time."""

    most: int
    blocks: int
    columns: int
    width: int

    @property
    def group(self) -> int:
        return blocks(self.blocks, self.most)

    @property
    def bytes(self) -> int:
        """Of scratch memory."""
        return 4 * self.columns * self.blocks * (3 * self.width + TAIL) if self.group > 1 else 0

    def fit(self, counter: int = 0) -> bool:
        """Whether there are counters enough, of which so many are in use."""
        return self.group == 1 or counter + self.columns * blocks(self.blocks, self.group) <= COUNTERS

    def args(self, direction: str, at: int, counter: int = 0, turn: int = 0) -> tuple[Arg, ...]:
        """ROW_PLAN. at: where in scratch memory parts lie; counter: the first that is free. The second time a pass is
        run it leaves nothing."""
        if direction == "again":
            return NO_ROWS
        parts = (Ref("scratch", at, self.bytes), Ref("counters", 4 * counter)) if self.group > 1 else (NULL, NULL)
        return (Ref("moments"), *parts, *ints(self.most, self.blocks, self.group, turn))


def rows(s: Shapes, count: int, across: int, width: int) -> Rows:
    """Of `count` blocks and `across` groups of columns."""
    return Rows(most(s.N * s.y[0] * s.y[1]), count, across, width)


def with_pass(variant: Variant, direction: str, s: Shapes) -> Variant:
    """A variant whose kernels leave no moments, and a launch behind it that reads its output for them."""
    if direction == "again":
        return variant
    R, C = s.N * s.y[0] * s.y[1], s.y[2]
    cut = columns(R, C, 2 * (s.sms or CARD), min(most(R), 128), 4, threads=512)
    kernel = Kernel("batchnorm.cu", "batchnorm_moments_f32", constants(ACT=0, VEC=vector(C), **storage(s)))
    sizes = (Int(R), Int(C), Int(cut.chunk), Int(cut.log_tx), Int(most(R)))
    return replace(
        variant, calls=(*variant.calls, Call(kernel, cut.grid, cut.block, (Ref("y"), Ref("moments"), *sizes)))
    )
