"""Layers measured on a device (layer_stats.py): the forward pass with every layer by itself, as one replayed graph that
leaves a few sums in the arena."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from . import layer_stats
from .kernels import calls_step
from .kernels.call import Ref

if TYPE_CHECKING:
    from .backends.device import Source
    from .data.dataset import Dataset
    from .device_trainer import DeviceTrainer, Piece


def layer_statistics(trainer: DeviceTrainer, data: Dataset) -> list[dict[str, Any]]:
    """What layer_stats.rows gives, of the update that trainer.keep_weights preceded."""
    graph, outputs = trainer.stats_plan.graph, dict[str, layer_stats.Outputs]()
    shapes = {t.name: t.shape for t in graph.tensors}
    sums: dict[str, np.ndarray] = {}
    for index in layer_stats.probe(len(data.x), trainer.plan.batch):
        source, size = trainer.feed.single(data.x[index], None), len(index)
        trainer.replay(("layers", source, size), partial(_pieces, trainer, source, size))
        sums = _sums(trainer)
        for name in layer_stats.measured(graph):
            R, C = size * prod(shapes[name][:-1]), shapes[name][-1]
            part = sums[name][: 3 * C * calls_step.sum_parts(R)].reshape(-1, C, 3).sum(0)
            more = layer_stats.Outputs(R * C, part[:, 0].sum(), part[:, 1].sum(), part[:, 2] > 0)
            outputs[name] = outputs[name] + more if name in outputs else more
    steps = {p.name: sums[f"u:{p.name}"].reshape(-1, 2).sum(0) for p in graph.trainable}
    weights, updates = ({name: float(pair[i]) for name, pair in steps.items()} for i in (0, 1))
    return layer_stats.rows(graph, outputs, _gradients(trainer, sums), weights, updates)


def _sums(trainer: DeviceTrainer) -> dict[str, np.ndarray]:
    """What the graph has left, float64, by the names of DevicePlanner.sums."""
    places, size = trainer.planner.sums(trainer.plan.batch, trainer.update_mode)
    found = trainer.backend.read(trainer.plan, "layer_sums").view(np.float64)
    ends = [*list(places.values())[1:], size]
    return {name: found[at // 8 : end // 8] for (name, at), end in zip(places.items(), ends, strict=True)}


def _gradients(trainer: DeviceTrainer, sums: dict[str, np.ndarray]) -> dict[str, float]:
    """Squared norms of the last update's gradients, by weight."""
    params, last = trainer.graph.trainable, trainer.last
    if trainer.update_mode == "end":  # they still stand there: sums over the micro-batches, times the loss scale
        scale = (last["group"] * last["scale"]) ** 2
        return {p.name: sums[f"d:{p.name}"].reshape(-1, 2)[:, 0].sum() / scale for p in params}
    out, at, counts = {}, 0, trainer.planner.partials_of(trainer.update_mode)
    for name in (launch.group for launch in trainer.plan.launches if launch.kind == "update"):  # as pieces() has them
        out[name] = float(last["partials"][at : at + counts[name]].sum())
        at += counts[name]
    return out


def _pieces(trainer: DeviceTrainer, source: Source, rows: int) -> list[Piece]:
    """Every kernel call."""
    from .device_trainer import Piece

    plan, backend, half = trainer.stats_plan, trainer.backend, trainer.storage == "f16"
    places, _ = trainer.planner.sums(trainer.plan.batch, trainer.update_mode)
    names, calls = layer_stats.measured(plan.graph), backend.bind_load(plan, source, rows, False)
    for launch in plan.launches:
        if launch.kind == "forward":
            calls += backend.bind(plan, launch, rows)
        for name in (n for n in launch.writes.values() if n in names):
            shape = plan.values[name].shape[1:]
            sums = calls_step.channel_sums_calls(rows * prod(shape[:-1]), shape[-1], places[name], half)
            calls += backend.resolve(plan, sums, {"x": name})
    start = trainer.plan.view(trainer.graph.trainable[0].name)[0]
    for p in trainer.graph.trainable:
        count, at = prod(p.shape), trainer.plan.view(p.name)[0] - start
        values = {"weight": p.name}
        sums = calls_step.squares_calls(count, places[f"u:{p.name}"], Ref("before", at), Ref("weight"))
        if trainer.update_mode == "end":
            values["gradient"] = f"d:{p.name}"
            sums += calls_step.squares_calls(count, places[f"d:{p.name}"], Ref("gradient"), Ref(""))
        calls += backend.resolve(trainer.plan, sums, values)
    return [Piece("layers", "forward", None, calls)]
