"""How work is cut into blocks: over flat vectors, rows, columns and pictures. Functions of sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from .call import Dims, blocks

THREADS = 256
CARD = 32  # multiprocessors assumed where the card is not known
MAX_Y = 65535  # blocks a grid can have in y; kernels stride over the rest


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def vector(C: int) -> int:
    """Channels a thread takes at once."""
    return 4 if C % 4 == 0 else 1


def flat(n: int, sms: int) -> tuple[Dims, Dims]:
    """n elements, four a thread; at most the blocks that run at once twice over."""
    return (max(1, min(blocks(n, 4 * THREADS), 16 * (sms or CARD))), 1, 1), (THREADS, 1, 1)


def rows(R: int, C: int) -> tuple[bool, Dims, Dims]:
    """(whether a block owns a row, grid, block): else a warp does, four rows a block."""
    if C > 1024:
        return True, (min(R, 1 << 20), 1, 1), (THREADS if C <= 8192 else 512, 1, 1)
    return False, (min(blocks(R, 4), 1 << 20), 1, 1), (128, 1, 1)


def picture(wide: int, high: int) -> tuple[Dims, Dims]:
    """`wide` threads across, `high` rows of them."""
    x = min(THREADS, power(wide))
    y = min(THREADS // x, power(high))
    return (blocks(wide, x), min(blocks(high, y), MAX_Y), 1), (x, y, 1)


@dataclass(frozen=True)
class Columns:
    """A matrix cut as columns.cuh reads it: tiles of columns, ranges of `chunk` rows."""

    V: int
    log_tx: int
    threads: int
    tiles: int
    ranges: int
    chunk: int

    @property
    def grid(self) -> Dims:
        return (self.tiles, self.ranges, 1)

    @property
    def block(self) -> Dims:
        return (self.threads, 1, 1)


def columns(
    R: int, C: int, want: int, most: int, per_thread: int, V: int = 0, threads: int = THREADS, spread: int = 0
) -> Columns:
    """About `want` blocks in at most `most` ranges, at least `per_thread` rows a thread. A tile has 32 columns; with
    `spread` it gets narrower, down to 8, until there are so many tiles."""
    V = V or vector(C)
    units = C // V
    tx = min(power(units), 32 // V)
    while tx * V > 8 and blocks(units, tx) < spread:
        tx //= 2
    tiles = blocks(units, tx)
    ranges = max(1, min(want // tiles, most, blocks(R, threads // tx * per_thread)))
    chunk = blocks(R, ranges)
    return Columns(V, tx.bit_length() - 1, threads, tiles, blocks(R, chunk), chunk)
