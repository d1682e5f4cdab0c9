"""Whole-number factors of a quantised source's layers, chosen so that sums round as in its own runtime.

XNNPACK and ONNX Runtime multiply a sum by a float32 and round the product, halves to even:

    theirs(acc) = rint(float32(float32(acc) * factor))     ours(acc) = (acc M + 2^30) >> 31

Both are staircases. Step k, from k - 1 to k, which theirs takes at the sum t, is ours too for the M of one interval:

    t M >= (2k-1) 2^30 > (t-1) M

Seldom have the intervals of all steps an M in common: a factor below 2^-8 has fewer digits in M than in a float32. Taken
is the M that misses least, step k counting as 1 / (2k-1)^2: the farther from 0, the fewer outputs there are.
"""

from __future__ import annotations

import numpy as np

from litenet.trainer.int8 import scheme

REACH = 1 << 30  # sums stay below it
COUNT = 1 << 40  # of a step next to 0; of others this by (2k-1)^2


def factors(x: float, weights: np.ndarray, y: float) -> np.ndarray:
    """float32 (O): x weights / y, of scales, in the order of those runtimes."""
    return np.float32(x) * weights.astype(np.float32) / np.float32(y)


def staircase(factor: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """int64 (O,K): the smallest sum within +-REACH that theirs makes steps (K) or more of, by each factor (O) > 0;
    REACH where there is none."""
    shape = len(factor), len(steps)
    low, high = np.full(shape, -REACH - 1), np.full(shape, REACH)
    while (high - low > 1).any():
        middle = (low + high) >> 1
        reached = np.rint(middle.astype(np.float32) * factor[:, None]) >= steps
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high


def multipliers(factor: np.ndarray, least: np.ndarray, most: np.ndarray, outputs: tuple[int, int]) -> np.ndarray:
    """int32 (O): M for each factor (O) float32, 0..1, with sums of least..most (O) and these outputs, the zero point
    not added. Among equally good ones the nearest to factor 2^31. Raises ValueError for other factors."""
    found = np.array([scheme.multiplier(float(f)) for f in factor], np.int64)
    steps = np.arange(outputs[0] + 1, outputs[1] + 1)
    some = np.flatnonzero(found > 0)
    for o, t in zip(some, staircase(factor[some], steps), strict=True):
        met = (least[o] < t) & (t <= most[o])
        found[o] = _best(int(found[o]), t[met], steps[met])
    return found.astype(np.int32)


def _best(nearest: int, t: np.ndarray, steps: np.ndarray) -> int:
    """The M for steps (K) at the sums t (K)."""
    odd = 2 * steps - 1
    size, far = (np.abs(odd) << 30) - (odd > 0), np.where(odd > 0, t, 1 - t)
    first = size // far + 1
    last = np.where(far > 1, size // np.maximum(far - 1, 1), scheme.ONE)
    if ((first <= nearest) & (nearest <= last)).all():
        return nearest
    tried = np.unique(np.clip(np.concatenate([[nearest], first, last]), 1, scheme.ONE))
    count = COUNT // odd**2
    hit = _below(first, count, tried, "right") - _below(last, count, tried, "left")
    best = tried[hit == hit.max()]
    return int(best[np.abs(best - nearest).argmin()])


def _below(ends: np.ndarray, count: np.ndarray, tried: np.ndarray, side: str) -> np.ndarray:
    """For each M tried the counts of the ends below it ("right": or at it), summed."""
    order = ends.argsort()
    total = np.concatenate([[0], np.cumsum(count[order])])
    return total[np.searchsorted(ends[order], tried, side)]
