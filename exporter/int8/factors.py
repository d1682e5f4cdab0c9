"""Whole-number factors of a quantised source's layers, chosen so that sums round as in its own runtime.

XNNPACK and ONNX Runtime multiply a sum by a float32 and round the product, halves to even:

    theirs(acc) = rint(float32(float32(acc) * factor))     ours(acc) = (acc M + 2^(30+S)) >> (31+S)

S, which the channels of an operator share, is 0 where every factor then is a whole M, and else the largest that the
largest factor allows: below 2^-8 a float32 has digits behind the 31st. Both are staircases. Step k, from k - 1 to k,
which theirs takes at the sum t, is ours too for the M of one interval:

    t M >= (2k-1) 2^(30+S) > (t-1) M

Seldom have the intervals of all steps an M in common, as theirs rounds the product first, to 24 digits, and then
halves to even. Taken is the M whose steps are the fewest sums away from theirs, where a step counts as likely sums do:
1 / (1 + z^2), z being the distance from the sum of an input of zeros, over the deviation that independent inputs would
give it.
"""

from __future__ import annotations

import numpy as np

from litenet.trainer.int8 import scheme

REACH = 1 << 30  # sums stay below it
SPREAD = 32  # of inputs: their deviation in steps
COUNT = 1 << 32  # of the likeliest step
FAR = 1 << 10  # sums; farther away is no worse
TRIED = 64  # M of a channel
BLOCK = 1024  # channels at once


def factors(x: float, weights: np.ndarray, y: float) -> np.ndarray:
    """float32 (O): x weights / y, of scales, in the order of those runtimes; 1 for what only rounding puts above it."""
    with np.errstate(over="ignore"):
        found = np.float32(x) * weights.astype(np.float32) / np.float32(y)
    return np.where(x * weights.astype(np.float64) <= y, np.minimum(found, np.float32(1)), found)


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


def shift(factor: np.ndarray) -> int:
    """S of factors (O) float32, 0..1."""
    with np.errstate(invalid="ignore"):  # of infinity
        whole = factor.astype(np.float64) * (1 << 31) % 1 == 0
    if whole.all():
        return 0
    return scheme.finest(float(factor.max(initial=0.0)))


def multipliers(
    factor: np.ndarray, rows: np.ndarray, bias: np.ndarray, zero: int, outputs: tuple[int, int]
) -> tuple[np.ndarray, int]:
    """(int32 (O): M, S) for factors (O) float32, 0..1, of weights (O,K), biases (O) and the zero point of x.
    outputs: the least and the largest, their zero point not added. Of equally good M that nearest to factor
    2^(31+S). Raises ValueError for other factors."""
    S = shift(factor)
    found = np.array([scheme.multiplier(float(f), S) for f in factor], np.int64)
    steps = np.arange(outputs[0] + 1, outputs[1] + 1)
    up, down = np.maximum(rows, 0).sum(1), np.minimum(rows, 0).sum(1)
    least, most = (bias + a * up + b * down for a, b in ((scheme.LO, scheme.HI), (scheme.HI, scheme.LO)))
    middle, spread = bias + zero * rows.sum(1), SPREAD * np.sqrt((rows.astype(np.float64) ** 2).sum(1))
    some = np.flatnonzero(found > 0)
    for block in np.split(some, range(BLOCK, len(some), BLOCK)):
        for o, t in zip(block, staircase(factor[block], steps), strict=True):
            met = (least[o] < t) & (t <= most[o])
            z = (t[met] - middle[o]) / max(spread[o], 1)
            count = np.rint(COUNT / (1 + z * z)).astype(np.int64)
            found[o] = _best(int(found[o]), S, t[met], steps[met], count)
    return found.astype(np.int32), S


def _best(nearest: int, S: int, t: np.ndarray, steps: np.ndarray, count: np.ndarray) -> int:
    """The M for steps (K) at the sums t (K), of which each counts so much."""
    odd = 2 * steps - 1
    size, far = (np.abs(odd) << 30 + S) - (odd > 0), np.where(odd > 0, t, 1 - t)
    first = size // far + 1
    last = np.where(far > 1, size // np.maximum(far - 1, 1), scheme.ONE)
    if ((first <= nearest) & (nearest <= last)).all():
        return nearest
    tried = np.unique(np.clip(np.concatenate([[nearest], first, last]), 1, scheme.ONE))
    tried = tried[np.abs(tried - nearest).argsort(kind="stable")[:TRIED]]
    missed = np.abs(-((-odd << 30 + S) // tried[:, None]) - t)
    return int(tried[(np.minimum(missed, FAR) @ count).argmin()])
