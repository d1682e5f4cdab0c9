"""From an inference graph with weights to the contents of a .bin: fold, plan the arena, pack.

The device decides nothing: every offset, layout and lifetime is fixed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litenet.trainer.data.pictures import rules
from litenet.trainer.graph import Graph, Node
from litenet.trainer.ops import OPS
from litenet.trainer.plan import Plan, plan_device

from . import fold, pack
from .format import Golden, Model, OpRec, Preprocessing, TensorRec
from .source import Source


@dataclass(frozen=True)
class Device:
    """A model ready to be written: the folded graph, its weights, and where each tensor stands in the arena."""

    graph: Graph
    weights: dict[str, np.ndarray]
    plan: Plan


def prepare(source: Source, frame: tuple[int, ...] | None = None) -> Device:
    """Fold and plan. frame: the shape (H,W,C) of the pictures a net with a flat input was trained on."""
    graph, weights = fold.fold_batchnorm(source.graph, source.weights)
    return planned(fold.drop_flatten(_framed(graph, frame)), weights)


def planned(graph: Graph, weights: dict[str, np.ndarray]) -> Device:
    """Place every tensor of a graph that needs nothing else."""
    return Device(graph, weights, plan_device(graph))


def _framed(graph: Graph, frame: tuple[int, ...] | None) -> Graph:
    """A perceptron that was fed pictures takes pictures: its first linear layer reads the frame as one row."""
    flat = len(graph.input_shape) == 1 and frame is not None and int(np.prod(frame)) == graph.input_shape[0]
    if not flat or frame is None or len(frame) != 3 or any(n.op != "linear" for n in graph.consumers(graph.input)):
        return graph
    tensors = list(graph.tensors)
    tensors[graph.input] = replace(tensors[graph.input], shape=tuple(frame))
    return replace(graph, tensors=tuple(tensors))


def model(device: Device, frame: Preprocessing, half: bool, metadata: dict[str, Any], golden: Golden | None) -> Model:
    """Everything a .bin holds, as the writer takes it. File tensor 0 is the input, i + 1 what operator i writes."""
    graph = device.graph
    used = [graph.input, *(n.output for n in graph.nodes)]
    index = {t: i for i, t in enumerate(used)}
    tensors = []
    for t in used:
        caller = t == graph.input or t in graph.outputs
        shape, name = graph.tensors[t].shape, graph.tensors[t].name
        offset = 0 if caller else device.plan.view(name)[0]
        tensors.append(TensorRec(shape, offset=offset, input=t == graph.input, output=t in graph.outputs))
    ops = [
        OpRec(n.op, [index[t] for t in n.inputs], index[n.output], n.attrs, *_weights(device, n, half))
        for n in graph.nodes
    ]
    return Model(tensors, ops, frame, metadata, golden, arena_bytes=device.plan.arena_bytes)


def _weights(device: Device, node: Node, half: bool) -> tuple[bytes, str]:
    """The packed block of one operator and its element type."""
    kind = pack.packed_type(OPS[node.op].OP, "f16" if half else "f32")
    roles = {role: device.weights[name] for role, name in node.params.items()}
    return pack.pack(node.op, node.attrs, roles, kind), kind


def rounded(device: Device, half: bool) -> dict[str, np.ndarray]:
    """The weights as the device will read them."""
    if not half:
        return device.weights
    out = dict(device.weights)
    for n in device.graph.nodes:
        if pack.packed_type(OPS[n.op].OP, "f16") == "f16":
            for name in n.params.values():
                with np.errstate(over="ignore"):  # pack.py refuses what half precision cannot hold
                    out[name] = device.weights[name].astype(np.float16).astype(np.float32)
    return out


def preprocessing(source: Source, shape: tuple[int, ...]) -> Preprocessing:
    """How a picture becomes the input: the blueprint's wishes, with the training set's mean and deviation."""
    given, data = source.blueprint.preprocessing, source.data
    if len(shape) != 3 or shape[2] not in (1, 3) or not data.get("picture", True):
        return Preprocessing()
    channels = shape[2]

    def each(key: str, default: float) -> list[float]:
        values = data.get(key) or given.get(key) or default
        return [float(v) for v in values] if isinstance(values, (list, tuple)) else [float(values)] * channels

    return Preprocessing(**rules(given, channels), mean=each("mean", 0.0), std=each("std", 255.0))
