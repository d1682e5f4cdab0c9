"""The proof of an import: our runtime beside the source, on random inputs and on those the user gives."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litenet.exporter.fold import run as define
from litenet.exporter.format import Preprocessing
from litenet.pyruntime import InferenceEngine
from litenet.trainer.errors import UserError

from .foreign import Foreign

# Largest difference allowed, as a share of the largest |value| of that output, and in absolute terms.
ALLOWED = {"f32": (1e-4, 1e-6), "f16": (3e-2, 1e-3)}
ALLOWED_ROUNDED = (5e-2, 1e-3)  # where the source's runtime itself calculates with eight bits


@dataclass(frozen=True)
class Checked:
    """How far apart the outputs were, as a share of the largest |value|; by name of the output."""

    samples: int
    what: str
    by: str
    difference: dict[str, float]
    absolute: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "of": self.what,
            "against": self.by,
            "max_difference": self.absolute,
            "relative": self.difference,
        }


def samples(foreign: Foreign, frame: Preprocessing, count: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(random inputs as ours, the uint8 frames they come from where the input is a picture)."""
    rng, shape = np.random.default_rng(20), foreign.graph.input_shape
    if frame.color == "none":
        return rng.standard_normal((count, *shape)).astype(np.float32), None
    frames = rng.integers(0, 256, (count, *shape), np.uint8)
    mean, std = np.asarray(frame.mean, np.float32), np.asarray(frame.std, np.float32)
    return (frames.astype(np.float32) - mean) / std, frames


def given(foreign: Foreign, path: Path) -> np.ndarray:
    """The inputs of an .npz: its only array, or the one called x or as the source's input; with or without a batch."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [n for n in (foreign.input.name, "x", *file.files) if n in file.files]
            array = np.asarray(file[names[0]], np.float32) if names else None
    except FileNotFoundError:
        raise UserError(f"--check {path} does not exist.\n  Give an .npz with inputs of the model.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"--check {path} cannot be read as .npz ({error}).\n  Write it with numpy.savez.") from None
    want = foreign.input.shape[1:]
    if array is None or array.shape[-len(want) :] != want or array.size == 0:
        found = "no array" if array is None else f"shape {array.shape}"
        raise UserError(
            f"--check {path} has {found}; inputs of shape {want}, or (N, ...) of these, are expected: the source's own."
        )
    return foreign.input.to_ours(array, foreign.graph.input_shape)


def compare(binary: bytes, foreign: Foreign, x: np.ndarray, what: str) -> Checked:
    """Run both on x (N, ...), which has our order of axes."""
    theirs = foreign.input.to_source(x).astype(np.float32)
    answer = foreign.run(theirs)
    if answer is None:
        tensors = define(foreign.graph, foreign.weights, x)
        want = [tensors[t] for t in foreign.graph.outputs]
        want = [port.to_source(y) for port, y in zip(foreign.outputs, want, strict=True)]
        by = "the NumPy definition (nothing here runs the source itself)"
    else:
        want, by = answer
    with InferenceEngine(binary) as engine:
        got = engine.predict(x)
    got = got if isinstance(got, tuple) else (got,)
    difference, absolute = {}, 0.0
    for port, y, w in zip(foreign.outputs, got, want, strict=True):
        y = port.to_source(y).reshape(len(x), -1)
        gap = np.abs(y - w.reshape(len(x), -1))
        top = float(np.abs(w).max())
        worst = float(gap.max()) if np.isfinite(gap).all() else float("nan")
        difference[port.name] = worst / top if top > 0 else worst
        absolute = max(absolute, worst) if worst == worst else worst
    return Checked(len(x), what, by, difference, absolute)


def refuse_mismatch(found: Checked, foreign: Foreign, half: bool) -> None:
    """Raise UserError unless every output is close enough for this storage."""
    share, least = ALLOWED_ROUNDED if foreign.rounds else ALLOWED["f16" if half else "f32"]
    for name, difference in found.difference.items():
        if difference <= share or found.absolute <= least:
            continue
        raise UserError(
            f"{foreign.where}: on {found.what}, output {name!r} differs from that of {found.by} by {difference:.3g} of "
            f"its largest value (allowed {share:g}); nothing was written.\n  "
            + ("Import without --fp16." if half else "This is a fault of LiteNet: please report it with the model.")
        )
