"""Where a model comes from: a run folder, a checkpoint, or a blueprint with weights. (Models of others: importers/.)

A Source is an inference graph with weights, in NHWC, and what is known of its training.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer import blueprint as blueprints
from litenet.trainer import checkpoint
from litenet.trainer.errors import UserError
from litenet.trainer.fuse import for_inference
from litenet.trainer.graph import Graph, build
from litenet.trainer.int8.qat import trained


@dataclass(frozen=True)
class Source:
    """weights holds parameters and running statistics by the graph's names. data: as in a checkpoint, or empty."""

    graph: Graph
    weights: dict[str, np.ndarray]
    blueprint: blueprints.Blueprint
    data: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    unknown: dict[str, Any] | None = None
    int8: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None  # of a run in whole numbers: int8/qat.py, trained
    embedding: dict[str, Any] | None = None  # of an encoder: the graph ends with it, its output has length one


def load_source(source: str | None, config: str | None = None, weights: str | None = None) -> Source:
    """Read what edge-export was given: SOURCE, or --config with --weights."""
    if config is not None:
        return from_checkpoint(weights or source or "", config)
    path = Path(source or "")
    if path.is_dir() or path.suffix == ".npz":
        return from_checkpoint(path)
    raise UserError(
        f"{path}: a run folder, a checkpoint (.npz), an .onnx or a .tflite model is expected"
        + (f", not a {path.suffix} file" if path.suffix else ", and there is no such folder")
        + ".\n  Give runs/NAME, or --config blueprint.json --weights best.npz."
    )


def from_checkpoint(path: str | Path, config: str | None = None) -> Source:
    """A checkpoint with its own blueprint, or with the one given."""
    saved = checkpoint.load(path)
    if config is None and "blueprint" not in saved.meta:
        raise UserError(f"{saved.where} holds weights but no blueprint.\n  Add --config blueprint.json.")
    blueprint = blueprints.load(config) if config else saved.blueprint
    full, arrays = build(blueprint), saved.weights
    weights = {}
    for p in full.params.values():
        found = arrays.get(p.name)
        if found is None or found.shape != p.shape:
            what = "is missing" if found is None else f"has shape {found.shape}"
            raise UserError(
                f"{saved.where}: {p.name} {what}, but {blueprint.where} needs {p.shape}.\n"
                "  Give the weights that were trained with this blueprint."
            )
        if not np.isfinite(found).all():
            raise UserError(f"{saved.where}: {p.name} holds NaN or infinite values.\n  Export an earlier checkpoint.")
        weights[p.name] = found.astype(np.float32)
    meta = saved.meta
    graph = for_inference(full)
    encoder = blueprint.train.get("embedding")
    if encoder is not None:
        graph = cut(graph, encoder["layer"])
        shorten(graph, weights)
    return Source(
        graph,
        weights,
        blueprint,
        meta.get("data", {}),
        meta.get("settings", {}),
        meta.get("progress", {}),
        saved.where,
        meta.get("unknown"),
        trained(saved),
        None if encoder is None else encoder | meta.get("embedding", {}),
    )


def cut(graph: Graph, layer: str) -> Graph:
    """The graph up to a layer, whose output becomes the net's."""
    t = graph.layers[layer]
    at = next(i for i, n in enumerate(graph.nodes) if n.output == t)
    nodes = graph.nodes[: at + 1]
    used = {name for n in nodes for name in n.params.values()}
    params = {name: p for name, p in graph.params.items() if name in used}
    layers = {name: out for name, out in graph.layers.items() if out == t or any(n.output == out for n in nodes)}
    return replace(graph, nodes=nodes, params=params, outputs=(t,), layers=layers)


def shorten(graph: Graph, weights: dict[str, np.ndarray]) -> None:
    """A layernorm of C values without weights of its own has the length sqrt(C): in the file, one."""
    roles = graph.nodes[-1].params
    C = weights[roles["gamma"]].size
    weights[roles["gamma"]] = np.full(C, C**-0.5, np.float32)
    weights[roles["beta"]] = np.zeros(C, np.float32)
