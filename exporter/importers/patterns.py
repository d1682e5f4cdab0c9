"""Several operators that are one of ours: activations written out, convolutions that see everything, embeddings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from litenet.exporter.fold import batchnorm_affine
from litenet.trainer.graph import Graph, Node, Param
from litenet.trainer.ops import Attrs, activations

from .graphs import Weights, readers, set_affine, used

GRID = np.linspace(-8, 8, 65)
GATED = ("silu", "hard_swish", "gelu", "gelu_tanh")


def gates(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """x times a function of x may be an activation (SiLU, hard swish), also where a factor follows: told by what it
    computes."""
    made, uses = {n.output: n for n in graph.nodes}, readers(graph)
    nodes: list[Node] = []
    for n in graph.nodes:
        product = made.get(n.inputs[0]) if n.op == "batchnorm" and n.attrs.activation == "none" else n
        found = None
        if product is not None and product.op == "mul" and (product is n or uses[product.output] == 1):
            found = _gate(uses, weights, made, product, [n] if product is not n else [])
        if found is not None:
            x, name = found
            attrs = Attrs(activation=name, alpha=0.01)
            n = replace(n, op="activation", inputs=(x,), attrs=attrs, params={})
            made[n.output] = n
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes)), weights)


def _gate(
    uses: Counter[int], weights: Weights, made: dict[int, Node], product: Node, behind: list[Node]
) -> tuple[int, str] | None:
    """(x, activation) of the product of x with a row of operators on x, and what stands behind it."""
    for x, at in (product.inputs, product.inputs[::-1]):
        row: list[Node] = []
        while at != x and at in made and len(row) < 4 and uses[at] == 1:
            row.append(made[at])
            at = made[at].inputs[0]
        if at != x or not row:
            continue
        h: np.ndarray | None = GRID
        for n in reversed(row):
            h = None if h is None else _scalar(n, weights, h)
        h = None if h is None else GRID * h
        for n in behind:
            h = None if h is None else _scalar(n, weights, h)
        if h is None:
            continue
        for name in GATED:
            if np.abs(h - activations.apply(name, GRID)).max() <= 2e-6:
                return x, name
    return None


def _scalar(n: Node, weights: Weights, h: np.ndarray) -> np.ndarray | None:
    """What an operator makes of numbers; None where it is not the same for every channel."""
    if n.op == "activation":
        return activations.apply(n.attrs.activation, h, n.attrs.alpha)
    if n.op != "batchnorm":
        return None
    scale, shift = batchnorm_affine(n, weights)
    if np.ptp(scale) or np.ptp(shift):
        return None
    return activations.apply(n.attrs.activation, h * scale[0] + shift[0], n.attrs.alpha)


def points(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A convolution that sees the whole image at once is a linear layer."""
    weights, tensors, nodes = dict(weights), list(graph.tensors), []
    for n in graph.nodes:
        if n.op == "conv2d" and n.attrs.groups == 1 and not any(n.attrs.padding):
            H, W, _ = graph.tensors[n.inputs[0]].shape
            if tuple(n.attrs.kernel_size) == (H, W):
                w = weights[n.params["weight"]]
                weights[n.params["weight"]] = w.reshape(len(w), -1)
                row = len(tensors)
                tensors.append(replace(tensors[n.output], name=f"{n.name}.row", shape=(len(w),)))
                a = n.attrs
                given = {"out_features": len(w), "bias": a.bias, "activation": a.activation, "alpha": a.alpha}
                nodes.append(replace(n, op="linear", attrs=Attrs(**given), output=row))
                shape = Attrs(shape=(1, 1, len(w), 0), activation="none")
                nodes.append(replace(n, name=f"{n.name}.image", op="reshape", attrs=shape, inputs=(row,), params={}))
                continue
        nodes.append(n)
    return replace(graph, nodes=tuple(nodes), tensors=tuple(tensors)), weights


def embeds(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """All channels through one matrix and summed is an embed_projection: transpose (C,H,W), linear on rows of pixels,
    and the mean over C, which a batchnorm makes a sum."""
    made, nodes = {n.output: n for n in graph.nodes}, []
    weights, params, tensors = dict(weights), dict(graph.params), list(graph.tensors)
    for n in graph.nodes:
        found = _embed(graph, readers(graph), made, n) if n.op == "global_avg_pool" else None
        if found is not None:
            turn, project = found
            C = graph.tensors[turn.inputs[0]].shape[2]
            w = weights[project.params["weight"]]
            name = f"{project.name}.projection"
            weights[name] = np.ascontiguousarray(w.T) / np.float32(C)
            params[name] = Param(name, weights[name].shape, "zeros", (1, 1), True, False, n.layer)
            given = {"embed_dim": len(w), "keep_channels": 0, "activation": "none", "alpha": 0.01}
            sums = replace(n, op="embed_projection", inputs=turn.inputs, attrs=Attrs(**given), params={"weight": name})
            if "bias" not in project.params:
                nodes.append(sums)
                continue
            tensors.append(replace(tensors[n.output], name=f"{project.name}.sum"))
            roles = {r: f"{project.name}.{r}" for r in ("gamma", "beta", "running_mean", "running_var")}
            shifted = replace(
                n, name=f"{n.name}.shift", op="batchnorm", inputs=(len(tensors) - 1,), params=roles,
                attrs=Attrs(eps=1e-12, momentum=0.1, activation="none", alpha=0.01),
            )  # fmt: skip
            bias = weights[project.params["bias"]].astype(np.float64)
            set_affine(shifted, weights, np.ones(len(bias)), bias)
            for r in roles.values():
                params[r] = Param(r, bias.shape, "zeros", (1, 1), True, False, n.layer)
            nodes += [replace(sums, output=len(tensors) - 1), shifted]
            continue
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes), params=params, tensors=tuple(tensors)), weights)


def _embed(graph: Graph, uses: Counter[int], made: dict[int, Node], n: Node) -> tuple[Node, Node] | None:
    """(transpose, linear) before this mean, if all is as embeds wants it."""
    chain, at = [], n.inputs[0]
    for _ in range(5):
        p = made.get(at)
        if p is None or uses[p.output] != 1:
            return None
        at = p.inputs[0]
        if p.op != "reshape":
            chain.append(p)
            if p.op == "transpose":
                break
    if [p.op for p in chain] != ["linear", "transpose"]:
        return None
    project, turn = chain
    H, W, C = graph.tensors[turn.inputs[0]].shape if len(graph.tensors[turn.inputs[0]].shape) == 3 else (0, 0, 0)
    rows = graph.tensors[project.output].shape
    fits = (*turn.attrs.axes[:3],) == (2, 0, 1) and rows[0] == C and len(rows) == 2
    fits = fits and project.attrs.activation == "none"
    source = graph.tensors[project.inputs[0]].shape
    mean_over = graph.tensors[n.inputs[0]].shape
    return (turn, project) if fits and source == (C, H * W) and mean_over == (C, 1, rows[1]) else None
