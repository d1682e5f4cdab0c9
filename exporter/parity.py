"""The proof before writing: the C runtime must give what training gave, on samples that training did not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litenet.pyruntime import InferenceEngine
from litenet.trainer.errors import UserError

from .fold import run
from .source import Source

# Largest difference allowed: absolute + relative * the largest |output| of the trainer.
ALLOWED = {"f32": (2e-5, 2e-5), "f16": (2e-3, 1e-2)}
CLASSES_MAY_DIFFER = {"f32": 0.0, "f16": 0.01}  # share of samples


@dataclass(frozen=True)
class Parity:
    """What was compared and how far apart it was."""

    samples: int
    what: str
    max_difference: float
    max_output: float
    same_class: int
    correct: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "of": self.what,
            "max_difference": self.max_difference,
            "same_class": self.same_class,
            "correct": self.correct,
        }


def reference(source: Source, x: np.ndarray, batch: int = 64) -> np.ndarray:
    """The trained net's own answers, unfused and unfolded, by the NumPy definitions."""
    graph = source.graph
    parts = [run(graph, source.weights, x[i : i + batch])[graph.outputs[0]] for i in range(0, len(x), batch)]
    return np.concatenate(parts)


def compare(binary: bytes, source: Source, x: np.ndarray, y: np.ndarray | None, what: str) -> Parity:
    """Run the .bin in the C runtime beside the definition."""
    want = reference(source, x.reshape(len(x), *source.graph.input_shape))
    with InferenceEngine(binary) as engine:
        got = engine.predict(x.reshape(len(x), *engine.input_shape)).reshape(want.shape)
    if not np.isfinite(got).all():
        raise UserError("The C runtime gave NaN or infinite outputs, so nothing was written.\n  Check the weights.")
    rows, wanted = got.reshape(len(got), -1), want.reshape(len(want), -1)
    same = int((rows.argmax(1) == wanted.argmax(1)).sum()) if source.embedding is None else len(x)
    classes = y is not None and y.ndim == 1 and np.issubdtype(y.dtype, np.integer)
    correct = int((rows.argmax(1) == y).sum()) if classes else None
    return Parity(len(x), what, float(np.abs(got - want).max()), float(np.abs(want).max()), same, correct)


def refuse_disagreement(found: Parity, half: bool) -> None:
    """Raise UserError unless the runtime agrees closely enough for this storage."""
    kind = "f16" if half else "f32"
    absolute, relative = ALLOWED[kind]
    limit = absolute + relative * found.max_output
    differ = found.samples - found.same_class
    if found.max_difference <= limit and differ <= CLASSES_MAY_DIFFER[kind] * found.samples:
        return
    raise UserError(
        f"The C runtime disagrees with training on {found.what}: the outputs differ by up to "
        f"{found.max_difference:.3g} (allowed {limit:.3g}), the class on {differ} of {found.samples}; nothing was "
        "written.\n  "
        + ("Export without --fp16." if half else "This is a fault of LiteNet: please report it with the blueprint.")
    )
