"""How samples get to a device: a whole set that lies there, or batches sent ahead, one by one.

A set that fits is sent once and gathered from by a kernel. Of one that does not, each batch is gathered by the host
into page-locked memory and copied while the device still works on the batch before: `depth` batches are under way at
once, and with little memory left there is one, copied and waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..ops import Shape
from .device import Device, Source

ALIGN = 256  # bytes: where an array on the device starts
SCARCE = 10**9  # free bytes below which nothing is sent ahead
DEPTH = 3  # batches under way otherwise


def staging_bytes(batch: int, sample: int, target: tuple[Shape, str]) -> int:
    """Bytes of the one batch every Feed has room for."""
    return set_bytes(batch, sample, np.dtype(np.float32), target)


def set_bytes(count: int, sample: int, dtype: np.dtype, target: tuple[Shape, str]) -> int:
    """Bytes on the device of `count` samples of `sample` values, with their answers."""
    x = count * sample * (1 if dtype == np.uint8 else 4)
    return -(-x // ALIGN) * ALIGN + 4 * count * max(prod(target[0]), 1)


class Feed:
    """The memory beside the arena: one batch from the host, sets that lie on the device, or a ring of batches."""

    def __init__(self, device: Device, batch: int, sample: Shape, target: tuple[Shape, str], answers: np.dtype):
        self.device, self.batch, self.target, self.answers = device, batch, target, answers
        self.sample = prod(sample)
        self.closed = False  # whether no further set may be put on the device
        self.sets: list[tuple[np.ndarray, Source]] = []
        self.rings: list[tuple[np.ndarray, Ring]] = []
        self.one = self._place(batch, sample, np.dtype(np.float32), False)
        self.bytes = staging_bytes(batch, self.sample, target)

    def _place(self, count: int, shape: Shape, dtype: np.dtype, ordered: bool) -> Source:
        size = set_bytes(count, self.sample, dtype, self.target)
        at = self.device.allocate(size)
        labels = at + size - 4 * count * max(prod(self.target[0]), 1)
        return Source(at, labels, count, shape, "u8" if dtype == np.uint8 else "f32", ordered)

    def labels(self, y: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(y, self.answers)

    def single(self, x: np.ndarray, y: np.ndarray | None) -> Source:
        """A batch from the host, copied now."""
        self.device.upload(self.one.set, np.ascontiguousarray(x if x.dtype == np.uint8 else x.astype(np.float32)))
        if y is not None:
            self.device.upload(self.one.labels, self.labels(y))
        dtype = "u8" if x.dtype == np.uint8 else "f32"
        return replace(self.one, count=len(x), shape=x.shape[1:], dtype=dtype)

    def hold(self, x: np.ndarray, y: np.ndarray) -> Source:
        """Put a whole set on the device, once."""
        for known, source in self.sets:
            if known is x:
                return source
        source = self._place(len(x), x.shape[1:], x.dtype, True)
        self.device.upload(source.set, np.ascontiguousarray(x))
        self.device.upload(source.labels, self.labels(y))
        self.sets.append((x, source))
        self.bytes += set_bytes(len(x), self.sample, x.dtype, self.target)
        return source

    def held(self, x: np.ndarray) -> bool:
        return any(known is x for known, _ in self.sets)

    def send(self, x: np.ndarray, y: np.ndarray, index: np.ndarray) -> Source:
        """A batch of a set that stays with the host, on its way through a ring."""
        return self.ring(x).send(y, index)

    def ring(self, x: np.ndarray) -> Ring:
        """The ring of a set that stays with the host."""
        for known, ring in self.rings:
            if known is x:
                return ring
        ring = Ring(self, x, depth(self.device))
        self.rings.append((x, ring))
        self.bytes += ring.bytes
        return ring

    def sent(self, source: Source) -> None:
        """The launches that read a batch of the ring have been given to the device."""
        for _, ring in self.rings:
            if source.slot >= 0 and source in ring.slots:
                ring.lane.used(source.slot)


class Ring:
    """`depth` places for batches on the device, each with page-locked memory on the host."""

    def __init__(self, feed: Feed, x: np.ndarray, depth: int):
        self.feed, self.x, self.next = feed, x, 0
        size = set_bytes(feed.batch, feed.sample, x.dtype, feed.target)
        self.bytes = size * depth
        self.lane = feed.device.lane(depth)
        places = [feed._place(feed.batch, x.shape[1:], x.dtype, False) for _ in range(depth)]
        self.slots: Sequence[Source] = [replace(place, slot=slot) for slot, place in enumerate(places)]
        self.pages: list[np.ndarray] = [feed.device.pinned(size) for _ in range(depth)]

    def send(self, y: np.ndarray, index: np.ndarray) -> Source:
        source, page = self.slots[self.next], self.pages[self.next]
        self.next = (self.next + 1) % len(self.slots)
        self.lane.free(source.slot)
        x_bytes = len(index) * self.feed.sample * self.x.dtype.itemsize
        rows = page[:x_bytes].view(self.x.dtype).reshape(len(index), *self.x.shape[1:])
        np.take(self.x, index, axis=0, out=rows, mode="clip")
        answers = self.feed.labels(y[index])
        at = source.labels - source.set
        page[at : at + answers.nbytes] = answers.reshape(-1).view(np.uint8)
        self.lane.send(source.slot, source.set, page[: at + answers.nbytes])
        return source


def depth(device: Any) -> int:
    """Batches under way at once."""
    free = getattr(device, "free_bytes", None)
    return 1 if free is not None and free() < SCARCE else DEPTH
