"""A float graph with a scale for every tensor, as whole numbers: what the file will hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from litenet.trainer.graph import Graph, Node, Param, Tensor
from litenet.trainer.int8 import ops, scheme
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import Numbers, Quant
from litenet.trainer.ops import Attrs

from ..fold import batchnorm_affine
from ..format import Preprocessing
from .graphs import WEIGHTED, joined

LAST = {"depthwise_conv2d", "embed_projection"}  # their output channel is the last axis of the weights

Weights = dict[str, np.ndarray]


def rows_of(node: Node, w: np.ndarray) -> np.ndarray:
    """Weights as (output channels, K)."""
    return w.reshape(-1, w.shape[-1]).T if node.op in LAST else w.reshape(len(w), -1)


def shaped(node: Node, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse of rows_of."""
    return np.ascontiguousarray(rows.T if node.op in LAST else rows).reshape(shape)


def times(graph: Graph, node: Node) -> int:
    """How often the zero point of x stands before each weight."""
    summed = node.op == "embed_projection" and not node.attrs.keep_channels
    return graph.tensors[node.inputs[0]].shape[-1] if summed else 1


def least_scale(graph: Graph, node: Node, weights: Weights, quants: Mapping[int, Quant]) -> float:
    """The smallest scale of its output that an operator's multipliers allow."""
    x = [quants[t] for t in node.inputs]
    if node.op in WEIGHTED:
        return scheme.least_scale(x[0], scheme.weight_scales(rows_of(node, weights[node.params["weight"]])))
    if node.op == "mul":
        return x[0].scale * x[1].scale
    if node.op == "global_avg_pool":
        H, W, _ = graph.tensors[node.inputs[0]].shape
        return x[0].scale / (H * W)
    return 0.0


def lower(
    graph: Graph,
    weights: Weights,
    quants: Mapping[int, Quant],
    floats: Collection[str] = (),
    frame: Preprocessing | None = None,
    corrections: Mapping[str, np.ndarray] | None = None,
) -> Net:
    """graph: activations apart (graphs.separated). quants: of every tensor. floats: names of nodes that stay float32;
    between both worlds stand quantize and dequantize. corrections: added to biases, in real units, by node. The input
    is int8 where nothing but whole numbers reads it."""
    made = Lowering(graph, weights, quants, floats, corrections or {})
    for node in joined(graph, floats).nodes:
        made.add(node, node.name in floats)
    for t in graph.outputs:
        made.outputs.append(made.own[t])
    done = replace(graph, nodes=tuple(made.nodes), tensors=tuple(made.tensors), outputs=tuple(made.outputs),
                   params=made.params)  # fmt: skip
    picture = None
    if frame is not None and frame.color != "none" and graph.input in made.quants:
        picture = scheme.picture(frame.mean, frame.std, made.quants[graph.input])
    return Net(done, made.quants, made.numbers, made.weights, picture)


class Lowering:
    """Builds the net node by node. `whole` alone also serves training, which has a new set of weights each step."""

    most = scheme.SHORT  # largest factor of a sum of two

    def __init__(self, graph, weights, quants, floats, corrections):
        self.graph, self.given, self.wanted, self.corrections = graph, weights, quants, corrections
        self.tensors: list[Tensor] = list(graph.tensors)
        self.nodes: list[Node] = []
        self.outputs: list[int] = []
        self.params: dict[str, Param] = {}
        self.quants: dict[int, Quant] = {}
        self.numbers: dict[str, Numbers] = {}
        self.weights: Weights = {}
        self.own = {graph.input: graph.input}  # original tensor -> the one its operator writes
        self.other: dict[int, int] = {}  # and its twin in the other world, if somebody needs it
        readers = graph.consumers(graph.input)
        if all(n.name not in floats for n in readers) and graph.input not in graph.outputs:
            self.quants[graph.input] = quants[graph.input]

    def reads(self, t: int, whole: bool) -> int:
        """The tensor that stands for t in one of the worlds; brought over where it is not there yet."""
        own = self.own[t]
        if (own in self.quants) == whole:
            return own
        if t not in self.other:
            kind = "quantize" if whole else "dequantize"
            name = f"{self.tensors[t].name}.{kind}d"
            self.tensors.append(Tensor(name, self.tensors[t].shape))
            new = self.other[t] = len(self.tensors) - 1
            if whole:
                self.quants[new] = self.wanted[t]
                self.numbers[name] = Numbers()
            self.nodes.append(Node(name, kind, Attrs(activation="none"), (own,), new, {}, self.tensors[t].name))
        return self.other[t]

    def add(self, node: Node, is_float: bool) -> None:
        inputs = tuple(self.reads(t, not is_float) for t in node.inputs)
        self.own[node.output] = node.output
        if is_float:
            roles = dict(node.params)
            for name in roles.values():
                self.weights[name], self.params[name] = self.given[name], self.graph.params[name]
        else:
            arrays, numbers = self.whole(node)
            roles = {}
            for role, array in arrays.items():
                name = roles[role] = f"{node.name}.{role}"
                self.weights[name] = array
                self.params[name] = Param(name, array.shape, "zeros", (1, 1), False, False, node.layer)
            self.quants[node.output] = self.wanted[node.output]
            self.numbers[node.name] = numbers
        self.nodes.append(replace(node, inputs=inputs, params=roles))

    def whole(self, node: Node) -> tuple[Weights, Numbers]:
        """The arrays and the record's numbers of one int8 operator."""
        a, qy = node.attrs, self.wanted[node.output]
        qx = [self.wanted[t] for t in node.inputs]
        if node.op in WEIGHTED:
            return self.layer(node, qx[0], qy)
        if node.op == "activation":
            return {"table": ops.activation_table(a.activation, a.alpha, qx[0], qy)}, Numbers()
        if node.op == "unary":
            return {"table": ops.unary_table(a.function, qx[0], qy)}, Numbers()
        if node.op == "softmax":
            return {"table": ops.softmax_table(qx[0])}, Numbers()
        if node.op == "pad":
            return {}, Numbers(border=qx[0].nearest(a.value))
        ratios = [q.scale / qy.scale for q in qx]
        if node.op in ("add", "concat"):
            (m1, m2), _, shift = scheme.rescaling(ratios, most=self.most)
            lo, hi = scheme.bounds(a.activation, qy)
            return {}, Numbers(lo, hi, shift, m1=m1, m2=m2)
        if node.op == "mul":
            return {}, Numbers(m1=scheme.multiplier(qx[0].scale * qx[1].scale / qy.scale))
        if node.op == "global_avg_pool":
            H, W, _ = self.graph.tensors[node.inputs[0]].shape
            return {}, Numbers(m1=scheme.multiplier(ratios[0] / (H * W)))
        if node.op == "batchnorm":
            scale, offset = batchnorm_affine(node, self.given)
            ms, bs, S = scheme.rescaling(list(scale * ratios[0]), list(offset / qy.scale))
            lo, hi = scheme.bounds(a.activation, qy)
            return {"multiplier": np.array(ms, np.int32), "bias": np.array(bs, np.int32)}, Numbers(lo, hi, S)
        if node.op == "prelu":
            slopes = self.given[node.params["slope"]].astype(np.float64)
            ms, _, S = scheme.rescaling([ratios[0], *(slopes * ratios[0])])
            return {"multiplier": np.array(ms[1:], np.int32)}, Numbers(shift=S, m1=ms[0])
        return {}, Numbers()

    def layer(self, node: Node, qx: Quant, qy: Quant) -> tuple[Weights, Numbers]:
        w = self.given[node.params["weight"]]
        rows = rows_of(node, w)
        bias = self.given[node.params["bias"]].astype(np.float64) if "bias" in node.params else np.zeros(len(rows))
        bias = bias + self.corrections.get(node.name, 0.0)
        found = scheme.layer(rows, bias, qx, qy, times=times(self.graph, node))
        arrays = {"weight": shaped(node, found.rows, w.shape), "bias": found.bias, "multiplier": found.multiplier}
        return arrays, Numbers(*scheme.bounds(node.attrs.activation, qy))
