"""Whole-number factors of sums of two, affine steps and changes of scale, chosen so that they round as in ONNX Runtime.

It calculates in float32 and rounds halves to even. Each of its factors fits 24 bits, ours 21 over 2^S, so that the
nearest ones are up to 2^-13 steps off. An operator of one or two int8 has 256 or 65,536 inputs: the factors near the
nearest ones are tried on all of them. Taken are those that give the fewest likely ones another value; an input counts
1 / (1 + z^2), z being its distance from the zero point over a deviation of 32 steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from litenet.trainer.int8.scheme import HI, LO, RESCALE, SUM, Numbers, Quant

STEPS = np.arange(LO, HI + 1)
ONES = np.ones(1, np.float32)
SPREAD = 32  # of inputs: their deviation in steps
COUNT = 1 << 16  # of the likeliest value
TRIED = 16  # factors on either side of the nearest one
TRIED_AFFINE = 4


def likely(x: Quant) -> np.ndarray:
    """float64 (256): how much each int8 counts."""
    return 1 / (1 + ((STEPS - x.zero) / SPREAD) ** 2)


# ---------------------------------------------------------------- what ONNX Runtime gives


def sums(x: Quant, x2: Quant, y: Quant, unsigned: bool) -> np.ndarray:
    """int64 (256,256): y - zero of QLinearAdd for each pair, before int8 ends. unsigned: its int8 are uint8, 128 above.

    y = rint(fma(x, s/sy, fma(x2, s2/sy, zy - fma(s/sy, zx, s2/sy zx2)))), in float32; an fma rounds once.
    """
    more, one = 128 * unsigned, np.float32
    a, b = one(x.scale) / one(y.scale), one(x2.scale) / one(y.scale)
    zeros = one(float(a) * (x.zero + more) + float(b * one(x2.zero + more)))
    fixed = one(y.zero + more) - zeros
    inner = ((STEPS + more) * float(b) + float(fixed)).astype(one).astype(np.float64)
    total = ((STEPS + more)[:, None] * float(a) + inner).astype(one)
    return np.rint(total).astype(np.int64) - more - y.zero


def line(x: Quant, y: Quant, scale: np.ndarray = ONES, shift: np.ndarray = 0 * ONES) -> np.ndarray:
    """int64 (C,256): y - zero of x scale + shift for each int8 x, before int8 ends: float32 between a DequantizeLinear
    and a QuantizeLinear. scale, shift (C) float32: in real units."""
    with np.errstate(over="ignore", invalid="ignore"):
        real = (STEPS - x.zero).astype(np.float32) * np.float32(x.scale)
        quotient = (real * scale[:, None] + shift[:, None]) / np.float32(y.scale)
    return np.clip(np.nan_to_num(np.rint(quotient)), -SUM, SUM).astype(np.int64)


# ---------------------------------------------------------------- the factors that do


def sum_of_two(n: Numbers, x: Quant, x2: Quant, y: Quant, unsigned: bool) -> Numbers:
    """n of an add with better m1 and m2."""
    want = np.clip(sums(x, x2, y, unsigned), n.lo - y.zero, n.hi - y.zero).reshape(-1)
    a, b = (v.reshape(-1) for v in np.meshgrid(STEPS - x.zero, STEPS - x2.zero, indexing="ij"))
    half = 1 << (n.shift - 1)
    total, reach = a * n.m1 + b * n.m2 + half, TRIED * (np.abs(a) + np.abs(b))
    part = total & ((1 << n.shift) - 1)
    near = (part <= reach) | (part >= (1 << n.shift) - reach)  # the others stay what they are
    total, a, b, want = total[near], a[near], b[near], want[near]
    counts = np.rint(COUNT * np.outer(likely(x), likely(x2)).reshape(-1)[near]).astype(np.int64)
    best, found = None, n
    for d1, d2 in _around(TRIED):
        if max(abs(n.m1 + d1), abs(n.m2 + d2)) > RESCALE:
            continue
        got = np.clip((total + a * d1 + b * d2) >> n.shift, n.lo - y.zero, n.hi - y.zero)
        missed = int((got != want) @ counts)
        if best is None or missed < best:
            best, found = missed, replace(n, m1=n.m1 + d1, m2=n.m2 + d2)
        if best == 0:
            break
    return found


def affine(
    m: np.ndarray, b: np.ndarray, n: Numbers, x: Quant, y: Quant, scale: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(M, B) int32 (C) of a batchnorm, near the nearest ones m and b. scale, shift: as of line."""
    return _lines(m, b, n, x, y, line(x, y, scale, shift), True)


def change(m: int, n: Numbers, x: Quant, y: Quant) -> int:
    """The factor of a rescale, near the nearest one m."""
    return int(_lines(np.array([m]), np.zeros(1, np.int64), n, x, y, line(x, y), False)[0][0])


def _lines(
    m: np.ndarray, b: np.ndarray, n: Numbers, x: Quant, y: Quant, want: np.ndarray, shifts: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(M, B) int32 (C) near m and b with clamp((v M + B + 2^(S-1)) >> S) as wanted (C,256), v = x - zx; shifts: B may
    be another one."""
    v, lo, hi = STEPS - x.zero, n.lo - y.zero, n.hi - y.zero
    want = np.clip(want, lo, hi)
    counts = np.rint(COUNT * likely(x)).astype(np.int64)
    best, M, B = np.full(len(m), COUNT * len(v)), m.astype(np.int64).copy(), b.astype(np.int64).copy()
    tried = TRIED_AFFINE if shifts else TRIED
    for d in sorted(range(-tried, tried + 1), key=abs):
        near = m.astype(np.int64) + d
        first = (want << n.shift) - (1 << (n.shift - 1)) - v * near[:, None]  # the smallest B that gives it
        least = np.where(want > lo, first, -SUM).max(1)
        most = np.where(want < hi, first + (1 << n.shift) - 1, SUM).min(1)
        for shift in {True: (np.clip(b, least, np.maximum(least, most)), b), False: (b,)}[shifts]:
            got = np.clip((v * near[:, None] + shift[:, None] + (1 << (n.shift - 1))) >> n.shift, lo, hi)
            missed = (got != want) @ counts
            better = (missed < best) & (np.abs(near) <= RESCALE) & (np.abs(shift) < SUM)
            best, M, B = np.where(better, missed, best), np.where(better, near, M), np.where(better, shift, B)
    return M.astype(np.int32), B.astype(np.int32)


def _around(reach: int) -> list[tuple[int, int]]:
    """Whole numbers of the plane up to that, from zero on."""
    pairs = [(i, k) for i in range(-reach, reach + 1) for k in range(-reach, reach + 1)]
    return sorted(pairs, key=lambda p: (p[0] ** 2 + p[1] ** 2, p))
