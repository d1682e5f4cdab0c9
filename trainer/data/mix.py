"""mixup and cutmix: a batch mixed with itself in opposite order, and its labels with it.

mixup (Zhang et al., ICLR 2018) blends two pictures, share x_n + (1 - share) x_m with m = B - 1 - n; cutmix (Yun et al.,
ICCV 2019) puts a rectangle of x_m into x_n. The loss is share CE(y_n) + (1 - share) CE(y_m). One share is drawn for a
batch, by the host, so that CPU and card have the same numbers. As n and m are mixed with each other, a share and its
complement give the same pairs: it is the larger of the two, and a picture's own label leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from .. import rng

if TYPE_CHECKING:
    from .augment import Augmentation

STEPS = 4096  # a share is a multiple of one in so many: the same on every machine


@dataclass(frozen=True)
class Mix:
    """share: of a sample's own label, blend: of its own pixels, outside the rectangle whose pixels are the other's."""

    share: float = 1.0
    blend: float = 1.0
    top: int = 0
    left: int = 0
    height: int = 0
    width: int = 0


UNMIXED = Mix()


def draw_mix(spec: Augmentation, seed: int, micro_step: int, H: int, W: int) -> Mix:
    """How the batch of this micro-step is mixed; with mixup and cutmix, by one of the two in turn of a coin."""
    if not spec.mixes:
        return UNMIXED
    words = _words(seed, micro_step)
    coin, _ = next(words)
    cut = spec.cutmix > 0 and (spec.mixup == 0 or coin < 0.5)
    share = _beta(spec.cutmix if cut else spec.mixup, words)
    if not cut:
        return Mix(share, share)
    side = sqrt(1 - share)
    height, width = round(H * side), round(W * side)
    middle, across = next(words)
    top, left = int(middle * H) - height // 2, int(across * W) - width // 2
    bottom, right = min(top + height, H), min(left + width, W)
    top, left = max(top, 0), max(left, 0)
    area = (bottom - top) * (right - left)
    return Mix(float(np.float32(1 - area / (H * W))), 1.0, top, left, bottom - top, right - left)


def mix(x: np.ndarray, how: Mix) -> None:
    """Mix a batch (B,H,W,C), float32, in place."""
    other = x[::-1]
    if how.blend < 1:
        own = np.float32(how.blend)
        np.add(x * own, other * (np.float32(1) - own), out=x)
    elif how.height:
        inside = (slice(None), slice(how.top, how.top + how.height), slice(how.left, how.left + how.width))
        x[inside] = other[inside].copy()


def _words(seed: int, micro_step: int) -> Iterator[tuple[float, float]]:
    """Pairs of numbers in [0, 1)."""
    key, n = (seed & 0xFFFFFFFF, seed >> 32), 0
    while True:
        a, b, *_ = rng.philox((np.array([n]), micro_step & 0xFFFFFFFF, micro_step >> 32, rng.MIX), key)[0].tolist()
        yield a * 2.0**-32, b * 2.0**-32
        n += 1


def _beta(alpha: float, words: Iterator[tuple[float, float]]) -> float:
    """The larger of s and 1 - s, s of the beta distribution (alpha, alpha), alpha <= 1, by Joehnk (1964)."""
    for u, v in words:
        x, y = u ** (1 / alpha), v ** (1 / alpha)
        if 0 < x + y <= 1:
            share = round(x / (x + y) * STEPS) / STEPS
            return max(share, 1 - share)
    raise AssertionError("the numbers never end")
