"""Fine-tuning: weights of an earlier run, a checkpoint or a .bin taken over into a new net, layer by layer.

A layer takes the weights of the layer of its name, if all of them have its shapes. Where not one name is known (a model
of others), layers with weights are gone through in order, and each takes those of the next that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import checkpoint
from .base import BaseTrainer
from .errors import UserError

Layer = dict[str, np.ndarray]  # by role, such as weight and bias


@dataclass(frozen=True)
class Origin:
    """Weights by layer, in the order they run. mean, std: of the pixels they were trained with, where known."""

    where: str
    layers: dict[str, Layer]
    mean: list[float] | None = None
    std: list[float] | None = None


def read(path: Path) -> Origin:
    """From a run folder or a checkpoint (its averaged weights, where it has them), or from a .bin."""
    if path.suffix.lower() == ".bin":
        return _read_bin(path)
    if path.suffix.lower() in (".onnx", ".tflite"):
        raise UserError(
            f"--from {path}: import the model first: edge-export {path} -o {path.stem}.bin, then take that."
        )
    saved = checkpoint.load(path)
    data = saved.meta.get("data", {})
    return Origin(saved.where, _by_layer(saved.weights), data.get("mean"), data.get("std"))


def _read_bin(path: Path) -> Origin:
    """Batch normalisations are folded there: the layer before one has their work in its own weights."""
    from litenet.exporter import stored

    if not path.exists():
        raise UserError(f"{path}: there is no such file.\n  Give a run folder, a checkpoint, or a .bin.")
    found = stored.load(path)
    picture = found.frame.color != "none"
    mean, std = (list(map(float, v)) if picture else None for v in (found.frame.mean, found.frame.std))
    return Origin(str(path), _by_layer(found.weights), mean, std)


def _by_layer(weights: Mapping[str, np.ndarray]) -> dict[str, Layer]:
    found: dict[str, Layer] = {}
    for name, array in weights.items():
        layer, _, role = name.rpartition(".")
        found.setdefault(layer, {})[role] = array
    return found


def transfer(trainer: BaseTrainer, origin: Origin) -> list[str]:
    """Put the weights that fit into the trainer; an average starts from them. Returns what happened, a line for each
    layer that was left as it is. UserError where nothing fits."""
    wanted = _by_layer({name: trainer.read(trainer.plan, name) for name in trainer.graph.params})
    pairs = {name: name for name in wanted if name in origin.layers}
    by_name = bool(pairs)
    if not by_name:
        pairs = _in_order(wanted, origin.layers)
    kinds = {param.rpartition(".")[0]: node.op for node in trainer.full.nodes for param in node.params.values()}
    taken, left = 0, []
    for name, layer in wanted.items():
        source = origin.layers.get(pairs.get(name, ""))
        problem = "there is no such layer there" if source is None else _difference(source, layer)
        if problem:
            left.append(f"  {name} ({kinds.get(name, '')}) starts anew: {problem}")
            continue
        taken += 1
        for role, array in (source or {}).items():
            if role in layer:
                trainer.write(trainer.plan, f"{name}.{role}", array)
    if not taken:
        raise UserError(
            f"--from {origin.where}: no layer fits this net.\n" + "\n".join(left[:8])
            + "\n  Give layers the names and sizes they have there: " + ", ".join(list(origin.layers)[:12]) + "."
        )  # fmt: skip
    trainer.start_average()
    how = "" if by_name else ", by their order and shapes: no name is known there"
    unused = [name for name in origin.layers if name not in pairs.values()]
    lines = [f"{origin.where}: weights of {taken} of {len(wanted)} layers taken over{how}", *left]
    if unused:
        lines.append(f"  not used from there: {', '.join(unused)}")
    return lines


def _difference(source: Layer, layer: Layer) -> str:
    """Why a layer's weights cannot be taken, in words; empty if they can. A bias of zeros may be missing here."""
    for role, array in layer.items():
        if role not in source:
            return f"it has no {role} there"
        if source[role].shape != array.shape:
            return f"its {role} is {source[role].shape} there, and {array.shape} here"
    extra = [role for role in source if role not in layer and source[role].any()]
    if extra:
        folded = "; a batchnorm is folded into it there: give the run instead" if extra == ["bias"] else ""
        return f"it has no {', '.join(extra)} here{folded}"
    return ""


def _in_order(wanted: dict[str, Layer], layers: dict[str, Layer]) -> dict[str, str]:
    """Each wanted layer to the first one there, behind the last that was taken, that fits it."""
    found, names, at = {}, list(layers), 0
    for name, layer in wanted.items():
        fits = next((i for i in range(at, len(names)) if not _difference(layers[names[i]], layer)), None)
        if fits is not None:
            found[name], at = names[fits], fits + 1
    return found
