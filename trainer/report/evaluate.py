"""A checkpoint or a .bin asked about samples whose answers are known.

A checkpoint answers through the trainer, with the preprocessing of its run; how a .bin does: evaluate_bin.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checkpoint
from ..base import BaseTrainer, Evaluation
from ..data.batches import to_input
from ..data.dataset import Dataset
from ..data.load import open_source
from ..data.photos import PhotoOptions
from ..data.pictures import to_frames
from ..errors import UserError
from ..machine import Machine, fitted
from ..session import frame_for
from ..settings import Settings
from ..trainer import Trainer
from .figures import probabilities
from .gradcam import NOTHING, explainer
from .judged import Judged
from .samples import as_rgb, check_fit, chosen_samples, class_names, described, known_classes, split_rule

if TYPE_CHECKING:
    from ..device_trainer import DeviceTrainer
    from ..session import Session


def evaluate(
    model: Path,
    source: str | None,
    which: str | None,
    device: str = "cpu",
    photos: Mapping[str, Any] | None = None,
    **fetch: Any,
) -> Judged:
    """Ask a run folder, a checkpoint or a .bin. which: "test", "validation", "train" or "all"; None: the test set, or
    else what training held out (of a .bin: all). Photos are split as the run split them, but for what `photos` says
    (group, test_split, seed)."""
    if model.suffix.lower() == ".bin":
        from .evaluate_bin import evaluate_bin

        return evaluate_bin(model, source, which, photos, **fetch)
    return _checkpoint(model, source, which, device, photos or {}, **fetch)


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
    return _by_trainer(session.trainer, saved, session.data, chosen, found, what)


# ---- a checkpoint


def _checkpoint(
    path: Path, source: str | None, which: str | None, device: str, rule: Mapping[str, Any], **fetch: Any
) -> Judged:
    saved = checkpoint.load(path)
    if "blueprint" not in saved.meta or "settings" not in saved.meta:
        raise UserError(f"{saved.where} holds weights alone.\n  Give a run folder, or a checkpoint of edge-train's.")
    blueprint, data, settings = saved.blueprint, saved.meta["data"], Settings(**saved.meta["settings"])
    fetch = {"cache": data.get("folder")} | {k: v for k, v in fetch.items() if v}
    photos = split_rule(PhotoOptions(**(data.get("photos") or {})), rule)
    splits = open_source(source or data["source"], photos=photos, frame=frame_for(blueprint), **fetch)
    chosen, what = chosen_samples(splits, which, settings)
    base = BaseTrainer()
    base.set_up(blueprint, settings.seed, chosen.classes > 0)
    framed = chosen
    if splits.preflight is None:  # photos are what the net sees already
        framed = replace(to_frames(chosen, blueprint.preprocessing, base.graph.input_shape), origin=chosen.origin)
    framed, notes = known_classes(framed, data.get("labels"), base.graph.output_shape[-1], saved.where)
    check_fit(framed, base.graph.input_shape, saved.where)
    common: dict[str, Any] = {
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "mean": tuple(data["mean"]) if data["mean"] else None,
        "std": tuple(data["std"]) if data["std"] else None,
        "learning_rate": settings.learning_rate,
        "classes": framed.classes > 0,
    }
    trainer = fitted(Machine(device), blueprint, settings, [framed], common).trainer
    trainer.load_arrays({f"weights/{name}": w for name, w in weights_of(saved).items()}, saved.where, optimizer=False)
    started = time.perf_counter()
    found = trainer.evaluate(framed.x, framed.y, scores=True)
    seconds = time.perf_counter() - started
    return _by_trainer(trainer, saved, data, framed, found, what, notes, seconds)


def weights_of(saved: checkpoint.Checkpoint) -> dict[str, np.ndarray]:
    """The weights and statistics that count, by name: averages of them where the run has kept some."""
    found: dict[str, np.ndarray] = {}
    for kind in ("weights/", "average/"):
        found |= {name[len(kind) :]: array for name, array in saved.arrays.items() if name.startswith(kind)}
    return found


def _by_trainer(
    trainer: Trainer | DeviceTrainer,
    saved: checkpoint.Checkpoint,
    data: dict[str, Any],
    ds: Dataset,
    found: Evaluation,
    what: str,
    notes: tuple[str, ...] = (),
    seconds: float = 0.0,
) -> Judged:
    """ds: pictures fitted to the net's frame."""
    scores, p, answers = found.scores, None, None
    assert scores is not None
    if ds.classes:
        rows = scores.reshape(len(scores), -1)
        temperature = (saved.meta.get("unknown") or {}).get("temperature", 1.0)
        last = trainer.graph.nodes[-1]
        ends = "softmax" if last.op == "softmax" else last.attrs.activation
        if trainer.loss.name == "mse":
            p = np.clip(rows, 0, 1)
        else:
            p = probabilities(rows, trainer.loss, ends, temperature)
        answers = rows.argmax(1) if rows.shape[1] > 1 else p.argmax(1)

    def maps(index: np.ndarray, classes: np.ndarray) -> np.ndarray | str:
        tied = explainer(trainer.full, weights_of(saved))
        if tied is None:
            return NOTHING
        x, shape = ds.x[index], trainer.graph.input_shape
        if x.dtype == np.uint8:
            x = to_input(x, data["mean"], data["std"])
        return tied.maps(x.reshape(len(x), *shape), classes)

    bgr = trainer.blueprint.preprocessing.get("color") == "bgr"
    return Judged(
        model=saved.where,
        kind="checkpoint",
        name=trainer.blueprint.name,
        data=described(ds, what),
        labels=class_names(data.get("labels"), 0 if p is None else p.shape[1]),
        y=ds.y,
        p=p,
        answers=answers,
        values=None if ds.classes else scores,
        frames=(lambda index: as_rgb(ds.x[index], bgr)) if ds.is_picture else None,
        maps=maps,
        files=ds.files,
        origin=ds.origin,
        notes=notes,
        seconds=seconds,
    )
