"""Figures of a classifier from what it said: accuracy, confusion, precision and recall, calibration, worst mistakes.

    found = figures(p, y)            # p (N,C): probability of each class; y (N,): the true classes

Formulas, with M[t,a] the number of samples of class t that were answered with a:

    accuracy      sum_k M[k,k] / N
    precision_k   M[k,k] / sum_t M[t,k]      of those answered with k, how many were k; none if k was never answered
    recall_k      M[k,k] / sum_a M[k,a]      of those that were k, how many were found; none if k does not occur
    F1_k          2 M[k,k] / (sum_t M[t,k] + sum_a M[k,a])
    log loss      mean of -log p[i, y_i], no p below 1e-12
    ECE           sum_b n_b / N * |accuracy_b - confidence_b| over BINS equal bins of the confidence (the probability of
                  the answer): the expected calibration error of Guo et al. (ICML 2017)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..losses import BoundLoss
from ..ops.activations import sigmoid

BINS = 15
LEAST = 1e-12  # a probability counts as no less in the log loss


@dataclass(frozen=True)
class Bin:
    """Samples whose confidence lies in (low, high]. confidence, accuracy: their means, None where there are none."""

    low: float
    high: float
    samples: int
    confidence: float | None
    accuracy: float | None

    @property
    def gap(self) -> float:
        """|accuracy - confidence|; 0 of no samples."""
        return 0.0 if self.accuracy is None or self.confidence is None else abs(self.accuracy - self.confidence)


@dataclass(frozen=True)
class Figures:
    """confusion: int64 (C,C), rows are the truth. Of the per-class lists, None: not defined (see above)."""

    samples: int
    accuracy: float
    top5: float | None  # share whose class is among the five most probable; None for five classes or fewer
    log_loss: float
    confusion: np.ndarray
    precision: list[float | None]
    recall: list[float | None]
    f1: list[float | None]
    macro_f1: float  # mean over the classes that occur
    confidence: float  # mean probability of the answer
    ece: float
    bins: list[Bin]
    answers: np.ndarray  # int64 (N,)


def figures(p: np.ndarray, y: np.ndarray, answers: np.ndarray | None = None) -> Figures:
    """p: float (N,C), finite, each in 0..1; y: class numbers (N,) below C. answers: where they are not simply the most
    probable classes."""
    N, C = p.shape
    p, rows = p.astype(np.float64, copy=False), np.arange(N)
    answers = p.argmax(1) if answers is None else answers
    confusion = np.bincount(y * C + answers, minlength=C * C).reshape(C, C)
    right, answered, occur = np.diag(confusion), confusion.sum(0), confusion.sum(1)
    f1 = [_ratio(2 * r, a + o) for r, a, o in zip(right, answered, occur, strict=True)]
    bins = calibration(p[rows, answers], answers == y)
    return Figures(
        samples=N,
        accuracy=float((answers == y).mean()),
        top5=float((np.argsort(-p, 1, kind="stable")[:, :5] == y[:, None]).any(1).mean()) if C > 5 else None,
        log_loss=float(-np.log(np.maximum(p[rows, y], LEAST)).mean()),
        confusion=confusion,
        precision=[_ratio(r, a) for r, a in zip(right, answered, strict=True)],
        recall=[_ratio(r, o) for r, o in zip(right, occur, strict=True)],
        f1=f1,
        macro_f1=float(np.mean([f for f, o in zip(f1, occur, strict=True) if o and f is not None])),
        confidence=float(p[rows, answers].mean()),
        ece=sum(b.samples / N * b.gap for b in bins),
        bins=bins,
        answers=answers,
    )


def calibration(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> list[Bin]:
    """How often answers of each confidence were right."""
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for b in range(bins):
        mine = place == b
        n = int(mine.sum())
        means = (float(confidence[mine].mean()), float(right[mine].mean())) if n else (None, None)
        found.append(Bin(b / bins, (b + 1) / bins, n, *means))
    return found


def worst(p: np.ndarray, y: np.ndarray, answers: np.ndarray, count: int) -> np.ndarray:
    """Indices of the worst mistakes: wrong answers, the less probable the truth the sooner. Where there are none, of
    the right answers that came nearest to being wrong."""
    truth = p[np.arange(len(y)), y]
    wrong = np.flatnonzero(answers != y)
    among = wrong if len(wrong) else np.arange(len(y))
    return among[np.argsort(truth[among], kind="stable")[:count]]


def confused(confusion: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """The most frequent mistakes as (truth, answer, times)."""
    off = confusion.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:count]
    pairs = [tuple(int(k) for k in np.unravel_index(at, off.shape)) for at in order]
    return [(t, a, int(off[t, a])) for t, a in pairs if off[t, a]]


def probabilities(scores: np.ndarray, loss: BoundLoss, last: str, temperature: float = 1.0) -> np.ndarray:
    """What the trainer's scores (N,C) mean as probabilities, the way the runtime reads them: softmax of the scores,
    divided by the temperature where one was fitted, or for bce one sigmoid an output. last: "softmax" or "sigmoid"
    where the scores have been through it. float64 (N,C), or (N,2) of a single yes-or-no output."""
    z = scores.astype(np.float64)
    if loss.name == "bce":
        p = z if last == "sigmoid" else sigmoid(z)
        return p if p.shape[1] > 1 else np.concatenate([1 - p, p], 1)
    if last in ("softmax", "sigmoid"):
        return z
    e = np.exp((z - z.max(1, keepdims=True)) / temperature)
    return e / e.sum(1, keepdims=True)


def _ratio(a: int, b: int) -> float | None:
    return float(a / b) if b else None
