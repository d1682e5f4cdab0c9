"""The samples a net is calibrated and judged on, read by the trainer's own loader, and what can be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer import rng
from litenet.trainer.data.batches import to_input
from litenet.trainer.data.dataset import Dataset, Splits, split
from litenet.trainer.data.load import open_source
from litenet.trainer.data.photos import Frame, PhotoOptions
from litenet.trainer.data.pictures import to_frames
from litenet.trainer.errors import UserError

from ..format import Preprocessing
from ..source import Source
from ..stored import Stored

FEWEST = 32  # samples that ranges can be taken from
NARROW = 32  # of 256 steps: pictures that use fewer were not stored as pictures are
FAR = 1.5  # deviations that the mean of pictures may be from that of training
TEST_SHARE = 0.3  # kept for the judgement where the data have no test part


@dataclass(frozen=True)
class Samples:
    """x: float32 as the net takes it. frames: uint8 (N,H,W,C) where it takes pictures. y: classes, or None."""

    x: np.ndarray
    frames: np.ndarray | None
    y: np.ndarray | None
    what: str

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Data:
    """calibration: what ranges are taken from. test: what is judged on, no sample of which calibrates."""

    calibration: Samples
    test: Samples


def load(net: Stored, source: Source | None, data: str | None, count: int, seed: int, tests: int,
         cache: str | None = None) -> Data:  # fmt: skip
    """count samples of the training part by the seed, and up to `tests` of the test part. source: the checkpoint the
    net comes from, which knows its data; data: what the user names instead."""
    known: dict[str, Any] = {} if source is None else source.data
    wanted = data or known.get("source")
    if wanted is None:
        raise UserError("--int8 needs samples to calibrate with.\n  Add --calibrate DATA: a folder of photos, a set.")
    labels = net.metadata.get("labels")
    photos = PhotoOptions(**(known.get("photos") or {}))
    frame = Frame(net.graph.input_shape, wishes(net.frame), tuple(labels) if labels else None)
    try:
        splits = open_source(wanted, photos=photos, frame=frame, cache=None if cache is None else Path(cache))
    except UserError as error:
        if data is not None:
            raise
        raise UserError(f"{error}\n  These are the run's own data; give others by --calibrate DATA.") from None
    train, test = _parts(splits, source, seed)
    own = splits.preflight is not None
    order = rng.permutation(seed, rng.DRAW, 0, len(train.x))[:count]
    every = np.linspace(0, len(test.x) - 1, min(tests, len(test.x))).astype(int)
    classes = source is None or source.embedding is None
    return Data(
        _samples(net, train.take(np.sort(order)), own, classes, "samples"),
        _samples(net, test.take(every), own, classes, "test samples"),
    )


def wishes(frame: Preprocessing) -> dict[str, Any]:
    """The file's preprocessing in the words of a blueprint."""
    return {k: getattr(frame, k) for k in ("resize", "fit", "color", "invert", "pad")}


def _parts(splits: Splits, source: Source | None, seed: int) -> tuple[Dataset, Dataset]:
    for part in (splits.test, splits.validation):
        if part is not None:
            return splits.train, part
    if len(splits.train.x) < 2:
        return splits.train, splits.train
    settings = {} if source is None else source.settings
    share, own = settings.get("validation_split") or TEST_SHARE, settings.get("seed", seed)
    return split(splits.train, share, own)


def _samples(net: Stored, ds: Dataset, are_frames: bool, classes: bool, what: str) -> Samples:
    shape, frame = net.graph.input_shape, net.frame
    y = ds.y if classes and ds.classes and ds.y.ndim == 1 else None
    named = f"{len(ds.x):,} {what} of {ds.name}"
    if frame.color == "none":
        if ds.x.dtype == np.uint8:
            raise UserError(
                f"{ds.name} holds pictures, but nothing says how this net takes them.\n"
                "  Say it: --input-range 0,1, or --mean and --std."
            )
        _check_shape(ds, ds.x.shape[1:], shape)
        return Samples(np.ascontiguousarray(ds.x, np.float32).reshape(len(ds.x), *shape), None, y, named)
    if ds.x.dtype != np.uint8:
        lo, hi = float(ds.x.min()), float(ds.x.max())
        raise UserError(
            f"{ds.name} holds numbers from {lo:g} to {hi:g}, but this net takes pictures: bytes from 0 to 255.\n"
            "  Store them as uint8, before any normalisation."
        )
    frames = np.ascontiguousarray((ds if are_frames else to_frames(ds, wishes(frame), shape)).x)
    _check_shape(ds, frames.shape[1:], shape)
    x = to_input(frames, tuple(frame.mean), tuple(frame.std))
    return Samples(x.reshape(len(x), *shape), frames, y, named)


def _check_shape(ds: Dataset, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if int(np.prod(found)) != int(np.prod(wanted)):
        raise UserError(
            f"{ds.name} has samples of {' x '.join(map(str, found))}, but the net takes "
            f"{' x '.join(map(str, wanted))}.\n  Give data of its own kind."
        )


def fault(of: Samples, net: Stored, source: Source | None, classes: int, right: float | None) -> str | None:
    """One sentence on what is wrong with these samples, or None. classes: how many the net tells apart, 0 if none.
    right: the share of the labelled ones on which the float net is right."""
    values = of.x if of.frames is None else of.frames
    flat = values.reshape(len(values), -1)
    if len(flat) < FEWEST:
        return f"{of.what}: too few to take ranges from; {FEWEST} at least, better 500, are expected"
    constant = int((flat.max(1) == flat.min(1)).sum()) if flat.shape[1] > 1 else 0
    if 2 * constant > len(flat):
        return f"{of.what}: {constant} of them hold one single value each; real samples are expected"
    if (flat == flat[0]).all():
        return f"{of.what}: all are equal; different ones are expected"
    if of.y is not None and classes > 1 and len(np.unique(of.y)) == 1:
        return f"{of.what}: all are of one class ({_label(net, int(of.y[0]))}); samples of every class are expected"
    if of.frames is not None:
        found = _wrong_range(of, net.frame, source)
        if found is not None:
            return found
    known = net.metadata.get("accuracy")
    least = max(1.5 / classes, 0.5 * known if isinstance(known, (int, float)) else 0.0) if classes > 1 else 0.0
    if right is not None and len(of) >= 4 * classes and right < min(least, 0.9):
        return (
            f"{of.what}: the float net itself is right on only {100 * right:.1f} % of them, so they come in otherwise "
            "than in training (range, colour order, classes)"
        )
    return None


def _wrong_range(of: Samples, frame: Preprocessing, source: Source | None) -> str | None:
    assert of.frames is not None
    lo, hi = int(of.frames.min()), int(of.frames.max())
    if hi - lo < NARROW:
        return f"{of.what}: their pixels run from {lo} to {hi} only; pictures of 0 to 255 are expected"
    if source is None or not source.data.get("mean"):
        return None
    C = of.frames.shape[-1]
    mean = of.frames.reshape(-1, C).mean(0, dtype=np.float64)
    away = np.abs(mean - np.asarray(frame.mean)) / np.asarray(frame.std)
    if away.max() > FAR:
        c = int(away.argmax())
        return (
            f"{of.what}: the mean of channel {c} is {mean[c]:.0f}, but {frame.mean[c]:.0f} in training, "
            f"{away[c]:.1f} deviations away; samples like those of training are expected"
        )
    return None


def _label(net: Stored, k: int) -> str:
    labels = net.metadata.get("labels")
    return str(labels[k]) if labels and k < len(labels) else str(k)
