"""A net of whole numbers as the contents of a .bin: arena planned, weights packed, golden inputs answered."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from litenet.pyruntime import chip_file
from litenet.trainer.graph import Node
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8 import ops
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import Numbers
from litenet.trainer.plan import Plan, plan_device

from .. import format, pack, pack_int8
from ..format import Golden, Model, OpRec, Preprocessing, TensorRec

SEEDS = 8  # golden inputs that are tried


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
        kind = "f16" if n.name in net.half else "f32"
        block = b"" if n.op == "dequantize" else pack.pack(n.op, n.attrs, arrays, kind)
        return OpRec(n.op, inputs, output, n.attrs, block, kind)
    block = pack_int8.pack(n.op, n.attrs, arrays)
    numbers = net.numbers.get(n.name, Numbers())
    return OpRec(n.op, inputs, output, n.attrs, block, "i8" if block else "f32", numbers=numbers)


def golden(net: Net, made: Model, x: np.ndarray, frames: np.ndarray | None) -> Golden:
    """What the definition makes of as many inputs as x has. Where the net takes int8 they are made from seeds, which
    are stored instead: the SEEDS first are tried for the liveliest. Else x, or frames, the pictures that x are."""
    graph, seeds = net.graph, range(0)
    if graph.input in net.quants:
        count, seeds = len(x), range(max(SEEDS, len(x)))
        x = np.stack([_made(net, seed) for seed in seeds])
        tensors = nets.run(net, x)
        alive = sum(_alive(tensors[n.output]) for n in graph.nodes)
        best = np.argsort(-alive, kind="stable")[:count]
        x, tensors = x[best], {t: y[best] for t, y in tensors.items()}
        inputs, kind = [int(seeds[k]) for k in best], "made"
    else:
        tensors = nets.run(net, x)
        inputs, kind = (list(x), "f32") if frames is None else (list(frames), "frame")
    outputs: list[tuple[np.ndarray, ...]] = []
    sums: list[Sequence[format.Checksum]] = []
    for i in range(len(x)):
        outputs.append(tuple(tensors[t][i] for t in graph.outputs))
        sums.append(format.checksums(made, [tensors[n.output][i] for n in graph.nodes]))
    return Golden(kind, inputs, outputs, sums)


def _made(net: Net, seed: int) -> np.ndarray:
    """The int8 input that a seed stands for."""
    values = chip_file.made(seed, prod(net.graph.input_shape)).reshape(net.graph.input_shape)
    return chip_file.less_128(values) if net.picture is None else ops.frame(values, *net.picture)


def _alive(y: np.ndarray) -> np.ndarray:
    """Of each sample, how many channels are not the same all over; of a row how many values are not its smallest."""
    rows = y.reshape(len(y), -1, y.shape[-1])
    if rows.shape[1] == 1:
        return (y.reshape(len(y), -1) != y.reshape(len(y), -1).min(1, keepdims=True)).sum(1)
    return (rows.min(1) != rows.max(1)).sum(1)
