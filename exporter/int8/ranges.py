"""Ranges of tensors from data: a histogram for each set of tensors that share a scale, and four ways to cut it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from litenet.trainer.graph import Graph
from litenet.trainer.int8 import scheme
from litenet.trainer.int8.scheme import Quant

from ..fold import run
from .graphs import tied
from .lower import Weights, least_scale

BINS = 2048
BATCH = 32
STEPS = 48  # positions of each end that the search for the least error tries

Range = tuple[float, float]


@dataclass(frozen=True)
class Histogram:
    """counts (BINS) of the values between lo and hi, in equal bins."""

    lo: float
    hi: float
    counts: np.ndarray

    @property
    def centres(self) -> np.ndarray:
        return self.lo + (np.arange(BINS) + 0.5) * ((self.hi - self.lo) / BINS)


def observe(graph: Graph, weights: Weights, x: np.ndarray, groups: Mapping[int, int]) -> dict[int, Histogram]:
    """By root of a group: what its tensors held while the float net ran on x. Two passes: ends, then counts."""
    lo, hi = dict.fromkeys(groups.values(), 0.0), dict.fromkeys(groups.values(), 0.0)
    counts: dict[int, np.ndarray] = {}
    for t, values in _passes(graph, weights, x):
        r = groups[t]
        lo[r], hi[r] = min(lo[r], float(values.min())), max(hi[r], float(values.max()))
    for t, values in _passes(graph, weights, x):
        r = groups[t]
        if hi[r] > lo[r]:  # numpy refuses an empty range
            counts[r] = counts.get(r, np.int64(0)) + np.histogram(values, BINS, (lo[r], hi[r]))[0]
    return {r: Histogram(lo[r], hi[r], counts.get(r, np.zeros(BINS, np.int64))) for r in lo}


def _passes(graph: Graph, weights: Weights, x: np.ndarray):
    for at in range(0, len(x), BATCH):
        yield from run(graph, weights, x[at : at + BATCH]).items()


def minmax(h: Histogram) -> Range:
    """All that was seen."""
    return h.lo, h.hi


def percentile(share: float) -> Callable[[Histogram], Range]:
    """All but `share` of the values, half of it at each end that is not 0."""

    def cut(h: Histogram) -> Range:
        total = h.counts.sum()
        if total == 0:
            return h.lo, h.hi
        edges = np.linspace(h.lo, h.hi, BINS + 1)
        below = np.concatenate([[0], np.cumsum(h.counts)]) / total
        lo = float(edges[max(int(np.searchsorted(below, share / 2, "right")) - 1, 0)])
        hi = float(edges[min(int(np.searchsorted(below, 1 - share / 2, "left")), BINS)])
        return min(lo, 0.0), max(hi, 0.0)

    return cut


def least_error(h: Histogram) -> Range:
    """The range whose int8 are nearest to the values, by mean square."""
    values, counts = h.centres, h.counts.astype(np.float64)
    if counts.sum() == 0:
        return h.lo, h.hi

    def error(lo: float, hi: float) -> float:
        q = scheme.asymmetric(lo, hi)
        k = np.clip(np.floor(values / q.scale + 0.5), scheme.LO - q.zero, scheme.HI - q.zero)
        return float((counts * (values - q.scale * k) ** 2).sum())

    lo, hi = h.lo, h.hi
    best = error(lo, hi)
    for _ in range(2):
        for end in (0, 1):
            for k in range(STEPS // 8, STEPS):
                a, b = (h.lo * k / STEPS, hi) if end == 0 else (lo, h.hi * k / STEPS)
                if a < b and (found := error(a, b)) < best:
                    best, lo, hi = found, a, b
    return lo, hi


METHODS: dict[str, Callable[[Histogram], Range]] = {
    "min-max": minmax, "99.99 %": percentile(1e-4), "99.9 %": percentile(1e-3), "least error": least_error,
}  # fmt: skip


def ranges(histograms: Mapping[int, Histogram], groups: Mapping[int, int]) -> dict[str, dict[int, Range]]:
    """Every method's range of every tensor: that of its group."""
    found = {}
    for name, cut in METHODS.items():
        own = {r: cut(h) for r, h in histograms.items()}
        found[name] = {t: own[r] for t, r in groups.items()}
    return found


def assign(
    graph: Graph, weights: Weights, chosen: Mapping[int, Range], floats: Collection[str], fixed: Mapping[int, Quant]
) -> dict[int, Quant]:
    """A scale for every tensor from the range of its group's root: wide enough for the multipliers of what is int8;
    softmax's output has its own, and fixed ones (by tensor) stand."""
    groups = tied(graph, floats)
    found = {r: scheme.asymmetric(*chosen[r]) for r in set(groups.values())}
    for n in graph.nodes:
        if n.op == "softmax" and n.name not in floats:
            found[groups[n.output]] = scheme.PROBABILITIES
    found |= {groups[t]: q for t, q in fixed.items()}
    while True:
        quants = {t: found[r] for t, r in groups.items()}
        again = False
        for n in graph.nodes:
            if n.name in floats:
                continue
            r = groups[n.output]
            wider = scheme.wider(found[r], least_scale(graph, n, weights, quants))
            if wider != found[r]:
                found[r], again = wider, True
                quants = {t: found[r] for t, r in groups.items()}
        if not again:
            return quants
