"""The samples a model is asked about: which of a source, under which class numbers, and how they are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.pyruntime import decode
from litenet.pyruntime.errors import ImageError

from ..base import fits
from ..data.dataset import Dataset, Splits, split
from ..data.photos import PhotoOptions
from ..data.pictures import LAYOUTS
from ..errors import UserError
from ..settings import Settings


class NothingHeldOutError(UserError):
    """The run has neither a test set nor samples held out, and nobody said which to ask about instead."""


@dataclass(frozen=True)
class HeldOut:
    """Which samples a run held out, where its source did not say it."""

    validation_split: float
    seed: int


def split_rule(own: PhotoOptions, rule: Mapping[str, Any]) -> PhotoOptions:
    """How photos are split: as `own` says, but for what `rule` names."""
    return replace(own, **{key: rule[key] for key in ("group", "test_split", "seed") if key in rule})


def chosen_samples(splits: Splits, which: str | None, settings: Settings | HeldOut | None) -> tuple[Dataset, str]:
    """The samples to ask about, and what to call them."""
    asked = which is not None
    which = which or ("test" if splits.test is not None else "validation")
    if which == "test":
        if splits.test is None:
            raise UserError(f"{splits.train.name} has no test set.\n  Use --split validation, train or all.")
        return replace(splits.test, origin=None), "test"
    if which == "all":
        if splits.test is None:
            return replace(splits.train, origin=None), ""
        raise UserError(f"{splits.train.name} has a test set of its own.\n  Use --split test or train.")
    given = splits.validation  # where the source itself says which
    if which == "validation" and given is not None:
        return replace(given, origin=None), "held-out"
    share = settings.validation_split if settings and given is None else 0.0
    if settings is None or not share:
        if which == "validation" and not asked:
            raise NothingHeldOutError("There is neither a test set nor samples held out.\n  Use --split train.")
        if which == "validation":
            who = "this .bin does not say which samples" if settings is None else "the run held no samples out"
            raise UserError(f"--split validation: {who}.\n  Use --split train, test or all.")
        return replace(splits.train, origin=None), "training"
    train, held = split(splits.train, share, settings.seed)
    return (held, "held-out") if which == "validation" else (train, "training")


def known_classes(ds: Dataset, labels: Any, outputs: int, where: str) -> tuple[Dataset, tuple[str, ...]]:
    """The answers of ds as the model's class numbers: by name where the names are the model's, else by number."""
    names, own = list(labels or []), list(ds.labels or [])
    if not ds.classes:
        return ds, ()
    if own and names and set(own) <= set(names):
        if own == names[: len(own)]:
            return ds, ()
        number = np.array([names.index(label) for label in own])
        return replace(ds, y=number[ds.y], labels=tuple(names)), ()
    known = max(outputs, len(names), 2 if outputs == 1 else 0)
    if int(ds.y.max()) >= known:
        unknown = [label for label in own if label not in names] or [str(int(ds.y.max()))]
        raise UserError(
            f"{ds.name} has classes that {where} does not know: {', '.join(unknown[:5])}"
            + (" and others" if len(unknown) > 5 else "")
            + f"; it knows {', '.join(names[:10]) or f'{known}, numbered from 0'}.\n  Give data of the same classes."
        )
    if own and names:
        return replace(ds, labels=None), (
            f"{ds.name} names its classes otherwise ({own[0]}, ...) than the model ({names[0]}, ...): "
            "they are compared by number",
        )
    return ds, ()


def described(ds: Dataset, what: str) -> str:
    """Such as "355 test samples of digits"."""
    return " ".join(part for part in (f"{len(ds.x):,}", what, "samples of", ds.name) if part)


def check_fit(ds: Dataset, shape: tuple[int, ...], where: str) -> None:
    if not fits(ds.shape, shape):
        raise UserError(
            f"{where} takes samples of {' x '.join(map(str, shape))} values, but those of {ds.name} have "
            f"{' x '.join(map(str, ds.shape))}.\n  Give data of that shape."
        )


def class_names(labels: Any, classes: int) -> list[str]:
    given = [str(label) for label in labels or []][:classes]
    return given + [str(i) for i in range(len(given), classes)]


def as_rgb(picked: np.ndarray, bgr: bool) -> np.ndarray:
    """Pictures (n,H,W,C) of bytes or floats to be looked at: uint8 (n,H,W,3). Floats are spread over black to white,
    and of other than three channels the first is shown."""
    if picked.dtype != np.uint8:
        low, high = float(picked.min(initial=np.inf)), float(picked.max(initial=-np.inf))
        picked = ((picked - low) * (255 / max(high - low, 1e-12)) + 0.5).astype(np.uint8)
    if picked.shape[-1] != 3:
        return np.repeat(picked[..., :1], 3, axis=-1)
    return picked[..., ::-1] if bgr else picked


class Stored:
    """The pictures of a data set as they are stored, before anything is done to them: (pixels, layout) by index."""

    def __init__(self, ds: Dataset, source: str):
        self.ds, self.files, path = ds, ds.files, Path(source).expanduser()
        self.folder = path if path.is_dir() else path.parent

    def __getitem__(self, i: int) -> tuple[np.ndarray, str | None]:
        if self.files is None:
            return self.ds.x[i], LAYOUTS.get(self.ds.x.shape[-1])
        try:
            return decode(self.folder / str(self.files[i]))
        except ImageError as error:
            raise UserError(str(error)) from None
