"""A checkpoint or a .bin asked about samples whose answers are known.

A checkpoint answers through the trainer, with the preprocessing of its run. A .bin answers through the C runtime, from
the pictures as they are stored, with the preprocessing that is in the file: what is measured is what a device does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checkpoint
from ..base import BaseTrainer, Evaluation, fits
from ..data.batches import to_input
from ..data.dataset import Dataset, Splits, split
from ..data.load import open_source
from ..data.pictures import LAYOUTS, to_frames
from ..errors import UserError
from ..machine import Machine, fitted
from ..settings import Settings
from ..trainer import Trainer
from .figures import probabilities
from .gradcam import NOTHING, explainer
from .judged import Judged

if TYPE_CHECKING:
    from litenet.pyruntime import InferenceEngine

    from ..device_trainer import DeviceTrainer
    from ..session import Session

SPLITS = ("test", "validation", "train", "all")


def evaluate(model: Path, source: str | None, which: str | None, device: str = "cpu", **fetch: Any) -> Judged:
    """Ask a run folder, a checkpoint or a .bin. which: one of SPLITS; None: the test set, or else what training held
    out (of a .bin: everything)."""
    if model.suffix.lower() == ".bin":
        return _binary(model, source, which, **fetch)
    return _checkpoint(model, source, which, device, **fetch)


def of_session(session: Session, found: Evaluation | None) -> Judged | None:
    """The best checkpoint of a run that has just ended. found: what it said about the test set, with scores, while the
    trainer still holds its weights; without, it is asked, about the samples held out where there is no test set. None:
    there are neither."""
    chosen, what = session.validation, "held-out"
    if session.test is not None:
        chosen, what = replace(session.test, origin=None), "test"
    if chosen is None:
        return None
    saved = checkpoint.load(session.folder)
    if found is None or found.scores is None:
        session.trainer.load_arrays(saved.arrays, saved.where)
        found = session.trainer.evaluate(chosen.x, chosen.y, scores=True)
    return _by_trainer(session.trainer, session.data, chosen, found, saved.where, what)


# ---- a checkpoint


def _checkpoint(path: Path, source: str | None, which: str | None, device: str, **fetch: Any) -> Judged:
    saved = checkpoint.load(path)
    if "blueprint" not in saved.meta or "settings" not in saved.meta:
        raise UserError(f"{saved.where} holds weights alone.\n  Give a run folder, or a checkpoint of edge-train's.")
    blueprint, data, settings = saved.blueprint, saved.meta["data"], Settings(**saved.meta["settings"])
    fetch = {"cache": data.get("folder")} | {k: v for k, v in fetch.items() if v}
    chosen, what = _chosen(open_source(source or data["source"], **fetch), which, settings)
    base = BaseTrainer()
    base.set_up(blueprint, settings.seed, chosen.classes > 0)
    framed = replace(to_frames(chosen, blueprint.preprocessing, base.graph.input_shape), origin=chosen.origin)
    framed, notes = _known_classes(framed, data.get("labels"), base.graph.output_shape[-1], saved.where)
    _check_fit(framed, base.graph.input_shape, saved.where)
    common: dict[str, Any] = {
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "mean": tuple(data["mean"]) if data["mean"] else None,
        "std": tuple(data["std"]) if data["std"] else None,
        "learning_rate": settings.learning_rate,
        "classes": framed.classes > 0,
    }
    trainer = fitted(Machine(device), blueprint, settings, [framed], common).trainer
    trainer.load_arrays(saved.arrays, saved.where, optimizer=False)
    started = time.perf_counter()
    found = trainer.evaluate(framed.x, framed.y, scores=True)
    seconds = time.perf_counter() - started
    return _by_trainer(trainer, data, framed, found, saved.where, what, notes, seconds)


def _by_trainer(
    trainer: Trainer | DeviceTrainer,
    data: dict[str, Any],
    ds: Dataset,
    found: Evaluation,
    where: str,
    what: str,
    notes: tuple[str, ...] = (),
    seconds: float = 0.0,
) -> Judged:
    """ds: pictures fitted to the net's frame."""
    scores, p, answers = found.scores, None, None
    assert scores is not None
    if ds.classes:
        rows = scores.reshape(len(scores), -1)
        last = trainer.graph.nodes[-1]
        ends = "softmax" if last.op == "softmax" else last.attrs.activation
        p = np.clip(rows, 0, 1) if trainer.loss.name == "mse" else probabilities(rows, trainer.loss, ends)
        answers = rows.argmax(1) if rows.shape[1] > 1 else p.argmax(1)

    def maps(index: np.ndarray, classes: np.ndarray) -> np.ndarray | str:
        tied = explainer(trainer.full, {name: trainer.read(trainer.plan, name) for name in trainer.full.params})
        if tied is None:
            return NOTHING
        x, shape = ds.x[index], trainer.graph.input_shape
        if x.dtype == np.uint8:
            x = to_input(x, data["mean"], data["std"])
        return tied.maps(x.reshape(len(x), *shape), classes)

    bgr = trainer.blueprint.preprocessing.get("color") == "bgr"
    return Judged(
        model=where,
        kind="checkpoint",
        name=trainer.blueprint.name,
        data=f"{len(ds.x):,} {what} samples of {ds.name}",
        labels=_names(data.get("labels"), 0 if p is None else p.shape[1]),
        y=ds.y,
        p=p,
        answers=answers,
        values=None if ds.classes else scores,
        frames=(lambda index: as_rgb(ds.x, index, bgr)) if ds.is_picture else None,
        maps=maps,
        files=files_of(ds),
        origin=ds.origin,
        notes=notes,
        seconds=seconds,
    )


# ---- a .bin


def _binary(path: Path, source: str | None, which: str | None, **fetch: Any) -> Judged:
    from litenet.pyruntime import InferenceEngine, answers
    from litenet.pyruntime.errors import ModelError

    if source is None:
        raise UserError(f"{path}: a .bin does not say where its data are.\n  Add --data SOURCE.")
    splits = open_source(source, **{k: v for k, v in fetch.items() if v})
    chosen, what = _chosen(splits, which or ("test" if splits.test is not None else "all"), None)
    try:
        with InferenceEngine(path) as engine:
            if len(engine.outputs) > 1:
                raise UserError(f"{path} has {len(engine.outputs)} outputs.\n  Only models with one can be judged.")
            single = chosen.classes > 0 and engine.output_shape == (1,)
            outputs = 2 if single else engine.output_shape[-1]
            ds, notes = _known_classes(chosen, engine.labels, outputs, str(path))
            _check_bin_fit(ds, engine)
            started = time.perf_counter()
            said = np.stack([engine.predict(prepared(engine, ds.x[i])).reshape(-1) for i in range(len(ds.x))])
            seconds = time.perf_counter() - started
            if not np.isfinite(said).all():
                raise UserError(f"{path} answers with numbers that are not finite.\n  Run edge-infer --selftest on it.")
            p = chosen_answers = None
            if ds.classes:
                each = [answers.probabilities(engine, row) for row in said]
                p = np.stack([np.clip(row, 0, 1) if q is None else q for row, q in zip(said, each, strict=True)])
                chosen_answers = said.argmax(1) if said.shape[1] > 1 else p.argmax(1)
            name, labels = str(engine.metadata.get("name") or path.stem), engine.labels
    except ModelError as error:
        raise UserError(str(error)) from None
    return Judged(
        model=str(path),
        kind="bin",
        name=name,
        data=f"{len(ds.x):,} {what} samples of {ds.name}",
        labels=_names(labels, 0 if p is None else p.shape[1]),
        y=ds.y,
        p=p,
        answers=chosen_answers,
        values=None if ds.classes else said,
        frames=(lambda index: _bin_frames(path, ds, index)) if ds.is_picture else None,
        maps=lambda index, classes: _bin_maps(path, ds, index, classes),
        files=files_of(ds),
        origin=ds.origin,
        notes=notes,
        seconds=seconds,
    )


def prepared(engine: InferenceEngine, sample: np.ndarray) -> np.ndarray:
    """A sample as the model's input: a picture by the preprocessing in the file, anything else as it is."""
    if sample.dtype == np.uint8 and engine.preprocessing is not None:
        return engine.prepare(sample, LAYOUTS.get(sample.shape[-1]))
    return np.ascontiguousarray(sample, np.float32).reshape(engine.input_shape)


def _check_bin_fit(ds: Dataset, engine: InferenceEngine) -> None:
    if ds.x.dtype == np.uint8 and engine.preprocessing is not None:
        return
    if ds.x.dtype == np.uint8:
        raise UserError(f"{engine.name} takes no pictures, but {ds.name} holds some.\n  Give data of its own kind.")
    _check_fit(ds, engine.input_shape, engine.name)


def _bin_frames(path: Path, ds: Dataset, index: np.ndarray) -> np.ndarray:
    from litenet.pyruntime import InferenceEngine

    with InferenceEngine(path) as engine:
        rules, (H, W) = engine.preprocessing, engine.input_shape[:2]
        if rules is None:
            return as_rgb(ds.x, index, False)
        frames = np.stack([rules.frame(ds.x[i], H, W, LAYOUTS.get(ds.x.shape[-1])) for i in index])
    return as_rgb(frames, np.arange(len(index)), rules.color == "bgr")


def _bin_maps(path: Path, ds: Dataset, index: np.ndarray, classes: np.ndarray) -> np.ndarray | str:
    from litenet.pyruntime import InferenceEngine
    from litenet.pyruntime.explain import ClassMap, UnexplainedError

    with InferenceEngine(path) as engine:
        try:
            drawn = ClassMap(engine)
        except UnexplainedError as reason:
            return str(reason)
        return np.stack([drawn.of(prepared(engine, ds.x[i]), int(k)) for i, k in zip(index, classes, strict=True)])


# ---- what both need


def _chosen(splits: Splits, which: str | None, settings: Settings | None) -> tuple[Dataset, str]:
    """The samples to ask about, and what to call them."""
    which = which or ("test" if splits.test is not None else "validation")
    if which == "test":
        if splits.test is None:
            raise UserError(f"{splits.train.name} has no test set.\n  Use --split validation, train or all.")
        return replace(splits.test, origin=None), "test"
    if which == "all":
        if splits.test is None:
            return replace(splits.train, origin=None), "(all)"
        raise UserError(f"{splits.train.name} has a test set of its own.\n  Use --split test or train.")
    share = settings.validation_split if settings else 0.0
    if settings is None or not share:
        if which == "validation":
            who = "a .bin does not say which samples" if settings is None else "the run held no samples out"
            raise UserError(f"--split validation: {who}.\n  Use --split train, test or all.")
        return replace(splits.train, origin=None), "training"
    train, held = split(splits.train, share, settings.seed)
    return (held, "held-out") if which == "validation" else (train, "training")


def _known_classes(ds: Dataset, labels: Any, outputs: int, where: str) -> tuple[Dataset, tuple[str, ...]]:
    """The answers of ds as the model's class numbers: by name where the names are the model's, else by number."""
    names, own = list(labels or []), list(ds.labels or [])
    if not ds.classes:
        return ds, ()
    if own and names and set(own) <= set(names):
        if own == names[: len(own)]:
            return ds, ()
        number = np.array([names.index(label) for label in own])
        return Dataset(ds.x, number[ds.y], tuple(names), ds.name, ds.source, ds.origin), ()
    known = max(outputs, len(names), 2 if outputs == 1 else 0)
    if int(ds.y.max()) >= known:
        unknown = [label for label in own if label not in names] or [str(int(ds.y.max()))]
        raise UserError(
            f"{ds.name} has classes that {where} does not know: {', '.join(unknown[:5])}"
            + (" and others" if len(unknown) > 5 else "")
            + f"; it knows {', '.join(names[:10]) or f'{known}, numbered from 0'}.\n  Give data of the same classes."
        )
    if own and names:
        return Dataset(ds.x, ds.y, None, ds.name, ds.source, ds.origin), (
            f"{ds.name} names its classes otherwise ({own[0]}, ...) than the model ({names[0]}, ...): "
            "they are compared by number",
        )
    return ds, ()


def _check_fit(ds: Dataset, shape: tuple[int, ...], where: str) -> None:
    if not fits(ds.shape, shape):
        raise UserError(
            f"{where} takes samples of {' x '.join(map(str, shape))} values, but those of {ds.name} have "
            f"{' x '.join(map(str, ds.shape))}.\n  Give data of that shape."
        )


def _names(labels: Any, classes: int) -> list[str]:
    given = [str(label) for label in labels or []][:classes]
    return given + [str(i) for i in range(len(given), classes)]


def as_rgb(x: np.ndarray, index: np.ndarray, bgr: bool) -> np.ndarray:
    """Pictures (N,H,W,C) of bytes or floats to be looked at: uint8 (n,H,W,3). Floats are spread over black to white,
    and of other than three channels the first is shown."""
    picked = x[index]
    if picked.dtype != np.uint8:
        low, high = float(picked.min(initial=np.inf)), float(picked.max(initial=-np.inf))
        picked = ((picked - low) * (255 / max(high - low, 1e-12)) + 0.5).astype(np.uint8)
    if picked.shape[-1] != 3:
        return np.repeat(picked[..., :1], 3, axis=-1)
    return picked[..., ::-1] if bgr else picked


def files_of(ds: Dataset) -> Sequence[str] | None:
    """The files that samples were read from, where the data set remembers them."""
    return getattr(ds, "files", None)
