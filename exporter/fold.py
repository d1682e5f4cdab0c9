"""Passes that need weights: fold batchnorm into what stands before it, and leave out what moves nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from litenet.trainer.graph import Graph, Node
from litenet.trainer.ops import OPS, Attrs

FOLDS_INTO = ("conv2d", "depthwise_conv2d", "linear")


def batchnorm_affine(node: Node, weights: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift) in float64 of a batchnorm with its running statistics: y = x * scale + shift."""
    gamma, beta, mean, var = (
        weights[node.params[role]].astype(np.float64) for role in ("gamma", "beta", "running_mean", "running_var")
    )
    scale = gamma / np.sqrt(var + node.attrs.eps)
    return scale, beta - mean * scale


def fold_batchnorm(graph: Graph, weights: dict[str, np.ndarray]) -> tuple[Graph, dict[str, np.ndarray]]:
    """w' = w * scale and b' = b * scale + shift by output channel, where the layer before has no activation and no
    other reader. The batchnorm's own activation moves along. Computed in float64."""
    weights = dict(weights)
    nodes: list[Node] = []
    params = dict(graph.params)
    at: dict[int, int] = {}
    for node in graph.nodes:
        before = at.get(node.inputs[0]) if node.op == "batchnorm" else None
        if before is not None and _takes_batchnorm(graph, nodes[before]):
            p = nodes[before]
            scale, shift = batchnorm_affine(node, weights)
            w, name = weights[p.params["weight"]].astype(np.float64), p.params["weight"]
            last = p.op == "depthwise_conv2d"  # (kh,kw,C); the others have the output channel first
            weights[name] = (w * (scale if last else scale.reshape(-1, *[1] * (w.ndim - 1)))).astype(np.float32)
            bias_name = p.params.get("bias") or f"{p.name}.bias"
            bias = weights[bias_name].astype(np.float64) if "bias" in p.params else np.zeros(len(scale))
            weights[bias_name] = (bias * scale + shift).astype(np.float32)
            params.setdefault(
                bias_name, replace(params[name], name=bias_name, shape=(len(scale),), init="zeros", decay=False)
            )
            attrs = Attrs(
                **(vars(p.attrs) | {"bias": 1, "activation": node.attrs.activation, "alpha": node.attrs.alpha})
            )
            nodes[before] = replace(p, attrs=attrs, output=node.output, params=p.params | {"bias": bias_name})
            at[node.output] = before
            for name in node.params.values():
                del weights[name], params[name]
            continue
        at[node.output] = len(nodes)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), params=params), weights


def _takes_batchnorm(graph: Graph, p: Node) -> bool:
    alone = len(graph.consumers(p.output)) == 1 and p.output not in graph.outputs
    return p.op in FOLDS_INTO and p.attrs.activation == "none" and alone


def drop_flatten(graph: Graph) -> Graph:
    """A linear layer reads its whole input as one row: a flatten or reshape before it says nothing the device needs."""
    instead = {
        n.output: n.inputs[0]
        for n in graph.nodes
        if n.op in ("flatten", "reshape")
        and n.output not in graph.outputs
        and all(c.op == "linear" and len(graph.tensors[c.output].shape) == 1 for c in graph.consumers(n.output))
    }
    nodes = [
        replace(n, inputs=tuple(instead.get(t, t) for t in n.inputs)) for n in graph.nodes if n.output not in instead
    ]
    return replace(graph, nodes=tuple(nodes))


def run(graph: Graph, weights: dict[str, np.ndarray], x: np.ndarray) -> dict[int, np.ndarray]:
    """Every tensor of the graph for a batch x, by the operators' definitions: what the device must agree with."""
    from litenet.trainer.ops import parameters

    tensors = {graph.input: x}
    for node in graph.nodes:
        module = OPS[node.op]
        env = dict(zip(module.OP.inputs, (tensors[t] for t in node.inputs), strict=True))
        if node.op == "linear":
            shape = graph.tensors[node.output].shape
            env["x"] = env["x"].reshape(len(x), *shape[:-1], -1)
        env |= {role: weights[name] for role, name in node.params.items()}
        tensors[node.output] = module.forward(node.attrs, *(env.get(p) for p in parameters(module.forward)))
    return tensors
