"""A quantised model of others as a net of ours: its own scales, weights and biases, not one of them chosen anew."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from litenet.trainer.errors import UserError
from litenet.trainer.fuse import fuse_activations
from litenet.trainer.graph import Graph, Node, Tensor
from litenet.trainer.int8 import scheme
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.ops import FORWARD
from litenet.trainer.int8.scheme import PROBABILITIES, Numbers, Quant
from litenet.trainer.ops import OPS, Attrs, make_attrs

from ..fold import batchnorm_affine
from ..format import Preprocessing
from ..importers import tidy
from ..importers.foreign import Foreign
from ..importers.given import AGAIN, WEIGHTED, Given
from ..importers.graphs import renamed, used
from . import factors, fitted, graphs
from .lower import Lowering, Weights, rows_of, shaped


def net(foreign: Foreign, given: Given, frame: Preprocessing) -> Net:
    """The whole numbers of the source. Raises UserError, which names the node, where ours cannot be the same."""
    graph, quants = kept(foreign.graph, spread(foreign.graph, given.quants))
    graph, weights = tidied(graph, foreign.weights, quants)
    if not graph.nodes:
        raise UserError(f"{foreign.where} calculates nothing: its output is its input.")
    graph = graphs.separated(graph)
    quants = spread(graph, quants)
    floats = {n.name for n in graph.nodes if _is_float(n, given, quants)}
    graph = graphs.joined(graph, floats)
    made = Exact(graph, weights, quants, floats, given)
    for n in graph.nodes:
        try:
            made.add(n, n.name in floats)
        except ValueError as error:
            _refuse(foreign, given, n, str(error))
    picture = None
    if frame.color != "none" and graph.input in made.quants:
        try:
            picture = scheme.picture(frame.mean, frame.std, quants[graph.input])
        except ValueError as error:
            text = f"{foreign.where}: {error}.\n  Give --input-range, --mean and --std of its training."
            raise UserError(text) from None
    done = replace(graph, nodes=tuple(made.nodes), tensors=tuple(made.tensors), params=made.params,
                   outputs=tuple(made.own[t] for t in graph.outputs))  # fmt: skip
    return Net(done, made.quants, made.numbers, made.weights, picture)


def _is_float(n: Node, given: Given, quants: dict[int, Quant]) -> bool:
    """Whether the source calculates it in floats: it says no scale of a tensor, or of the weights."""
    known = all(t in quants for t in (*n.inputs, n.output))
    return not known or n.op not in FORWARD or (n.op in WEIGHTED and n.name not in given.scales)


def _refuse(foreign: Foreign, given: Given, n: Node, why: str) -> NoReturn:
    place = given.where.get(n.name)
    if place is not None:
        place.refuse(why, AGAIN)
    raise UserError(f"{foreign.where}: node {n.name!r} ({n.op}): {why}.\n  {AGAIN}")


# ---------------------------------------------------------------- the graph


def tidied(graph: Graph, weights: Weights, quants: dict[int, Quant]) -> tuple[Graph, Weights]:
    """The passes of an import that change neither weights nor a tensor with a scale."""
    passes = [used, tidy.reshapes, tidy.transposes, tidy.pads]
    if not any(n.op == "activation" and n.output in graph.outputs and not _same(n, quants) for n in graph.nodes):
        passes.append(tidy.ends)
    for _ in range(20 + len(graph.nodes)):
        before = graph.nodes
        for one in passes:
            graph, weights = one(graph, weights)
        graph = bounded(graph, quants)
        if before == graph.nodes:
            break
    graph, weights = used(graph, weights)
    return tidy.in_order(graph), weights


def _same(n: Node, quants: dict[int, Quant]) -> bool:
    """Whether it reads and writes the same whole numbers, as far as is known."""
    x, y = quants.get(n.inputs[0]), quants.get(n.output)
    return x is None or y is None or x == y


def bounded(graph: Graph, quants: dict[int, Quant]) -> Graph:
    """relu and relu6 become bounds of the operator before, and what does nothing goes; but where an activation reads
    and writes different whole numbers, it is a table of its own."""
    instead = {
        n.output: n.inputs[0]
        for n in graph.nodes
        if n.op == "activation" and n.attrs.activation == "none" and n.output not in graph.outputs
        and quants.get(n.inputs[0]) == quants.get(n.output)
    }  # fmt: skip
    nodes = tuple(n for n in graph.nodes if n.output not in instead)
    graph = renamed(replace(graph, nodes=nodes), instead)
    apart = [n.inputs[0] for n in graph.nodes if n.op == "activation" and not _same(n, quants)]
    done = fuse_activations(replace(graph, outputs=(*graph.outputs, *apart)), frozenset(graphs.BOUNDED))
    return replace(done, outputs=graph.outputs)


def _keeps(n: Node) -> bool:
    return n.op in graphs.KEEPING or (n.op == "activation" and n.attrs.activation == "none")


def spread(graph: Graph, known: dict[int, Quant]) -> dict[int, Quant]:
    """The scales that follow: of what only moves values that of its neighbour; a softmax has one of its own."""
    quants = dict(known)
    readers = {t: graph.consumers(t) for t in (graph.input, *(n.output for n in graph.nodes))}
    found: dict[int, Quant] = {-1: PROBABILITIES}
    while found:
        found = {}
        for n in graph.nodes:
            t, x = n.output, n.inputs[0]
            if n.op == "softmax" and t not in quants:
                found[t] = PROBABILITIES
            elif _keeps(n) and x in quants and t not in quants:
                found[t] = quants[x]
            elif _keeps(n) and t in quants and x not in quants and readers[x] == [n] and x not in graph.outputs:
                found[x] = quants[t]
            elif n.op == "concat" and t in quants:
                found.update({k: quants[t] for k in n.inputs if k not in quants and readers[k] == [n]})
        quants.update(found)
    return quants


def kept(graph: Graph, quants: dict[int, Quant]) -> tuple[Graph, dict[int, Quant]]:
    """Pools and moves keep their input's whole numbers, and a softmax has its own: where the source says otherwise, an
    operator behind changes them."""
    quants, tensors, nodes = dict(quants), list(graph.tensors), []
    for n in graph.nodes:
        own = PROBABILITIES if n.op == "softmax" else quants.get(n.inputs[0]) if n.op in graphs.KEEPING else None
        if own is None or own == quants.get(n.output, own):
            nodes.append(n)
            continue
        tensors.append(Tensor(f"{tensors[n.output].name}.own", tensors[n.output].shape))
        quants[len(tensors) - 1] = own
        none = make_attrs(OPS["activation"].OP, {"activation": "none"})
        nodes.append(replace(n, output=len(tensors) - 1))
        nodes.append(Node(f"{n.name}.scale", "activation", none, (len(tensors) - 1,), n.output, {}, n.layer))
    return replace(graph, nodes=tuple(nodes), tensors=tuple(tensors)), quants


# ---------------------------------------------------------------- its numbers


class Exact(Lowering):
    """Layers with the source's own weights and biases; factors of sums as fine as they can be."""

    most = scheme.RESCALE

    def __init__(self, graph: Graph, weights: Weights, quants: dict[int, Quant], floats: set[str], given: Given):
        super().__init__(graph, weights, quants, floats, {})
        self.source = given
        if graph.input in given.quants and graph.input not in self.quants:  # a float operator reads it, rounded
            self.own[graph.input] = self.reads(graph.input, True)
            del self.other[graph.input]

    def add(self, node: Node, is_float: bool) -> None:
        """What the source calculates in floats and rounds to whole numbers is so rounded for all readers; what it also
        reads as it is, has an operator that rounds it."""
        y = node.output
        if not is_float or y not in self.source.quants:
            super().add(node, is_float)
            return
        x = self.own[node.inputs[0]]
        if node.op == "activation" and node.attrs.activation == "none" and x not in self.quants:
            self.rounded(node.name, x, y)
            return
        self.tensors.append(replace(self.tensors[y], name=f"{self.tensors[y].name}.real"))
        x = len(self.tensors) - 1
        super().add(replace(node, output=x), True)
        self.rounded(f"{self.tensors[y].name}.quantized", x, y)

    def rounded(self, name: str, x: int, y: int) -> None:
        """y, whole numbers, from x in floats."""
        none = Attrs(activation="none")
        self.nodes.append(Node(name, "quantize", none, (x,), y, {}, self.tensors[y].name))
        self.own[y], self.quants[y], self.numbers[name] = y, self.wanted[y], Numbers()

    def whole(self, node: Node) -> tuple[Weights, Numbers]:
        """A mean with its input's scale: sources round halves away from zero, which behind a relu, whose zero point is
        the lowest, is down for all means below the middle; ours rounds up, unless the factor is a trifle smaller."""
        arrays, numbers = super().whole(node)
        q = self.wanted[node.inputs[0]]
        if self.source.unsigned is not None:
            return self.fitted(node, self.source.unsigned, arrays, numbers)
        if node.op == "global_avg_pool" and q == self.wanted[node.output] and q.zero == scheme.LO:
            H, W, _ = self.graph.tensors[node.inputs[0]].shape
            numbers = replace(numbers, m1=numbers.m1 - (1 < H * W <= 1024))
        return arrays, numbers

    def fitted(self, node: Node, unsigned: bool, arrays: Weights, numbers: Numbers) -> tuple[Weights, Numbers]:
        """The same with factors that round as ONNX Runtime does."""
        qx, qy = [self.wanted[t] for t in node.inputs], self.wanted[node.output]
        if node.op == "add":
            return arrays, fitted.sum_of_two(numbers, qx[0], qx[1], qy, unsigned)
        if node.op == "concat":
            m1, m2 = (fitted.change(m, numbers, q, qy) for m, q in zip((numbers.m1, numbers.m2), qx, strict=True))
            return arrays, replace(numbers, m1=m1, m2=m2)
        if node.op == "batchnorm":
            scale, shift = (a.astype(np.float32) for a in batchnorm_affine(node, self.given))
            m, b = fitted.affine(arrays["multiplier"], arrays["bias"], numbers, qx[0], qy, scale, shift)
            return arrays | {"multiplier": m, "bias": b}, numbers
        if node.op == "activation" and node.attrs.activation == "none":
            table = fitted.line(qx[0], qy)[0] + qy.zero
            return {"table": np.clip(table, scheme.LO, scheme.HI).astype(np.int8)}, numbers
        return arrays, numbers

    def layer(self, node: Node, qx: Quant, qy: Quant) -> tuple[Weights, Numbers]:
        w = self.given[node.params["weight"]]
        real = rows_of(node, w)
        scale = self.source.scales[node.name].astype(np.float64)
        if scale.size not in (1, len(real)):
            raise ValueError(f"it has {len(real)} output channels, but {scale.size} scales for its weights")
        scale = np.broadcast_to(scale, (len(real),))
        steps = real / np.where(scale > 0, scale, 1)[:, None]
        rows = np.rint(steps).astype(np.int64)
        if (np.abs(steps - rows) > 1e-3).any():
            raise ValueError("its weights are no multiples of the scales of its output channels")
        bias = self.source.biases.get(node.name)
        if bias is None:
            shift = self.given[node.params["bias"]] if "bias" in node.params else np.zeros(len(rows))
            bias = np.rint(shift / (qx.scale * np.where(scale > 0, scale, 1))).astype(np.int64)
        rows, bias, scale = _constant(rows, bias, scale, qx.scale / qy.scale)
        rows, bias, scale = _held(rows, bias, scale, qx.zero)
        lo, hi = scheme.bounds(node.attrs.activation, qy)
        by = factors.factors(qx.scale, scale, qy.scale)
        M, S = factors.multipliers(by, rows, bias, qx.zero, (lo - qy.zero, hi - qy.zero))
        arrays = {"weight": shaped(node, rows.astype(np.int8), w.shape), "bias": bias.astype(np.int32), "multiplier": M}
        return arrays, Numbers(lo, hi, S)


def _constant(rows: np.ndarray, bias: np.ndarray, scale: np.ndarray, ratio: float) -> tuple[np.ndarray, ...]:
    """(rows, bias, scale) where a channel whose weights add less than a 32nd of a step, whatever the input, has none:
    its bias, which is then large and its factor rough, gets 20 bits, and the factor the others. ratio: of the scales of
    x and y."""
    rows, bias, scale = rows.copy(), bias.copy(), scale.copy()
    idle = (255 * np.abs(rows).sum(1) * scale * ratio < 1 / 32) & (np.abs(bias) > 1 << 20)
    rows[idle] = 0
    while (large := idle & (np.abs(bias) > 1 << 20)).any():
        bias[large], scale[large] = np.rint(bias[large] / 2), scale[large] * 2
    return rows, bias, scale


def _held(rows: np.ndarray, bias: np.ndarray, scale: np.ndarray, zero: int) -> tuple[np.ndarray, ...]:
    """(rows (O,K), B (O), scale (O)) whose sums stay below 2^30. A channel whose bias alone is near that, most likely
    one without weights, gets a coarser scale: what its weights can add is then far below a step of the output."""
    rows, bias, scale = rows.copy(), bias.copy(), scale.copy()
    while True:
        B = bias - zero * rows.sum(1)
        large = np.abs(B) + 128 * np.abs(rows).sum(1) >= scheme.SUM
        if not large.any():
            return rows, B, scale
        if (large & (np.abs(bias) < scheme.SUM // 4)).any():
            raise ValueError(f"{rows.shape[1]} weights a channel: their sum could pass 2^30")
        rows[large], bias[large] = np.rint(rows[large] / 2), np.rint(bias[large] / 2)
        scale[large] *= 2
