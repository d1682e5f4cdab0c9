"""What a model said about samples whose answers are known, and what that amounts to: as a dict, and as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .figures import Figures, confused, figures, worst

Maps = Callable[[np.ndarray, np.ndarray], "np.ndarray | str"]
WORST = 12
CONFUSED = 8


@dataclass(frozen=True)
class Judged:
    """Of a classifier p is float64 (N,C) and y class numbers; of a net that gives values p is None, and `values` and
    y are both float32 (N, ...).

    frames: the pictures at these indices as the net sees them, uint8 (n,H,W,3) in RGB; None where samples are no
    pictures. maps: which places of the pictures at these indices spoke for these classes, float32 (n,h,w) of 0..1, or a
    sentence that says why there is no such thing.
    """

    model: str
    kind: str  # "checkpoint" or "bin"
    name: str
    data: str  # such as "355 test samples of digits"
    labels: list[str]
    y: np.ndarray
    p: np.ndarray | None
    answers: np.ndarray | None
    values: np.ndarray | None
    frames: Callable[[np.ndarray], np.ndarray] | None
    maps: Maps
    files: np.ndarray | None  # of the samples, where they are files
    origin: np.ndarray | None  # their numbers in the data, where that is not 0, 1, 2, ...
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @cached_property
    def figures(self) -> Figures | None:
        """None of a net that gives values."""
        return None if self.p is None else figures(self.p, self.y, self.answers)

    @cached_property
    def worst(self) -> np.ndarray:
        """Indices of the samples to look at (figures.py)."""
        assert self.p is not None
        assert self.figures is not None
        return worst(self.p, self.y, self.figures.answers, WORST)

    def sample(self, i: int) -> str:
        """How to find a sample again: its file, or its number in the data."""
        if self.files is not None:
            return str(self.files[i])
        return f"number {i if self.origin is None else int(self.origin[i])}"


def as_dict(judged: Judged) -> dict[str, Any]:
    """Everything but the pictures; JSON knows all of it."""
    found: dict[str, Any] = {"model": judged.model, "kind": judged.kind, "name": judged.name, "data": judged.data}
    found |= {"samples": len(judged.y), "notes": list(judged.notes), "seconds": round(judged.seconds, 3)}
    f = judged.figures
    if f is None or judged.p is None:
        return found | errors(judged)
    found |= {"accuracy": f.accuracy, "top5": f.top5, "macro_f1": f.macro_f1, "log_loss": f.log_loss}
    found |= {"confidence": f.confidence, "ece": f.ece}
    occur, answered = f.confusion.sum(1).tolist(), f.confusion.sum(0).tolist()
    rows = zip(judged.labels, occur, answered, f.precision, f.recall, f.f1, strict=True)
    keys = ("label", "samples", "answered", "precision", "recall", "f1")
    found["classes"] = [dict(zip(keys, row, strict=True)) for row in rows]
    found["confusion"] = f.confusion.tolist()
    found["calibration"] = [vars(b) for b in f.bins]
    found["worst"] = [mistake(judged, int(i)) for i in judged.worst]
    return found


def mistake(judged: Judged, i: int) -> dict[str, Any]:
    """One of the samples to look at."""
    assert judged.p is not None
    assert judged.figures is not None
    truth, said = int(judged.y[i]), int(judged.figures.answers[i])
    return {
        "sample": judged.sample(i),
        "truth": judged.labels[truth],
        "answer": judged.labels[said],
        "probability": round(float(judged.p[i, said]), 6),
        "probability_of_truth": round(float(judged.p[i, truth]), 6),
    }


def errors(judged: Judged) -> dict[str, float]:
    """Of a net that gives values: mean squared and mean absolute difference."""
    assert judged.values is not None
    d = judged.values.reshape(-1).astype(np.float64) - judged.y.reshape(-1)
    return {"mse": float(np.mean(d * d)), "mae": float(np.mean(np.abs(d)))}


def text(judged: Judged) -> list[str]:
    """The figures as `edge-train evaluate` prints them."""
    lines = [f"{judged.model} ({judged.name}) on {judged.data}", *judged.notes]
    f = judged.figures
    if f is None:
        found = errors(judged)
        return [*lines, f"mean squared error {found['mse']:.6g}, mean absolute error {found['mae']:.6g}"]
    right = int(np.diag(f.confusion).sum())
    top5 = "" if f.top5 is None else f", among the first five {100 * f.top5:.2f} %"
    lines += [
        f"accuracy    {100 * f.accuracy:.2f} % ({right:,} of {f.samples:,}){top5}",
        f"macro F1    {100 * f.macro_f1:.2f} %",
        f"log loss    {f.log_loss:.4f}",
        f"calibration it is {100 * f.confidence:.1f} % sure on average; ECE {100 * f.ece:.2f} %",
        "",
    ]
    width = max(5, *(len(label) for label in judged.labels))
    lines.append(f"{'class':<{width}}  samples  precision  recall      F1")
    for label, n, *rest in zip(judged.labels, f.confusion.sum(1), f.precision, f.recall, f.f1, strict=True):
        shown = [percent(v) for v in rest]
        lines.append(f"{label:<{width}}  {n:>7,}  {shown[0]:>9}  {shown[1]:>6}  {shown[2]:>6}")
    pairs = confused(f.confusion, CONFUSED)
    if pairs:
        lines += ["", "most frequent mistakes"]
        lines += [f"  {judged.labels[t]} taken for {judged.labels[a]}: {n:,}" for t, a, n in pairs]
        lines += ["", "worst mistakes"]
        for i in judged.worst:
            m = mistake(judged, int(i))
            lines.append(
                f"  {m['sample']}: {m['truth']} taken for {m['answer']} ({100 * m['probability']:.1f} % sure; "
                f"{m['truth']} {100 * m['probability_of_truth']:.2f} %)"
            )
    return lines


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
