"""A .bin back as a graph with weights, for those who want to see or change what it holds.

The C runtime has opened the file first, so nothing here is checked again. Half precision becomes float32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.errors import ModelError
from litenet.trainer.errors import UserError
from litenet.trainer.graph import Graph, Node, Param, Tensor
from litenet.trainer.ops import OPS, Attrs, Op, activations
from litenet.trainer.ops.spec import SIZES

from . import format
from .pack import PANEL, QUAD, TYPES

BY_ID = {m.OP.id: m.OP for m in OPS.values() if m.OP.in_files}
ACTIVATIONS = {number: name for name, number in activations.IDS.items()}


@dataclass(frozen=True)
class Stored:
    """What a .bin holds."""

    graph: Graph
    weights: dict[str, np.ndarray]
    frame: format.Preprocessing
    metadata: dict[str, Any]


def load(path: Path) -> Stored:
    try:
        with InferenceEngine(path) as engine:
            metadata = engine.metadata
    except ModelError as error:
        raise UserError(str(error)) from None
    data = path.read_bytes()
    at = struct.unpack_from("<I", data, 64)[0]
    N, T = struct.unpack_from("<HH", data, 88)
    records = [data[at + 32 * i :][:32] for i in range(T)]
    if any(r[4] for r in records):
        raise UserError(f"{path} is made of int8 already.\n  Give the float model that it comes from.")
    shapes = [tuple(struct.unpack_from(f"<{r[5]}I", r, 8)) for r in records]
    names = metadata.get("layers") or []
    nodes, weights = [], {}
    params: dict[str, Param] = {}
    taken = {"input"}
    for i in range(N):
        r = data[at + 32 * T + 64 * i :][:64]
        op = BY_ID[struct.unpack_from("<H", r)[0]]
        name = _unique(str(names[i]) if i < len(names) else f"{op.name}{i}", taken)
        inputs = struct.unpack_from(f"<{r[14]}H", r, 4)
        output = struct.unpack_from("<H", r, 12)[0]
        offset, size = struct.unpack_from("<II", r, 16)
        attrs = _attrs(op, r)
        block = np.frombuffer(data[offset : offset + size], TYPES["f16" if r[15] else "f32"]).astype(np.float32)
        roles = {}
        for role, array in _unpack(op, attrs, block, shapes[inputs[0]], shapes[output]).items():
            key = roles[role] = f"{name}.{role}"
            weights[key] = array
            params[key] = Param(key, array.shape, "zeros", (1, 1), True, False, name)
        nodes.append(Node(name, op.name, attrs, tuple(inputs), output, roles, name))
    made = {n.output: n.name for n in nodes}
    tensors = tuple(Tensor(made.get(t, "input"), shapes[t]) for t in range(T))
    outputs = tuple(t for t in range(T) if records[t][6] == 2)
    graph = Graph(str(metadata.get("name") or path.stem), tensors, tuple(nodes), params, 0, outputs, {})
    return Stored(graph, weights, _frame(data), metadata)


def _unique(name: str, taken: set[str]) -> str:
    found, n = name, 1
    while found in taken:
        n += 1
        found = f"{name}.{n}"
    taken.add(found)
    return found


def _attrs(op: Op, r: bytes) -> Attrs:
    values: dict[str, Any] = {"activation": ACTIVATIONS[r[2]], "alpha": 0.01}
    at = 32
    for attr in op.record_attrs:
        code = {"u8": "B", "u16": "H", "u32": "I", "f32": "f"}[attr.type]
        found = struct.unpack_from(f"<{attr.count}{code}", r, at)
        at += SIZES[attr.type] * attr.count
        values[attr.name] = found if attr.count > 1 else found[0]
    return Attrs(**values)


def _unpack(op: Op, a: Attrs, block: np.ndarray, x: tuple[int, ...], y: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Weights by role, and the attributes that records leave out."""
    if op.name == "linear":
        b, w = _panels(block, y[-1], prod(x) if len(y) == 1 else x[-1])
        a.out_features, a.bias = y[-1], 1
        return {"weight": w, "bias": b}
    if op.name == "conv2d":
        taps = (*a.kernel_size, x[2] // a.groups)
        b, w = _panels(block, y[2], prod(taps), a.groups)
        a.out_channels, a.bias = y[2], 1
        return {"weight": w.reshape(y[2], *taps), "bias": b}
    if op.name == "depthwise_conv2d":
        b, w = _panels(block, x[2], prod(a.kernel_size))
        a.bias = 1
        return {"weight": np.ascontiguousarray(w.T).reshape(*a.kernel_size, x[2]), "bias": b}
    if op.name == "embed_projection":
        return {"weight": np.ascontiguousarray(_panels(block, a.embed_dim, x[0] * x[1])[1].T)}
    if op.name == "batchnorm":
        a.eps, a.momentum = 1e-12, 0.1
        scale, shift = block.reshape(2, -1)
        return {"gamma": scale, "beta": shift, "running_mean": 0 * scale, "running_var": 0 * scale + 1}
    if op.name == "layernorm":
        gamma, beta = block.reshape(2, -1)
        return {"gamma": gamma, "beta": beta}
    return {"slope": block} if op.name == "prelu" else {}


def _panels(block: np.ndarray, channels: int, K: int, groups: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(bias (O), rows (O, K)): the inverse of pack.panels."""
    parts, at, each = [], 0, channels // groups
    for _ in range(groups):
        for start in range(0, each, PANEL):
            have = min(PANEL, each - start)
            width = -(-have // QUAD) * QUAD
            parts.append(block[at : at + width * (1 + K)].reshape(1 + K, width)[:, :have])
            at += width * (1 + K)
    table = np.concatenate(parts, 1)
    return table[0].copy(), np.ascontiguousarray(table[1:].T)


def _frame(data: bytes) -> format.Preprocessing:
    resize, fit, color, invert = (
        next(name for name, code in table.items() if code == data[at])
        for at, table in ((96, format.RESIZE), (97, format.FIT), (98, format.COLOR), (99, format.INVERT))
    )
    if color == "none":
        return format.Preprocessing()
    channels = 1 if color == "gray" else 3
    mean, std = struct.unpack_from("<3f", data, 100), struct.unpack_from("<3f", data, 112)
    return format.Preprocessing(resize, fit, color, invert, mean[:channels], std[:channels], data[124])
