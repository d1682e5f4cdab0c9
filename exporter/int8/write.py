"""A net of whole numbers as the contents of a .bin: arena planned, weights packed, golden inputs answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from litenet.trainer.graph import Node
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import Numbers
from litenet.trainer.plan import Plan, plan_device

from .. import format, pack, pack_int8
from ..format import Golden, Model, OpRec, Preprocessing, TensorRec


def plan(net: Net) -> Plan:
    return plan_device(net.graph, types=dict.fromkeys(net.quants, "i8"))


def model(
    net: Net, placed: Plan, frame: Preprocessing, metadata: dict[str, Any], golden: Golden | None = None
) -> Model:
    """File tensor 0 is the input, i + 1 what operator i writes."""
    graph = net.graph
    used = [graph.input, *(n.output for n in graph.nodes)]
    index = {t: i for i, t in enumerate(used)}
    tensors = []
    for t in used:
        caller = t == graph.input or t in graph.outputs
        offset = 0 if caller else placed.view(graph.tensors[t].name)[0]
        q, shape = net.quants.get(t), graph.tensors[t].shape
        kind = "f32" if q is None else "i8"
        tensors.append(TensorRec(shape, kind, offset, t == graph.input, t in graph.outputs, quant=q))
    ops = [_operator(net, n, [index[t] for t in n.inputs], index[n.output]) for n in graph.nodes]
    names = [n.layer if n.name == n.layer else n.name for n in graph.nodes]
    return Model(tensors, ops, frame, metadata | {"layers": names}, golden, arena_bytes=placed.arena_bytes)


def _operator(net: Net, n: Node, inputs: list[int], output: int) -> OpRec:
    arrays = {role: net.weights[name] for role, name in n.params.items()}
    if n.output not in net.quants:
        kind = "f32"
        block = b"" if n.op == "dequantize" else pack.pack(n.op, n.attrs, arrays, kind)
        return OpRec(n.op, inputs, output, n.attrs, block, kind)
    block = pack_int8.pack(n.op, n.attrs, arrays)
    numbers = net.numbers.get(n.name, Numbers())
    return OpRec(n.op, inputs, output, n.attrs, block, "i8" if block else "f32", numbers=numbers)


def golden(net: Net, made: Model, x: np.ndarray, frames: np.ndarray | None) -> Golden:
    """What the definition makes of inputs x, in the input's type. frames: the pictures they are, stored instead."""
    tensors = nets.run(net, x)
    graph = net.graph
    outputs: list[tuple[np.ndarray, ...]] = []
    sums: list[Sequence[format.Checksum]] = []
    for i in range(len(x)):
        outputs.append(tuple(tensors[t][i] for t in graph.outputs))
        sums.append(format.checksums(made, [tensors[n.output][i] for n in graph.nodes]))
    kind = "frame" if frames is not None else "i8" if graph.input in net.quants else "f32"
    return Golden(kind, list(x if frames is None else frames), outputs, sums)
