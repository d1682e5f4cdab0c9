"""Passes over a graph: graph in, graph out."""

from __future__ import annotations

from dataclasses import replace

from .graph import Graph, Node
from .ops import OPS, Attrs, activations


def for_training(graph: Graph, loss: str) -> Graph:
    """Fuse what backward can undo from the output. A last softmax is left to the cross_entropy, and a last sigmoid to
    the bce, which include them."""
    last = graph.nodes[-1]
    included = {"cross_entropy": last.op == "softmax", "bce": last.attrs.activation == "sigmoid"}
    if included.get(loss) and last.op in ("softmax", "activation") and last.output in graph.outputs:
        graph = replace(graph, nodes=graph.nodes[:-1], outputs=(last.inputs[0],))
    return fuse_activations(graph, activations.FROM_OUTPUT)


def for_inference(graph: Graph) -> Graph:
    """Drop what exists only in training and fuse every activation that has an operator before it."""
    return fuse_activations(without_training_only(graph), frozenset(activations.IDS))


def without_training_only(graph: Graph) -> Graph:
    """The graph without dropout and its like: their readers read their input."""
    instead: dict[int, int] = {}
    nodes = []
    for n in graph.nodes:
        inputs = tuple(instead.get(t, t) for t in n.inputs)
        if OPS[n.op].OP.training_only:
            instead[n.output] = inputs[0]
        else:
            nodes.append(replace(n, inputs=inputs))
    return replace(
        graph,
        nodes=tuple(nodes),
        outputs=tuple(instead.get(t, t) for t in graph.outputs),
        layers={name: instead.get(t, t) for name, t in graph.layers.items()},
    )


def fuse_activations(graph: Graph, allowed: frozenset[str]) -> Graph:
    """Join each activation with the operator before it, where that takes one and nobody else reads its sum."""
    nodes: list[Node] = []
    by_output: dict[int, int] = {}
    for n in graph.nodes:
        before = by_output.get(n.inputs[0]) if n.op == "activation" and n.attrs.activation in allowed else None
        if before is not None:
            p = nodes[before]
            alone = len(graph.consumers(p.output)) == 1 and p.output not in graph.outputs
            if alone and OPS[p.op].OP.activation and p.attrs.activation == "none":
                attrs = Attrs(**(vars(p.attrs) | {"activation": n.attrs.activation, "alpha": n.attrs.alpha}))
                nodes[before] = replace(p, attrs=attrs, output=n.output)
                by_output[n.output] = before
                continue
        by_output[n.output] = len(nodes)
        nodes.append(n)
    return replace(graph, nodes=tuple(nodes))
