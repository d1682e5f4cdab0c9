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


@dataclass(frozen=True)
class Teams:
    """How rows.cuh shares a row of C values: `lanes` of a warp, `per` packs of V values each; 0 lanes: a block."""

    V: int
    lanes: int
    per: int

    @property
    def macros(self) -> dict[str, int]:
        return {"VEC": self.V, "LANES": self.lanes, "PER": self.per}

    @property
    def rows(self) -> int:
        """Rows a warp works on at a time."""
        return 32 // self.lanes


def teams(C: int) -> Teams:
    """Few lanes: a warp then has several rows under way, and sums take fewer steps. But so many that each access of a
    warp meets runs of 32 bytes, and at most 32 values to a lane."""
    V = vector(C)
    packs = C // V
    if C > 1024:
        return Teams(V, 0, 0)
    lanes = min(32, max(1, power(C) // 4 if V == 1 else power(packs) // 2, min(packs, 2) if V == 4 else 1))
    return Teams(V, lanes, blocks(packs, lanes))


def rows(R: int, C: int, sms: int = 0) -> tuple[Teams, Dims, Dims]:
    """(teams, grid, block): four warps a block, or a block a row."""
    t = teams(C)
    if not t.lanes:
        return t, (min(R, 1 << 20), 1, 1), (THREADS if C <= 8192 else 512, 1, 1)
    return t, (min(blocks(R, 4 * t.rows), 16 * (sms or CARD)), 1, 1), (128, 1, 1)


def picture(wide: int, high: int) -> tuple[Dims, Dims]:
    """`wide` threads across, `high` rows of them."""
    x = min(THREADS, power(wide))
    y = min(THREADS // x, power(high))
    return (blocks(wide, x), min(blocks(high, y), MAX_Y), 1), (x, y, 1)


@dataclass(frozen=True)
class Columns:
    """A matrix cut as columns.cuh reads it: tiles of columns, ranges of `chunk` rows. With fewer rows there are never
    more than `bound` ranges, so that scratch for a whole batch serves a shorter one too."""

    V: int
    log_tx: int
    threads: int
    tiles: int
    ranges: int
    bound: int
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
    `spread` it gets narrower, down to 4, until there are so many tiles."""
    V = V or vector(C)
    units = C // V
    tx = min(power(units), 32 // V)
    while tx * V > 4 and blocks(units, tx) < spread:
        tx //= 2
    tiles = blocks(units, tx)
    bound = max(1, min(want // tiles, most, blocks(R, threads // tx * per_thread)))
    chunk = blocks(R, bound)
    return Columns(V, tx.bit_length() - 1, threads, tiles, blocks(R, chunk), bound, chunk)
