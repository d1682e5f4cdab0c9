"""Pictures that are there twice: the same bytes, or nearly the same sight (saved anew, scaled, a little cropped).

Two pictures look alike when their difference hashes (examine.py) are at most DISTANCE bits apart and their thumbnails
at most RMS grey levels. On photos of tomato leaves, where different leaves on one background are close to each other,
the nearest two are 5.9 grey levels apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .examine import Record

DISTANCE = 6  # of 64 bits
RMS = 4.0  # grey levels of 255
BLOCK = 1 << 22  # pairs compared at a time
MOST = 60_000  # pictures beyond which only equal hashes are looked at


def exact(records: Sequence[Record]) -> list[list[int]]:
    """The places of records with the same bytes, each list ascending."""
    found: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        found.setdefault(record.content, []).append(place)
    return [places for places in found.values() if len(places) > 1]


def near(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Pairs (i, j), i < j, that look alike but differ in their bytes; the most alike first."""
    hashes = np.array([int(record.likeness, 16) for record in records], np.uint64)
    thumbnails = np.array([list(bytes.fromhex(record.thumbnail)) for record in records], np.int16)
    pairs: list[tuple[float, int, int]] = []
    for i, j in _candidates(hashes):
        apart = np.sqrt(np.mean(np.square((thumbnails[i] - thumbnails[j]).astype(np.float32)), axis=-1))
        for k in np.flatnonzero(apart <= RMS).tolist():
            a, b = int(i[k]), int(j[k])
            if records[a].content != records[b].content:
                pairs.append((float(apart[k]), a, b))
    return [(i, j) for _, i, j in sorted(pairs)]


def _candidates(hashes: np.ndarray) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Pairs of places, i < j, of hashes that are close."""
    n = len(hashes)
    if n > MOST:
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        pair = np.sort(np.stack([order[same], order[same + 1]]), axis=0)
        yield pair[0], pair[1]
        return
    rows = max(1, BLOCK // max(n, 1))
    for at in range(0, n, rows):
        part = hashes[at : at + rows]
        i, j = np.nonzero(_bits(part[:, None] ^ hashes[None, at:]) <= DISTANCE)
        keep = j > i
        yield i[keep] + at, j[keep] + at


def _bits(words: np.ndarray) -> np.ndarray:
    """How many bits of each uint64 are set."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    table = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)  # NumPy 1
    return table[words[..., None].view(np.uint8)].sum(-1)


class Groups:
    """Samples that must stay on one side of a split: join() puts the groups of two samples together."""

    def __init__(self, first: Sequence[int]):
        """first: the group of each sample, any whole numbers."""
        numbers = {group: place for place, group in reversed(list(enumerate(first)))}
        self.parent = [numbers[group] for group in first]
        self.size = np.bincount(self.parent, minlength=len(self.parent)).tolist()

    def of(self, sample: int) -> int:
        while self.parent[sample] != sample:
            self.parent[sample] = self.parent[self.parent[sample]]
            sample = self.parent[sample]
        return sample

    def join(self, i: int, j: int, most: int | None = None) -> None:
        """Unless the group would have more than `most` samples: a class that looks all alike could not be split."""
        a, b = sorted((self.of(i), self.of(j)))
        if a != b and (most is None or self.size[a] + self.size[b] <= most):
            self.parent[b] = a
            self.size[a] += self.size[b]

    def numbers(self) -> np.ndarray:
        """int64 (n,): the number of each sample's group, from 0, in the order of their first samples."""
        return np.unique([self.of(sample) for sample in range(len(self.parent))], return_inverse=True)[1].astype(
            np.int64
        )
