"""What a run's net will cost on a device, from the file that edge-export would write: counted, not guessed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..ops import OPS


@dataclass(frozen=True)
class Row:
    """One operator of the device's program. bytes: of its weights in single precision."""

    name: str
    op: str
    shape: tuple[int, ...]
    macs: int
    bytes: int


@dataclass(frozen=True)
class Cost:
    """file, half: bytes of the .bin in single and half precision, with its self-test (None: half precision cannot hold
    the weights). arena: bytes of working memory. parameters: trained values."""

    parameters: int
    file: int
    half: int | None
    arena: int
    macs: int
    rows: list[Row]


def cost(path: Path, data: dict[str, Any]) -> Cost:
    """path: a checkpoint; data: what its run knows of its data."""
    from litenet.exporter import binary, device, source

    found = source.from_checkpoint(path)
    shape = data.get("shape")
    prepared = device.prepare(found, tuple(shape) if shape else None)
    graph = prepared.graph
    rows = [
        Row(
            n.layer if n.name == n.layer else n.name,
            n.op + (f", {n.attrs.activation}" if OPS[n.op].OP.activation and n.attrs.activation != "none" else ""),
            graph.tensors[n.output].shape,
            graph.macs(n),
            sum(4 * int(np.prod(graph.params[p].shape)) for p in n.params.values()),
        )
        for n in graph.nodes
    ]
    try:
        half = binary.predicted_bytes(found, prepared, True)
    except ValueError:
        half = None
    return Cost(
        sum(found.weights[p.name].size for p in found.graph.trainable),
        binary.predicted_bytes(found, prepared, False),
        half,
        prepared.plan.arena_bytes,
        sum(row.macs for row in rows),
        rows,
    )
