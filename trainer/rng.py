"""Random numbers as a function of (seed, stream, step, index): no state, the same on every backend.

Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Value i
is word i mod 4 of philox(counter = (i div 4, step low, step high, stream), key = (seed low, seed high)). So a
kernel that needs value i computes it alone, and a run resumed at any step draws what it would have drawn.
"""

from __future__ import annotations

import math

import numpy as np

SHUFFLE, SPLIT, INIT, DROPOUT, AUGMENT, FLIP = 1, 2, 3, 4, 5, 6  # streams
WARP, COLOR, MIX = 16, 17, 18  # more of augmentation
PEOPLE, DRAW, PART, STRANGE = 19, 20, 21, 22

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # the multipliers of Philox4x32
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # what the two key words grow by each round
_ROUNDS = 10
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_BLOCK = 4096  # counters computed at a time: small enough for the temporaries to stay in cache


def philox(counter: tuple[np.ndarray, int, int, int], key: tuple[int, int]) -> np.ndarray:
    """Ten rounds on counters (counter[0][i], counter[1], counter[2], counter[3]): uint32 (n, 4)."""
    first = counter[0].astype(np.uint64)
    out = np.empty((len(first), 4), np.uint32)
    for start in range(0, len(first), _BLOCK):
        _rounds(first[start : start + _BLOCK], counter[1:], key, out[start : start + _BLOCK])
    return out


def _rounds(first: np.ndarray, rest: tuple[int, int, int], key: tuple[int, int], out: np.ndarray) -> None:
    """(c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)), ten times."""
    c0, (k0, k1) = first, key
    c1, c2, c3 = (np.full(len(first), word, np.uint64) for word in rest)
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _M0, c2 * _M1
        c0 = p1 >> _SHIFT
        c0 ^= c1
        c0 ^= np.uint64(k0)
        c2 = p0 >> _SHIFT
        c2 ^= c3
        c2 ^= np.uint64(k1)
        c1, c3 = np.bitwise_and(p1, _LOW, out=p1), np.bitwise_and(p0, _LOW, out=p0)
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = c0, c1, c2, c3


def bits(seed: int, stream: int, step: int, n: int) -> np.ndarray:
    """n random words, uint32. seed and step are below 2^64, stream below 2^32, n at most 2^34."""
    if not (0 <= seed < 1 << 64 and 0 <= step < 1 << 64 and 0 <= stream < 1 << 32 and 0 <= n <= 1 << 34):
        raise ValueError(f"seed {seed}, stream {stream}, step {step} or n {n} is out of range")
    counters = np.arange(-(-n // 4), dtype=np.uint64)
    words = philox((counters, step & 0xFFFFFFFF, step >> 32, stream), (seed & 0xFFFFFFFF, seed >> 32))
    return words.reshape(-1)[:n]


def uniform(seed: int, stream: int, step: int, shape: int | tuple[int, ...]) -> np.ndarray:
    """float32 in [0, 1), multiples of 2^-24: (bits >> 8) * 2^-24, exact."""
    words = bits(seed, stream, step, _count(shape))
    return ((words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)).reshape(shape)


def normal(seed: int, stream: int, step: int, shape: int | tuple[int, ...]) -> np.ndarray:
    """float32 of mean 0 and variance 1, by Box and Muller (1958), two values from two words, float64 inside.

    r = sqrt(-2 ln u), values r cos(2 pi v) and r sin(2 pi v); u = (word + 1/2) / 2^32 is never 0.
    """
    n = _count(shape)
    words = bits(seed, stream, step, n + n % 2).astype(np.float64)
    r = np.sqrt(-2 * np.log((words[0::2] + 0.5) * 2.0**-32))
    angle = words[1::2] * (2 * math.pi * 2.0**-32)
    out = np.empty(len(words), np.float32)
    out[0::2], out[1::2] = r * np.cos(angle), r * np.sin(angle)
    return out[:n].reshape(shape)


def permutation(seed: int, stream: int, step: int, n: int) -> np.ndarray:
    """0..n-1 in random order, int64: the stable order of 64-bit keys, of words 2i (low) and 2i+1 (high)."""
    words = bits(seed, stream, step, 2 * n).astype(np.uint64)
    return np.argsort(words[0::2] | (words[1::2] << _SHIFT), kind="stable").astype(np.int64, copy=False)


def _count(shape: int | tuple[int, ...]) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)
