"""What each layer is like at the end of an epoch: silent units, size of its outputs, of its gradient, of its last step.

    name          the blueprint's layer
    dead          share of its channels that a relu kept at 0 for every sample and place; None without a relu
    mean, std     of its outputs
    gradient      norm of its weights' gradient in the epoch's last update, before any clipping; None without weights
    update_ratio  norm of that update over the norm of the weights before it; None without weights
Outputs are those of evaluation (no dropout, running statistics, averaged weights) for a few hundred samples, evenly
taken from the training set, unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from .graph import Graph
from .ops import OPS

RECTIFIERS = ("relu", "relu6")


@dataclass(frozen=True)
class Outputs:
    """Of one layer: how many values, their sum, the sum of their squares, and which channels were ever above 0."""

    count: int
    sum: float
    squares: float
    live: np.ndarray

    def __add__(self, more: Outputs) -> Outputs:
        """Of both batches together."""
        return Outputs(
            self.count + more.count, self.sum + more.sum, self.squares + more.squares, self.live | more.live
        )


SAMPLES = 512  # that layers are measured on, or a batch if that is more


def probe(count: int, batch: int) -> list[np.ndarray]:
    """The samples that layers are measured on: int64, evenly spaced, in batches of equal size."""
    size = min(count, batch)
    batches = max(1, min(-(-SAMPLES // size), count // size))
    return np.split(np.linspace(0, count - 1, batches * size).astype(np.int64), batches)


def measured(graph: Graph) -> dict[str, tuple[str, bool]]:
    """Tensors that are some layer's output, made by an operator: name -> (layer, whether a relu made it)."""
    made = {n.output: n for n in graph.nodes if not OPS[n.op].OP.view}
    found = {}
    for layer, t in graph.layers.items():
        node = made.get(t)
        if node is not None and node.layer == layer.split(".")[0]:
            found[graph.tensors[t].name] = (layer, getattr(node.attrs, "activation", "none") in RECTIFIERS)
    return found


def of_array(y: np.ndarray) -> Outputs:
    """The definition, of outputs (N, ..., C)."""
    rows = y.reshape(-1, y.shape[-1]).astype(np.float64)
    return Outputs(rows.size, float(rows.sum()), float(np.square(rows).sum()), np.asarray((rows > 0).any(0)))


def rows(
    graph: Graph,
    outputs: Mapping[str, Outputs],
    gradients: Mapping[str, float],
    weights: Mapping[str, float],
    updates: Mapping[str, float],
) -> list[dict[str, Any]]:
    """What a row of metrics has as "layers". outputs: by tensor; the others: squared norms by parameter."""
    names = measured(graph).items()
    by_layer = {layer: (outputs[tensor], rectified) for tensor, (layer, rectified) in names if tensor in outputs}
    params: dict[str, list[str]] = {}
    for p in graph.trainable:
        params.setdefault(p.layer, []).append(p.name)
    found = []
    for layer in dict.fromkeys([*graph.layers, *params]):
        row: dict[str, Any] = dict.fromkeys(("dead", "mean", "std", "gradient", "update_ratio"))
        if layer in by_layer:
            y, rectified = by_layer[layer]
            mean = y.sum / y.count
            row |= {"mean": _number(mean), "std": _number(sqrt(max(y.squares / y.count - mean * mean, 0.0)))}
            if rectified:
                row["dead"] = _number(1 - float(y.live.mean()))
        if layer in params:
            total = {key: sum(v.get(n, 0.0) for n in params[layer])
                     for key, v in (("g", gradients), ("w", weights), ("u", updates))}  # fmt: skip
            row["gradient"] = _number(sqrt(total["g"]))
            row["update_ratio"] = _number(sqrt(total["u"] / total["w"])) if total["w"] else None
        if any(value is not None for value in row.values()):
            found.append({"name": layer} | row)
    return found


def _number(value: float) -> float | None:
    """To seven digits; None where it is no number."""
    return float(f"{value:.7g}") if isfinite(value) else None
