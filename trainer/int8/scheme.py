"""From real numbers to whole ones: scales, zero points, multipliers and biases, and the bounds they keep.

    real value of q = scale (q - zero),  q and zero in -128..127

A product of scales becomes one int32 multiplier: M / 2^(31+S) (requant) or M / 2^S (rescale). All results here are
whole numbers or float32, so that they are the same in every file made from the same ranges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LO, HI = -128, 127
WEIGHT = 127  # largest |weight|
SUM = 1 << 30  # |bias| + 128 sum |w| stays below it, so that no sum can wrap
ONE = (1 << 31) - 1  # the multiplier nearest to 1
RESCALE = 1 << 21  # largest |M| of a rescale
SHORT = (1 << 15) - 1  # largest of a sum of two: factors of 16 bits multiply and add in one instruction
SHIFT = 24  # largest shift of a rescale
FINE = 7  # and of a requantisation: with it a factor of 2^-15 has the 24 digits of a float32
SMALLEST = float(np.finfo(np.float32).tiny)  # of a scale


@dataclass(frozen=True)
class Quant:
    """How one tensor's int8 stand for real numbers. scale: exactly a float32, at least SMALLEST."""

    scale: float
    zero: int

    def __post_init__(self) -> None:
        if not (SMALLEST <= self.scale < math.inf and float(np.float32(self.scale)) == self.scale):
            raise ValueError(f"a scale of {self.scale!r}; a float32 of at least {SMALLEST:.2e} is expected")
        if not LO <= self.zero <= HI:
            raise ValueError(f"a zero point of {self.zero}; {LO} to {HI} is expected")

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest real value."""
        return self.scale * (LO - self.zero), self.scale * (HI - self.zero)

    def nearest(self, value: float) -> int:
        """The q whose real value is nearest; halves up."""
        return int(min(max(math.floor(value / self.scale + 0.5) + self.zero, LO), HI))


PROBABILITIES = Quant(1 / 256, LO)  # of softmax's output


@dataclass(frozen=True)
class Numbers:
    """What the record of one operator holds for int8: bytes 52 to 63. Results are held within lo..hi."""

    lo: int = LO
    hi: int = HI
    shift: int = 0
    border: int = 0
    m1: int = 0
    m2: int = 0


def asymmetric(lo: float, hi: float, symmetric: bool = False) -> Quant:
    """The scale that spreads lo..hi, and always 0, over the 256 steps; 0 has a step of its own, so that borders and
    relu are exact. symmetric: with zero point 0. An empty range gets scale 1/128: it holds nothing but zeros."""
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= hi):
        raise ValueError(f"a range of {lo} to {hi}; two finite numbers in order are expected")
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if symmetric:
        scale = np.float32(max(-lo / 128, hi / 127))
        return Quant(float(max(scale, SMALLEST)), 0) if scale > 0 else Quant(1 / 128, 0)
    scale = np.float32((hi - lo) / 255)
    if scale < SMALLEST:
        return Quant(1 / 128, LO if lo == 0 else HI if hi == 0 else 0)
    zero = math.floor(LO - lo / float(scale) + 0.5)
    return Quant(float(scale), min(max(zero, LO), HI))


def wider(q: Quant, scale: float) -> Quant:
    """The same zero with a scale of at least `scale`, rounded up to a float32."""
    least = np.float32(scale)
    if float(least) < scale:
        least = np.nextafter(least, np.float32(np.inf))
    return q if q.scale >= float(least) else Quant(float(least), q.zero)


def multiplier(m: float, S: int = 0) -> int:
    """M with M / 2^(31+S) nearest to m, 0 <= m <= 2^-S. 1 itself is ONE: requant(acc, ONE) = acc for |acc| < 2^30."""
    if not 0 <= m <= 1:
        raise ValueError(f"a multiplier of {m}; 0 to 1 is expected: the output's scale is too small")
    return min(math.floor(m * (1 << 31 + S) + 0.5), ONE)


def finest(m: float) -> int:
    """The largest S with which a requantisation can have the multiplier m."""
    return next(S for S in range(FINE, -1, -1) if S == 0 or m * (1 << 31 + S) + 0.5 < ONE)


def rescaling(
    ratios: Sequence[float], offsets: Sequence[float] = (), most: int = RESCALE
) -> tuple[list[int], list[int], int]:
    """(multipliers, biases, S) with M / 2^S nearest to each ratio and B / 2^S to each offset: the largest S of at most
    24 with |M| <= most and |B| < 2^30. Offsets far outside int8 are held within +-2^16 first, which clamps the same."""
    offsets = [min(max(b, -65536.0), 65536.0) for b in offsets]
    for shift in range(SHIFT, 0, -1):
        ms = [math.floor(r * (1 << shift) + 0.5) for r in ratios]
        bs = [math.floor(b * (1 << shift) + 0.5) for b in offsets]
        if all(abs(m) <= most for m in ms) and all(abs(b) < SUM for b in bs):
            return ms, bs, shift
    raise ValueError(f"a ratio of scales of {max(map(abs, ratios)):g}; at most 2^20 can be held")


def bounds(activation: str, y: Quant) -> tuple[int, int]:
    """(lo, hi) of none, relu and relu6: what the activation allows, and int8 holds."""
    if activation not in ("none", "relu", "relu6"):
        raise ValueError(f"{activation} has no bounds; it is an operator of its own")
    lo = LO if activation == "none" else max(LO, y.zero)
    return lo, y.nearest(6.0) if activation == "relu6" else HI


# ---------------------------------------------------------------- weights


@dataclass(frozen=True)
class Layer:
    """The whole numbers of a linear, conv2d, depthwise_conv2d or embed_projection with O output channels.

    rows (O,K) int8, scale (O) float32, bias (O) int32 (B of the formulas, zero point of x folded in), multiplier (O)
    int32.
    """

    rows: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    multiplier: np.ndarray


def weight_scales(rows: np.ndarray) -> np.ndarray:
    """(O) float32: the largest |weight| of each channel is 127 steps; 0 for channels of zeros."""
    return (np.abs(rows).max(1, initial=0.0) / WEIGHT).astype(np.float32)


def rounded_weights(rows: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(O,K) int8 nearest to rows / scale, halves to even."""
    safe = np.where(scale > 0, scale, 1).astype(np.float64)
    return np.clip(np.rint(rows / safe[:, None]), -WEIGHT, WEIGHT).astype(np.int8)


def least_scale(x: Quant, scale: np.ndarray) -> float:
    """The smallest scale of y that these weight scales allow: no multiplier above 1."""
    return x.scale * float(scale.max(initial=0.0))


def layer(
    rows: np.ndarray, bias: np.ndarray, x: Quant, y: Quant, scale: np.ndarray | None = None, times: int = 1
) -> Layer:
    """Whole numbers from real weights (O,K) and biases (O).

    times: how often x's zero point enters each weight's sum (embed_projection sums the channels first). Raises
    ValueError where y's scale is below least_scale. A channel whose bias would be too large for its sum gets coarser
    weights; one without weights any scale that holds its bias.
    """
    rows, bias = np.asarray(rows, np.float64), np.asarray(bias, np.float64)
    if not (np.isfinite(rows).all() and np.isfinite(bias).all()):
        raise ValueError("a weight or bias is not finite (NaN or infinity)")
    found = (weight_scales(rows) if scale is None else np.asarray(scale, np.float32)).astype(np.float64)
    if (found * x.scale > y.scale).any():
        raise ValueError(f"a multiplier of {(found * x.scale / y.scale).max():g}; the output's scale is too small")
    most = y.scale / x.scale
    found = np.where(found > 0, found, most / (1 << 15))
    while True:
        scale32 = np.minimum(found, most).astype(np.float32)
        scale32 = np.where(scale32 > most, np.nextafter(scale32, np.float32(0)), scale32)
        q = rounded_weights(rows, scale32)
        total = np.abs(q.astype(np.int64)).sum(1)
        B = np.rint(bias / (x.scale * scale32.astype(np.float64))) - float(times * x.zero) * q.sum(1, dtype=np.int64)
        coarser = (np.abs(B) + 128.0 * times * total >= SUM) & (found < most)
        if not coarser.any():
            break
        found = np.where(coarser, found * 2, found)
    room = SUM - 1 - 128 * times * total
    if (room < 0).any():
        raise ValueError(f"{rows.shape[1]} weights a channel: their sum could pass 2^30")
    B = np.clip(B, -room, room).astype(np.int64).astype(np.int32)
    ms = [multiplier(min(x.scale * float(s) / y.scale, 1.0)) for s in scale32]
    return Layer(q, scale32.astype(np.float32), B, np.array(ms, np.int32))


# ---------------------------------------------------------------- pictures


def picture(mean: Sequence[float], std: Sequence[float], x: Quant) -> tuple[list[int], list[int]]:
    """(P, Q), one a channel, with q = (v P + Q) >> 16 nearest to (v - mean) / (std scale) + zero for v in 0..255."""
    P, Q = [], []
    for m, s in zip(mean, std, strict=True):
        step = float(np.float32(s)) * x.scale  # of q, in pixel units
        P.append(round(65536 / step))
        Q.append(round(65536 * (x.zero - float(np.float32(m)) / step) + 32768))
    if any(not 0 < p < 1 << 22 for p in P) or any(abs(q) >= SUM for q in Q):
        raise ValueError("a picture's mean and deviation do not go with the input's scale")
    return P, Q


def normalisation(P: Sequence[int], Q: Sequence[int], x: Quant) -> tuple[list[float], list[float]]:
    """(mean, std) that P and Q stand for, for people."""
    mean = [(65536 * x.zero + 32768 - q) / p if p else 0.0 for p, q in zip(P, Q, strict=True)]
    return mean, [65536 / (p * x.scale) if p else 1.0 for p in P]
