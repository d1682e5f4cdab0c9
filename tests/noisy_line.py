"""A serial line that flips, loses and repeats what passes, both ways: a second pseudo-terminal before a board's."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import select
import threading
import tty
from collections.abc import Iterator

MOST = 300  # bytes that one accident takes or repeats: more than a frame has
KINDS = ("flipped", "lost a few", "lost many", "repeated", "added")


class Noise:
    """What happens to the bytes of one direction: after `first`, an accident every `every` in the mean, by `seed`."""

    def __init__(self, seed: int, every: int, first: int):
        self.random, self.every = random.Random(seed), every
        self.counts: collections.Counter[str] = collections.Counter()
        self.passed, self.skip, self.recent = 0, 0, b""
        self.next = first + self._gap()

    def _gap(self) -> int:
        return 1 + int(self.random.expovariate(1 / self.every))

    def through(self, data: bytes) -> bytes:
        out = bytearray()
        self.passed += len(data)
        self.skip = 0  # what is lost ends where the line falls silent
        while data:
            if self.skip:
                gone = min(self.skip, len(data))
                self.skip, data = self.skip - gone, data[gone:]
                continue
            part, data = data[: self.next], data[self.next :]
            self.next -= len(part)
            self.recent = (self.recent + part)[-MOST:]
            out += part
            if self.next == 0:
                self.next = self._gap()
                self._accident(out)
        return bytes(out)

    def _accident(self, out: bytearray) -> None:
        """Something happens behind, or to, the last byte."""
        kind = self.random.choice(KINDS)
        self.counts[kind] += 1
        if kind == "flipped":
            out[-1] ^= 1 << self.random.randrange(8)
        elif kind == "lost a few":
            self.skip = self.random.randint(1, 8)
        elif kind == "lost many":
            self.skip = self.random.randint(9, MOST)
        elif kind == "repeated":
            out += self.recent[-self.random.randint(1, MOST) :]
        else:
            out += self.random.randbytes(self.random.randint(1, 9))


class NoisyLine:
    """name: the port for the tool. to_board, to_tool: the Noise of each direction."""

    def __init__(self, port: str, seed: int, every: int, first: int):
        self.to_board, self.to_tool = Noise(seed, every, first), Noise(seed + 1, every, 0)
        self.master, self.slave = os.openpty()
        self.name = os.ttyname(self.slave)
        self.board = os.open(port, os.O_RDWR | os.O_NOCTTY)
        for line in (self.slave, self.board):
            tty.setraw(line)
        self.open = True
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        ways = {self.master: (self.board, self.to_board), self.board: (self.master, self.to_tool)}
        with contextlib.suppress(OSError):
            while self.open:
                for source in select.select(list(ways), [], [], 0.1)[0]:
                    to, noise = ways[source]
                    os.write(to, noise.through(os.read(source, 4096)))

    def close(self) -> None:
        self.open = False
        self.thread.join()
        for line in (self.master, self.slave, self.board):
            os.close(line)

    def accidents(self) -> collections.Counter[str]:
        return self.to_board.counts + self.to_tool.counts


@contextlib.contextmanager
def noisy(port: str, seed: int, every: int, first: int = 0) -> Iterator[NoisyLine]:
    line = NoisyLine(port, seed, every, first)
    try:
        yield line
    finally:
        line.close()
