"""A .bin asked through the C runtime, from the pictures as they are stored, with the preprocessing in the file: what is
measured is what a device does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from litenet.pyruntime import InferenceEngine, answers
from litenet.pyruntime.errors import ModelError
from litenet.pyruntime.explain import UnexplainedError, explainer

from ..data.dataset import Dataset
from ..data.load import open_source
from ..data.photos import Frame, PhotoOptions
from ..errors import UserError
from .judged import Judged
from .samples import (
    HeldOut,
    Stored,
    as_rgb,
    check_fit,
    chosen_samples,
    class_names,
    described,
    known_classes,
    split_rule,
)


def evaluate_bin(
    path: Path, source: str | None, which: str | None, photos: Mapping[str, Any] | None = None, **fetch: Any
) -> Judged:
    """See evaluate.py."""
    if source is None:
        raise UserError(f"{path}: a .bin does not say where its data are.\n  Add --data SOURCE.")
    try:
        with InferenceEngine(path) as engine:
            frame = Frame(engine.input_shape, None, tuple(engine.labels) if engine.labels else None)
            # of the run; older files do not say it
            rule: dict[str, Any] = (engine.metadata.get("dataset") or {}).get("split") or {}
            fetch["photos"] = split_rule(PhotoOptions(), {**rule, **(photos or {})})
            splits = open_source(source, frame=frame, **{k: v for k, v in fetch.items() if v})
            held_out = HeldOut(rule["validation_split"], rule["seed"]) if "validation_split" in rule else None
            chosen, what = chosen_samples(splits, which or ("test" if splits.test is not None else "all"), held_out)
            if len(engine.outputs) > 1:
                raise UserError(f"{path} has {len(engine.outputs)} outputs.\n  Only models with one can be judged.")
            single = chosen.classes > 0 and engine.output_shape == (1,)
            outputs = 2 if single else engine.output_shape[-1]
            ds, notes = known_classes(chosen, engine.labels, outputs, str(path))
            _check(ds, engine)
            asked = _Asked(engine, ds, source)
            started = time.perf_counter()
            said = np.stack([engine.predict(asked.input(i)).reshape(-1) for i in range(len(ds.x))])
            seconds = time.perf_counter() - started
            if not np.isfinite(said).all():
                raise UserError(f"{path} answers with numbers that are not finite.\n  Run edge-infer --selftest on it.")
            p = chosen_answers = None
            if ds.classes:
                p, more = _probabilities(engine, said)
                notes += more
                chosen_answers = said.argmax(1) if said.shape[1] > 1 else p.argmax(1)
            name, labels = str(engine.metadata.get("name") or path.stem), engine.labels
    except ModelError as error:
        raise UserError(str(error)) from None
    return Judged(
        model=str(path),
        kind="bin",
        name=name,
        data=described(ds, what),
        labels=class_names(labels, 0 if p is None else p.shape[1]),
        y=ds.y,
        p=p,
        answers=chosen_answers,
        values=None if ds.classes else said,
        frames=(lambda index: _frames(path, ds, source, index)) if ds.is_picture else None,
        maps=lambda index, classes: _maps(path, ds, source, index, classes),
        files=ds.files,
        origin=ds.origin,
        notes=notes,
        seconds=seconds,
    )


def _probabilities(engine: InferenceEngine, said: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """As edge-infer reads what the net said, (N,C). What it reads as values is asked about classes all the same."""
    first = answers.probabilities(engine, said[0])
    if first is not None:
        return np.stack([answers.probabilities(engine, row) for row in said]), ()  # type: ignore[misc]
    if said.shape[1] == 1:
        raise UserError(f"{engine.name} gives one value, but the data have classes.\n  Give data with values.")
    if engine.metadata.get("loss") == "mse":
        return np.clip(said, 0, 1), ()
    e = np.exp(said - said.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True), (f"{engine.name} gives values: they are read as scores, the largest wins",)


class _Asked:
    """Samples as the model takes them, and as it sees them."""

    def __init__(self, engine: InferenceEngine, ds: Dataset, source: str):
        self.engine, self.ds, self.stored = engine, ds, Stored(ds, source)
        self.pictures = ds.x.dtype == np.uint8 and engine.preprocessing is not None

    def input(self, i: int) -> np.ndarray:
        """A picture by the preprocessing in the file, anything else as it is."""
        if self.pictures:
            return self.engine.prepare(*self.stored[i])
        return np.ascontiguousarray(self.ds.x[i], np.float32).reshape(self.engine.input_shape)

    def frames(self, index: np.ndarray) -> np.ndarray:
        rules, (H, W) = self.engine.preprocessing, self.engine.input_shape[:2]
        if rules is None or not self.pictures:
            return as_rgb(self.ds.x[index], False)
        seen = [self.stored[int(i)] for i in index]
        return as_rgb(np.stack([rules.frame(pixels, H, W, layout) for pixels, layout in seen]), rules.color == "bgr")


def _check(ds: Dataset, engine: InferenceEngine) -> None:
    if ds.x.dtype != np.uint8:
        check_fit(ds, engine.input_shape, engine.name)
    elif engine.preprocessing is None:
        raise UserError(f"{engine.name} takes no pictures, but {ds.name} holds some.\n  Give data of its own kind.")


def _frames(path: Path, ds: Dataset, source: str, index: np.ndarray) -> np.ndarray:
    with InferenceEngine(path) as engine:
        return _Asked(engine, ds, source).frames(index)


def _maps(path: Path, ds: Dataset, source: str, index: np.ndarray, classes: np.ndarray) -> np.ndarray | str:
    with InferenceEngine(path) as engine:
        asked = _Asked(engine, ds, source)
        try:
            drawn = explainer(engine)
        except UnexplainedError as reason:
            return str(reason)
        return np.stack([drawn.of(asked.input(int(i)), int(k)) for i, k in zip(index, classes, strict=True)])
