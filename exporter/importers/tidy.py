"""Passes that make an imported graph small: (graph, weights) in, the same net out with fewer operators.

Everything here is exact, or rounds once in float64 where constants meet weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from litenet.exporter.fold import batchnorm_affine, drop_flatten, fold_batchnorm
from litenet.trainer.fuse import fuse_activations
from litenet.trainer.graph import Graph, Node, Param
from litenet.trainer.ops import OPS, Attrs, activations

from .graphs import Weights, changed, readers, renamed, set_affine, used
from .patterns import embeds, gates, points

NOT_NEGATIVE = {"relu", "relu6", "sigmoid"}


def tidy(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """All passes, until none of them finds anything."""
    for _ in range(20 + len(graph.nodes)):
        before = [(n.op, n.attrs, n.inputs, n.output) for n in graph.nodes]
        for one_pass in PASSES:
            graph, weights = one_pass(graph, weights)
        if before == [(n.op, n.attrs, n.inputs, n.output) for n in graph.nodes]:
            break
    return in_order(graph), weights


def reshapes(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A reshape of a reshape reads the first one's input; one that changes nothing goes; linear reads anything."""
    made = {n.output: n for n in graph.nodes}
    nodes: list[Node] = []
    instead: dict[int, int] = {}
    for n in graph.nodes:
        n = replace(n, inputs=tuple(instead.get(t, t) for t in n.inputs))
        if n.op == "reshape":
            before = made.get(n.inputs[0])
            while before is not None and before.op == "reshape":
                n = replace(n, inputs=before.inputs)
                before = made.get(n.inputs[0])
            same = graph.tensors[n.inputs[0]].shape == graph.tensors[n.output].shape
            if same and n.output not in graph.outputs:
                instead[n.output] = n.inputs[0]
                continue
        made[n.output] = n
        nodes.append(n)
    return used(drop_flatten(replace(graph, nodes=tuple(nodes))), weights)


def ends(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """What only hands a tensor on to an output goes, where nobody else reads that tensor."""
    made, uses = {n.output: n for n in graph.nodes}, readers(graph)
    gone: set[int] = set()
    outputs: dict[int, int] = {}
    for n in graph.nodes:
        same = graph.tensors[n.inputs[0]].shape == graph.tensors[n.output].shape
        idle = n.op == "reshape" or (n.op == "activation" and n.attrs.activation == "none")
        if same and idle and n.output in graph.outputs and n.inputs[0] in made and uses[n.inputs[0]] == 1:
            gone.add(n.output)
            outputs[n.inputs[0]] = n.output
    nodes = [replace(n, output=outputs.get(n.output, n.output)) for n in graph.nodes if n.output not in gone]
    return replace(graph, nodes=tuple(nodes)), weights


def sinking(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A reshape before an operator that sees values or channels alone goes behind it, where it may meet another."""
    made, tensors, nodes = {n.output: n for n in graph.nodes}, list(graph.tensors), []
    uses = readers(graph)
    for n in graph.nodes:
        r = made.get(n.inputs[0]) if n.op in ("activation", "unary", "batchnorm", "prelu") else None
        if r is not None and r.op == "reshape" and uses[r.output] == 1:
            inside, outside = tensors[r.inputs[0]].shape, tensors[n.output].shape
            if n.op in ("activation", "unary") or inside[-1] == outside[-1]:
                tensors.append(replace(tensors[n.output], name=f"{tensors[n.output].name}~", shape=inside))
                nodes.append(replace(n, inputs=r.inputs, output=len(tensors) - 1))
                n = replace(r, name=f"{n.name}~", inputs=(len(tensors) - 1,), output=n.output)
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes), tensors=tuple(tensors)), weights)


def transposes(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """Two transposes in a row are one, or none."""
    made = {n.output: n for n in graph.nodes}
    nodes: list[Node] = []
    instead: dict[int, int] = {}
    for n in graph.nodes:
        n = replace(n, inputs=tuple(instead.get(t, t) for t in n.inputs))
        before = made.get(n.inputs[0]) if n.op == "transpose" else None
        if before is not None and before.op == "transpose":
            axes = tuple(before.attrs.axes[k] for k in n.attrs.axes)
            n = replace(n, inputs=before.inputs, attrs=changed(n.attrs, axes=axes))
        if n.op == "transpose" and tuple(n.attrs.axes) == (0, 1, 2, 3) and n.output not in graph.outputs:
            instead[n.output] = n.inputs[0]
            continue
        made[n.output] = n
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes)), weights)


def affines(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A batchnorm behind a batchnorm or layernorm joins it; one that changes nothing goes."""
    uses = readers(graph)
    weights = dict(weights)
    nodes: list[Node] = []
    made: dict[int, Node] = {}
    instead: dict[int, int] = {}
    for n in graph.nodes:
        n = replace(n, inputs=tuple(instead.get(t, t) for t in n.inputs))
        before = made.get(n.inputs[0]) if n.op == "batchnorm" else None
        if before is not None and before.op == "layernorm" and uses[before.output] == 1:
            scale, shift = batchnorm_affine(n, weights)
            gamma, beta = (weights[before.params[role]].astype(np.float64) for role in ("gamma", "beta"))
            weights[before.params["gamma"]] = (gamma * scale).astype(np.float32)
            weights[before.params["beta"]] = (beta * scale + shift).astype(np.float32)
            if n.attrs.activation == "none":
                nodes[nodes.index(before)] = made[n.output] = replace(before, output=n.output)
                continue
            n = replace(n, op="activation", attrs=changed(n.attrs), params={})
        joins = before is not None and before.op == "batchnorm" and before.attrs.activation == "none"
        if n.op == "batchnorm" and joins and before is not None:
            s0, t0 = batchnorm_affine(before, weights)
            s1, t1 = batchnorm_affine(n, weights)
            n = replace(n, inputs=before.inputs)
            set_affine(n, weights, s0 * s1, t0 * s1 + t1)
        if n.op == "batchnorm" and n.attrs.activation == "none" and n.output not in graph.outputs:
            scale, shift = batchnorm_affine(n, weights)
            if np.abs(scale - 1).max() <= 1e-7 and not shift.any():
                instead[n.output] = n.inputs[0]
                uses[n.inputs[0]] += uses[n.output] - 1
                continue
        made[n.output] = n
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes)), weights)


def rows(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A batchnorm, a reshape and a batchnorm of longer rows: the first goes into the second, over and over again."""
    made, uses = {n.output: n for n in graph.nodes}, readers(graph)
    weights, nodes = dict(weights), list(graph.nodes)
    for n in graph.nodes:
        r = made.get(n.inputs[0]) if n.op == "batchnorm" else None
        p = made.get(r.inputs[0]) if r is not None and r.op == "reshape" and uses[r.output] == 1 else None
        if r is None or p is None or p.op != "batchnorm" or p.attrs.activation != "none" or uses[p.output] != 1:
            continue
        (s0, t0), (s1, t1) = batchnorm_affine(p, weights), batchnorm_affine(n, weights)
        if len(s1) % len(s0) == 0:
            s0, t0 = (np.tile(v, len(s1) // len(s0)) for v in (s0, t0))
            set_affine(n, weights, s0 * s1, t0 * s1 + t1)
            nodes[nodes.index(r)] = replace(r, inputs=p.inputs)
            made[r.output] = replace(r, inputs=p.inputs)
    return used(replace(graph, nodes=tuple(nodes)), weights)


def pads(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A border of zeros becomes the padding of the convolution or pool that alone reads it."""
    made, uses = {n.output: n for n in graph.nodes}, readers(graph)
    nodes = []
    for n in graph.nodes:
        p = made.get(n.inputs[0])
        if p is not None and p.op == "pad" and uses[p.output] == 1 and _takes_pad(graph, made, n, p):
            top, left, bottom, right = n.attrs.padding
            (a, c), (e, g) = p.attrs.before[:2], p.attrs.after[:2]
            more: dict[str, Any] = {"padding": (top + a, left + c, bottom + e, right + g)}
            if n.op == "avgpool2d":
                more["count_include_pad"] = 1
            n = replace(n, inputs=p.inputs, attrs=changed(n.attrs, **more))
        made[n.output] = n
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes)), weights)


def _takes_pad(graph: Graph, made: dict[int, Node], n: Node, p: Node) -> bool:
    b, e = p.attrs.before, p.attrs.after
    if n.op not in ("conv2d", "depthwise_conv2d", "maxpool2d", "avgpool2d") or b[2] or e[2] or p.attrs.value != 0:
        return False
    padding = [x + y for x, y in zip(n.attrs.padding, (b[0], b[1], e[0], e[1]), strict=True)]
    if n.op in ("conv2d", "depthwise_conv2d"):
        return max(padding) <= 255
    kh, kw = n.attrs.kernel_size
    if max(padding[0::2]) >= kh or max(padding[1::2]) >= kw:
        return False
    if n.op == "avgpool2d":  # zeros that count, and nothing else
        return bool(n.attrs.count_include_pad) or not any(n.attrs.padding)
    before = made.get(p.inputs[0])
    return before is not None and not any(n.attrs.padding) and before.attrs.activation in NOT_NEGATIVE


def factors(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """A batchnorm before a convolution or linear layer that alone reads it goes into the weights: its factors always,
    its shifts where no zeros are padded. Only where the layer before could not take it."""
    made, uses = {n.output: n for n in graph.nodes}, readers(graph)
    weights, params, nodes = dict(weights), dict(graph.params), []
    for n in graph.nodes:
        p = made.get(n.inputs[0])
        if p is not None and p.op == "batchnorm" and uses[p.output] == 1 and _takes_factors(graph, n, p, weights):
            scale, shift = batchnorm_affine(p, weights)
            role = n.params["weight"]
            w = weights[role].astype(np.float64)
            if n.op == "linear":
                rows = w.reshape(len(w), -1, len(scale))
                more = (rows * shift).sum((1, 2))
                w = (rows * scale).reshape(w.shape)
            elif n.op == "depthwise_conv2d":
                more, w = (w * shift).sum((0, 1)), w * scale
            else:
                rows = w.reshape(n.attrs.groups, -1, *w.shape[1:])
                each = (n.attrs.groups, 1, 1, 1, w.shape[3])
                more = (rows * shift.reshape(each)).sum((2, 3, 4)).reshape(-1)
                w = (rows * scale.reshape(each)).reshape(w.shape)
            name = n.params.get("bias") or f"{n.name}.bias"
            bias = weights[name].astype(np.float64) if "bias" in n.params else np.zeros(len(more))
            weights[role], weights[name] = w.astype(np.float32), (bias + more).astype(np.float32)
            params.setdefault(name, Param(name, more.shape, "zeros", (1, 1), True, False, n.layer))
            n = replace(n, inputs=p.inputs, attrs=changed(n.attrs, bias=1), params=n.params | {"bias": name})
        made[n.output] = n
        nodes.append(n)
    return used(replace(graph, nodes=tuple(nodes), params=params), weights)


def _takes_factors(graph: Graph, n: Node, p: Node, weights: Weights) -> bool:
    if n.op not in ("conv2d", "depthwise_conv2d", "linear") or p.attrs.activation != "none":
        return False
    last = graph.tensors[p.output].shape[-1]
    if n.op == "linear" and weights[n.params["weight"]].shape[1] % last:
        return False
    return n.op == "linear" or not any(n.attrs.padding) or not batchnorm_affine(p, weights)[1].any()


def folded(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    return used(*fold_batchnorm(graph, weights))


def fused(graph: Graph, weights: Weights) -> tuple[Graph, Weights]:
    """Activations go into what stands before them; those that do nothing go."""
    instead = {
        n.output: n.inputs[0]
        for n in graph.nodes
        if n.op == "activation" and n.attrs.activation == "none" and n.output not in graph.outputs
    }
    nodes = tuple(n for n in graph.nodes if n.output not in instead)
    graph = renamed(replace(graph, nodes=nodes), instead)
    return fuse_activations(graph, frozenset(activations.IDS)), weights


PASSES: tuple[Callable[[Graph, Weights], tuple[Graph, Weights]], ...] = (
    used, reshapes, ends, sinking, transposes, points, embeds, gates, affines, rows, folded, pads, factors, fused,
)  # fmt: skip


def in_order(graph: Graph) -> Graph:
    """The nodes so placed that outputs are written in the order of graph.outputs, which is how a .bin has them."""
    nodes, tensors, outputs = list(graph.nodes), list(graph.tensors), list(graph.outputs)
    at = {n.output: i for i, n in enumerate(nodes)}
    for i in range(1, len(outputs)):
        if at[outputs[i]] > at[outputs[i - 1]]:
            continue
        k = at[outputs[i]]
        if not graph.consumers(outputs[i]):
            nodes.append(nodes.pop(k))
        else:
            copy = OPS["activation"].OP.name
            name = f"{tensors[outputs[i]].name}.copy"
            tensors.append(replace(tensors[outputs[i]], name=name))
            none = Attrs(activation="none", alpha=0.01)
            nodes.append(Node(name, copy, none, (outputs[i],), len(tensors) - 1, {}, name))
            outputs[i] = len(tensors) - 1
        at = {n.output: j for j, n in enumerate(nodes)}
    return replace(graph, nodes=tuple(nodes), tensors=tuple(tensors), outputs=tuple(outputs))
