"""An answer that says "I do not know": thresholds beyond which none is given, and a temperature for probabilities.

Of the net's outputs z (logits) of one sample, the answer is unknown where
    margin        z_first - z_second, the lead of the answer over the runner-up, is below its threshold: classes are
                  confused
    energy        log sum_c e^z_c is below its threshold: nothing looks familiar (Liu et al., "Energy-based
                  out-of-distribution detection", NeurIPS 2020)
    energy_most   the same is above its threshold: something is louder than anything seen
A device needs no exponential for the margin. The thresholds are such that a given share of the right answers on
held-out samples is lost. Which of the three are used, alone or together, is measured there: of the wrong answers (if
there are enough of them), of strangers (the same pictures cut into tiles that change places) and of their negatives,
each rule lets a share pass, in the worst case some multiple of the least. Of the rules near the smallest multiple the
one that looks at the most is taken: strangers of the real world are of more kinds than these.

    temperature   T that minimises the mean of -log softmax(z / T)_class (Guo et al., "On calibration of modern neural
                  networks", ICML 2017); classes do not change with it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from . import rng

FEWEST, MOST = 50, 2000  # held-out samples a threshold can be fitted on; strangers that are made of them
FEW, NEAR = 20, 1.25  # samples of a case that counts; times the smallest multiple
TILES = 4  # in each direction, of a stranger
GOLDEN = 0.5 * (5**0.5 - 1)


def margin(z: np.ndarray) -> np.ndarray:
    """(N, C) -> (N,)."""
    top = np.partition(z, -2, axis=-1)
    return top[:, -1] - top[:, -2]


def energy(z: np.ndarray) -> np.ndarray:
    """(N, C) -> (N,)."""
    top = z.max(-1)
    return top + np.log(np.exp(z - top[:, None]).sum(-1))


# What must be at least its threshold for an answer; energy_most is at most, so it counts with a minus.
MEASURES = {"margin": margin, "energy": energy, "energy_most": lambda z: -energy(z)}
SIGN = {"margin": 1, "energy": 1, "energy_most": -1}


def accepted(z: np.ndarray, thresholds: Mapping[str, float]) -> np.ndarray:
    """bool (N,): whether an answer is given. thresholds: by measure, at least one."""
    z, used = z.astype(np.float64), [name for name in MEASURES if name in thresholds]
    return np.logical_and.reduce([MEASURES[name](z) >= SIGN[name] * thresholds[name] for name in used])


def fit(
    z: np.ndarray, y: np.ndarray, strange: Sequence[np.ndarray], share: float, measures: Sequence[str] = tuple(MEASURES)
) -> dict[str, Any]:
    """What a .bin stores as "unknown". z (N, C): outputs of held-out samples, y (N,) their classes; strange: outputs of
    each kind of `strangers`. share: of the right answers that may be lost. Wants at least one right answer."""
    z, right = z.astype(np.float64), z.argmax(-1) == y
    sets = [names for k in range(len(measures)) for names in combinations(measures, k + 1)]
    tried = {" and ".join(names): _thresholds(z[right], names, share) for names in sets}
    passed = {name: [_passed(group, t) for group in (z[~right], *strange)] for name, t in tried.items()}
    cases = [k for k, group in enumerate((z[~right], *strange)) if len(group) >= FEW]
    least = [min(shares) for shares in zip(*passed.values(), strict=True)]
    worst = {name: max((passed[name][k] / least[k] for k in cases), default=1.0) for name in tried}
    near = [name for name in tried if worst[name] <= NEAR * min(worst.values())]
    chosen = min(near, key=lambda name: (-len(tried[name]), worst[name]))
    kinds = ("wrong_passed", "strangers_passed", "negatives_passed")
    return {
        **tried[chosen],
        "temperature": float(f"{temperature(z, y):.4g}"),
        "share": share,
        **{kind: float(f"{p:.4g}") for kind, p in zip(kinds, passed[chosen], strict=True)},
        **trade(z, y, tried[chosen]),
    }


def _thresholds(right: np.ndarray, names: Sequence[str], share: float) -> dict[str, float]:
    """Equal quantiles of each measure, such that together they lose `share` of the right answers. As float32."""
    values = {name: MEASURES[name](right) for name in names}

    def at(q: float) -> dict[str, float]:
        return {name: SIGN[name] * float(np.float32(np.quantile(v, q))) for name, v in values.items()}

    low, high = 0.0, share
    for _ in range(30 if len(names) > 1 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - accepted(right, at(middle)).mean() <= share else (low, middle)
    return at(low if len(names) > 1 else share)


def _passed(z: np.ndarray, thresholds: Mapping[str, float]) -> float:
    """The share of outputs that are let pass, never 0: (k + 1) / (n + 2)."""
    return (int(accepted(z, thresholds).sum()) + 1) / (len(z) + 2)


def trade(z: np.ndarray, y: np.ndarray, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """What thresholds gain and cost on samples z (N, C) of classes y."""
    right, given = z.argmax(-1) == y, accepted(z, thresholds)
    return {
        "samples": len(y),
        "accuracy": round(float(right.mean()), 6),
        "accepted_accuracy": round(float(right[given].mean()), 6) if given.any() else None,
        "rejected": round(float(1 - given.mean()), 6),
    }


def strangers(x: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of samples x (N, ...): what is nothing any more (each picture's tiles change places; of rows, each value comes
    from another row), and negatives."""
    return _moved(x, seed), 255 - x if x.dtype == np.uint8 else x.max() + x.min() - x


def _moved(x: np.ndarray, seed: int) -> np.ndarray:
    if x.ndim != 4:
        columns = [x[rng.permutation(seed, rng.STRANGE, k, len(x)), k] for k in range(x.shape[1])]
        return np.stack(columns, 1)
    N, H, W, C = x.shape
    k = min(TILES, H, W)
    h, w, out = H // k, W // k, x.copy()
    tiles = x[:, : k * h, : k * w].reshape(N, k, h, k, w, C).transpose(0, 1, 3, 2, 4, 5).reshape(N, k * k, h, w, C)
    orders = np.stack([rng.permutation(seed, rng.STRANGE, n, k * k) for n in range(N)])
    moved = np.take_along_axis(tiles, orders[:, :, None, None, None], 1)
    out[:, : k * h, : k * w] = moved.reshape(N, k, k, h, w, C).transpose(0, 1, 3, 2, 4, 5).reshape(N, k * h, k * w, C)
    return out


def temperature(z: np.ndarray, y: np.ndarray) -> float:
    """From 0.05 to 20, by golden sections of log T: the mean loss has one minimum. So that a net without a mistake on
    a few samples is not taken for infallible, one part in N + 2 of each answer is given to the other classes (after
    Platt, "Probabilistic outputs for support vector machines", 1999)."""
    (N, C), index = z.shape, np.arange(len(y))
    doubt = 1 / (N + 2)

    def loss(log_t: float) -> float:
        scaled = z * np.exp(-log_t)
        own, total = scaled[index, y], scaled.sum(-1)
        return float((energy(scaled) - (1 - doubt) * own - doubt * (total - own) / (C - 1)).mean())

    low, high = np.log(0.05), np.log(20.0)
    for _ in range(60):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))


def text(found: dict[str, Any]) -> str:
    """What was fitted, in a line."""

    def of(part: dict[str, Any], what: str) -> str:
        given = part["accepted_accuracy"]
        share = "none is answered" if given is None else f"{100 * given:.2f} % of the others right"
        return (
            f"{100 * part['rejected']:.1f} % of {part['samples']:,} {what} samples, {share} "
            f"({100 * part['accuracy']:.2f} % of all)"
        )

    said = {"margin": "margin below", "energy": "energy below", "energy_most": "energy above"}
    rule = " or ".join(f"{said[name]} {found[name]:.3g}" for name in MEASURES if name in found)
    parts = [of(found, "held-out"), *([of(found["test"], "test")] if "test" in found else [])]
    return f"unknown ({rule}): " + "; ".join(parts)
