"""Making a .bin: prepare, prove with the C runtime, and only then write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError
from litenet.trainer.memory import bytes_text

from . import device, fold, format, parity, winograd
from .heldout import HeldOut, held_out
from .source import Source, load_source
from .stored import Stored

GOLDEN_INPUTS = 2


def export(
    source: str | None,
    out: Path,
    *,
    config: str | None = None,
    weights: str | None = None,
    half: bool = False,
    data: str | None = None,
    data_dir: str | None = None,
    samples: int = 256,
    golden: bool = True,
    store_winograd: float | None = None,
) -> Iterator[str]:
    """Write `out`; yields the lines of the report as they become true. Nothing is written before the proof.
    store_winograd: the most megabytes of weights transformed for Winograd's algorithm; None: none."""
    found = load_source(source, config, weights)
    proof = held_out(found, samples, data, cache=data_dir)
    frame = tuple(found.data.get("shape", proof.x.shape[1:]))
    prepared = device.prepare(found, frame)
    try:
        model, checked = build(found, prepared, proof, half, golden)
        model, told = (model, []) if store_winograd is None else winograd.store(model, store_winograd)
        binary = format.write(model)
    except ValueError as error:
        raise UserError(f"{found.where}: {error}.") from None
    write_atomically(out, lambda file: file.write(binary))
    macs = sum(prepared.graph.macs(n) for n in prepared.graph.nodes)
    stored = sum(a.size for a in prepared.weights.values()) * (2 if half else 4)
    yield f"{out}: {len(binary):,} bytes ({bytes_text(len(binary))}), {'half' if half else 'single'} precision"
    yield f"  weights {stored:,} bytes, arena {prepared.plan.arena_bytes:,} bytes of RAM, {macs:,} MACs an inference"
    yield from told
    yield (
        f"  proved on {checked.what}: outputs within {checked.max_difference:.2g} of training"
        + ("" if found.embedding else f", same class on {checked.same_class} of {checked.samples}")
        + (f", {checked.correct} right" if checked.correct is not None else "")
    )


def unpacked(found: Source) -> Stored:
    """A trained net as its .bin would hold it, unproved."""
    shape = found.data.get("shape")
    prepared = device.prepare(found, tuple(shape) if shape else None)
    frame = device.preprocessing(found, prepared.graph.input_shape)
    return Stored(prepared.graph, prepared.weights, frame, _metadata(found, prepared))


def build(
    source: Source, prepared: device.Device, proof: HeldOut, half: bool, golden: bool
) -> tuple[format.Model, parity.Parity]:
    """What the file will hold, after the C runtime has agreed on the held-out samples."""
    shape = prepared.graph.input_shape
    x = proof.inputs(source, shape)
    metadata, frame = _metadata(source, prepared), device.preprocessing(source, shape)
    first = format.write(device.model(prepared, frame, half, metadata, None))
    checked = parity.compare(first, source, x, None if source.embedding else proof.y, proof.what)
    parity.refuse_disagreement(checked, half)
    metadata["parity"] = checked.as_dict()
    answers = _golden(source, prepared, proof, half) if golden else None
    return device.model(prepared, frame, half, metadata, answers), checked


def predicted_bytes(source: Source, prepared: device.Device, half: bool) -> int:
    """Bytes of the file that would be written, self-test included, without running the proof; a few digits of the
    proof's numbers may make 64 bytes more. Raises ValueError where half precision cannot hold the weights."""
    shape = prepared.graph.input_shape
    frame = device.preprocessing(source, shape)
    frames = np.zeros((GOLDEN_INPUTS, *shape), np.uint8) if frame.color != "none" else None
    answers = golden(prepared, half, np.zeros((GOLDEN_INPUTS, *shape), np.float32), frames)
    proof = parity.Parity(256, f"256 test samples of {source.data.get('name')}", 1.2345678901e-06, 1.0, 256, 250)
    metadata = _metadata(source, prepared) | {"parity": proof.as_dict()}
    return len(format.write(device.model(prepared, frame, half, metadata, answers)))


def _golden(source: Source, prepared: device.Device, proof: HeldOut, half: bool) -> format.Golden:
    """The first held-out samples, with the output and every operator's checksum as the definition gives them."""
    shape = prepared.graph.input_shape
    picture = proof.x.dtype == np.uint8 and device.preprocessing(source, shape).color != "none"
    x = proof.inputs(source, shape)[:GOLDEN_INPUTS]
    return golden(prepared, half, x, proof.x if picture else None)


def golden(prepared: device.Device, half: bool, x: np.ndarray, frames: np.ndarray | None = None) -> format.Golden:
    """What the definition makes of these inputs. frames: the pictures they come from, which are stored instead."""
    graph, weights = prepared.graph, device.rounded(prepared, half)
    tensors = fold.run(graph, weights, x)
    outputs = np.concatenate([tensors[t].reshape(len(x), -1) for t in graph.outputs], 1)
    sums = [[format.op_checksum(tensors[n.output][i]) for n in graph.nodes] for i in range(len(x))]
    inputs = x if frames is None else frames
    return format.Golden("f32" if frames is None else "frame", list(inputs[: len(x)]), list(outputs), sums)


def _metadata(source: Source, prepared: device.Device) -> dict[str, Any]:
    data, progress = source.data, source.progress
    history = progress.get("history") or [{}]
    best = history[progress["best_epoch"]] if progress.get("best_epoch", -1) >= 0 else history[-1]
    labels = [] if source.embedding else list(source.blueprint.labels or data.get("labels") or [])
    found = {
        "name": source.blueprint.name,
        "labels": labels or None,
        "layers": [n.layer if n.name == n.layer else n.name for n in prepared.graph.nodes],
        "loss": source.blueprint.loss.type,
        "created": time.strftime("%Y-%m-%d", time.gmtime()),
        "litenet": version_text(),
        "dataset": {k: data[k] for k in ("name", "hash", "samples")} | {"split": _split(source)} if data else None,
        "accuracy": None if source.embedding else best.get("validation_accuracy"),
        "unknown": source.unknown,
        "answer": "embedding" if source.embedding else None,
        "embedding": _embedding(source.embedding),
        "blueprint": source.blueprint.resolved,
    }
    return {k: v for k, v in found.items() if v is not None}


def _split(source: Source) -> dict[str, Any]:
    """From what test and held-out samples follow, so that edge-train evaluate finds the same ones again."""
    photos, settings = source.data.get("photos") or {}, source.settings
    rule = {key: photos[key] for key in ("group", "test_split") if key in photos}
    return rule | {key: settings[key] for key in ("seed", "validation_split") if key in settings}


def _embedding(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a reader needs, and how well it does; no names of people."""
    keys = ("threshold", "eer", "false_rejects", "false_accepts", "genuine_pairs", "impostor_pairs")
    return None if found is None else {key: found[key] for key in keys if key in found}


def version_text() -> str:
    try:
        return version("litenet")
    except PackageNotFoundError:
        return "unknown"
