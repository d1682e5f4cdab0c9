"""Cross-layer equalisation (Nagel et al., ICCV 2019): channels of one tensor brought to like sizes.

Between two layers with weights, channel c may be divided by s[c] in the first and multiplied by it in the second: relu
and pools let factors above 0 through. int8 has one scale for all channels of a tensor, so like sizes waste fewer steps;
but the second layer's weights of one output channel share a scale too. s[c] = sqrt(a[c] / w[c]), a the channel's
largest |activation| and w its largest |weight| in the layers that read it, both as shares of their largest, weighs one
against the other. Where a depthwise convolution reads, w costs nothing: s[c] = a[c].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from litenet.trainer.graph import Graph, Node

from ..fold import run
from .lower import Weights
from .ranges import BATCH

THROUGH = ("maxpool2d", "avgpool2d", "global_avg_pool", "flatten")
MOST = 32.0  # largest factor, and the inverse of the smallest


def equalised(graph: Graph, weights: Weights, x: np.ndarray) -> Weights | None:
    """The same net with other weights; None where no two layers allow it. x: inputs that the sizes are taken from."""
    places = [(n, readers) for n in graph.nodes if (readers := _readers(graph, n))]
    if not places:
        return None
    out = dict(weights)
    largest = _largest(graph, weights, x, [n.output for n, _ in places])
    for n, readers in places:
        a = largest[n.output]
        s = _factors(a, [(r, _by_input(graph, n, r, out)) for r in readers])
        _divide(n, out, s)
        for r in readers:
            _multiply(graph, n, r, out, s)
    return out


def _readers(graph: Graph, n: Node) -> list[Node]:
    """The layers with weights that alone read what n gives; empty where something else does."""
    if n.op not in ("linear", "conv2d", "depthwise_conv2d") or n.attrs.activation not in ("none", "relu"):
        return []
    found: list[Node] = []
    waiting = [n.output]
    while waiting:
        t = waiting.pop()
        if t in graph.outputs:
            return []
        for r in graph.consumers(t):
            if r.op in ("linear", "conv2d", "depthwise_conv2d"):
                found.append(r)
            elif r.op in THROUGH or (r.op == "activation" and r.attrs.activation == "relu"):
                waiting.append(r.output)
            else:
                return []
    C = graph.tensors[n.output].shape[-1]
    fits = all(graph.tensors[r.inputs[0]].shape[-1] % C == 0 for r in found)
    grouped = any(r.op == "conv2d" and r.attrs.groups > 1 for r in found)
    uses = Counter(name for m in graph.nodes for name in m.params.values())
    shared = any(uses[name] > 1 for m in (n, *found) for name in m.params.values())
    return [] if grouped or shared or not fits else found


def _view(graph: Graph, n: Node, r: Node, w: np.ndarray) -> np.ndarray:
    """The reader's weights with n's channels as their last axis."""
    C = graph.tensors[n.output].shape[-1]
    return w if r.op == "depthwise_conv2d" else w.reshape(len(w), -1, C)


def _by_input(graph: Graph, n: Node, r: Node, weights: Weights) -> np.ndarray:
    """(C) the largest |weight| of each of n's channels in r."""
    w = _view(graph, n, r, weights[r.params["weight"]])
    return np.abs(w).max(tuple(range(w.ndim - 1)))


def _factors(a: np.ndarray, read: list[tuple[Node, np.ndarray]]) -> np.ndarray:
    share = a / max(float(a.max()), 1e-30)
    dense = [w for r, w in read if r.op != "depthwise_conv2d"]
    if dense:
        w = np.max(dense, 0)
        w = w / max(float(w.max()), 1e-30)
        s = np.sqrt(np.divide(share, w, out=np.ones_like(share), where=(share > 0) & (w > 0)))
    else:
        s = np.where(share > 0, share, 1.0)
    return np.clip(s / max(float(s.max()), 1e-30), 1 / MOST, 1.0)


def _divide(n: Node, weights: Weights, s: np.ndarray) -> None:
    w = weights[n.params["weight"]].astype(np.float64)
    last = n.op == "depthwise_conv2d"
    weights[n.params["weight"]] = (w / (s if last else s.reshape(-1, *[1] * (w.ndim - 1)))).astype(np.float32)
    if "bias" in n.params:
        weights[n.params["bias"]] = (weights[n.params["bias"]] / s).astype(np.float32)


def _multiply(graph: Graph, n: Node, r: Node, weights: Weights, s: np.ndarray) -> None:
    name = r.params["weight"]
    w = weights[name].astype(np.float64)
    weights[name] = (_view(graph, n, r, w) * s).astype(np.float32).reshape(w.shape)


def _largest(graph: Graph, weights: Weights, x: np.ndarray, tensors: list[int]) -> Mapping[int, np.ndarray]:
    """(C) the largest |value| of each channel."""
    found: dict[int, np.ndarray] = {}
    for at in range(0, len(x), BATCH):
        held = run(graph, weights, x[at : at + BATCH])
        for t in tensors:
            top = np.abs(held[t]).reshape(-1, held[t].shape[-1]).max(0).astype(np.float64)
            found[t] = np.maximum(found[t], top) if t in found else top
    return found
