"""Graph passes for whole numbers: activations that are tables stand alone, and tensors that need one scale meet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from litenet.trainer.fuse import fuse_activations
from litenet.trainer.graph import Graph, Node, Tensor
from litenet.trainer.int8.ops import FORWARD
from litenet.trainer.ops import OPS, activations, make_attrs

from ..importers.graphs import changed

BOUNDED = ("none", "relu", "relu6")  # lower and upper bounds of the operator do these
KEEPING = ("maxpool2d", "avgpool2d", "flatten", "reshape", "transpose", "slice", "pad", "resize")  # y has x's scale
WEIGHTED = ("linear", "conv2d", "depthwise_conv2d", "embed_projection")


def separated(graph: Graph) -> Graph:
    """Every fused activation but relu and relu6 as a node of its own, behind what it belonged to."""
    nodes: list[Node] = []
    tensors = list(graph.tensors)
    for n in graph.nodes:
        name = n.attrs.activation
        if n.op == "activation" or name in BOUNDED:
            nodes.append(n)
            continue
        tensors.append(Tensor(f"{tensors[n.output].name}.linear", tensors[n.output].shape))
        act = make_attrs(OPS["activation"].OP, {"activation": name, "alpha": n.attrs.alpha})
        nodes.append(replace(n, attrs=changed(n.attrs, activation="none"), output=len(tensors) - 1))
        nodes.append(Node(f"{n.name}.{name}", "activation", act, (len(tensors) - 1,), n.output, {}, n.layer))
    return replace(graph, nodes=tuple(nodes), tensors=tuple(tensors))


def joined(graph: Graph, floats: Collection[str]) -> Graph:
    """Activations of layers that stay float go back into them."""
    apart = {n.output for n in graph.nodes if n.name not in floats}
    hidden = tuple({*graph.outputs, *apart})  # what is an output is fused with nothing
    fused = fuse_activations(replace(graph, outputs=hidden), frozenset(activations.IDS))
    return replace(fused, outputs=graph.outputs)


def without_form(graph: Graph) -> list[Node]:
    """Nodes that whole numbers have no form for."""
    return [n for n in graph.nodes if n.op not in FORWARD]


def tied(graph: Graph, floats: Collection[str]) -> dict[int, int]:
    """The tensor that stands for each one's scale and zero point. Those of pools and moves are equal; a concat's inputs
    that nobody else reads take its output's, so that it only moves bytes."""
    parent = list(range(len(graph.tensors)))

    def root(t: int) -> int:
        while parent[t] != t:
            t = parent[t]
        return t

    for n in graph.nodes:
        if n.name in floats:
            continue
        if n.op in KEEPING:
            parent[root(n.output)] = root(n.inputs[0])
        elif n.op == "concat":
            for t in n.inputs:
                if t != graph.input and t not in graph.outputs and graph.consumers(t) == [n]:
                    parent[root(t)] = root(n.output)
    return {t: root(t) for t in range(len(parent))}
