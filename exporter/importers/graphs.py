"""Small tools for passes over an imported graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from litenet.trainer.graph import Graph, Node
from litenet.trainer.ops import Attrs

Weights = dict[str, np.ndarray]


def used(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """Without nodes nobody reads, and their weights."""
    needed, kept = set(graph.outputs), []
    for n in reversed(graph.nodes):
        if n.output in needed:
            needed.update(n.inputs)
            kept.append(n)
    names = {name for n in kept for name in n.params.values()}
    params = {k: p for k, p in graph.params.items() if k in names}
    return replace(graph, nodes=tuple(kept[::-1]), params=params), {k: weights[k] for k in names}


def renamed(graph: Graph, instead: dict[int, int]) -> Graph:
    """Readers of a tensor read another one."""
    nodes = tuple(replace(n, inputs=tuple(instead.get(t, t) for t in n.inputs)) for n in graph.nodes)
    return replace(graph, nodes=nodes)


def readers(graph: Graph) -> Counter[int]:
    """How often each tensor is read; outputs count twice, so that 1 means that one node alone does."""
    found = Counter(t for n in graph.nodes for t in n.inputs)
    found.update(dict.fromkeys(graph.outputs, 2))
    return found


def changed(a: Attrs, **more: Any) -> Attrs:
    return Attrs(**(vars(a) | more))


def set_affine(n: Node, weights: Weights, scale: np.ndarray, shift: np.ndarray) -> None:
    """Make a batchnorm x * scale + shift."""
    for role, value in (("gamma", scale), ("beta", shift), ("running_mean", 0 * scale), ("running_var", 1 + 0 * scale)):
        weights[n.params[role]] = value.astype(np.float32)
