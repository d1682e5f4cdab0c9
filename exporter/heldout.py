"""The samples an export is proved on: pictures (or rows) that training did not learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litenet.trainer.data.batches import to_input
from litenet.trainer.data.dataset import Dataset, split
from litenet.trainer.data.load import open_source
from litenet.trainer.data.photos import Frame, PhotoOptions
from litenet.trainer.data.pictures import to_frames
from litenet.trainer.errors import UserError

from .source import Source


@dataclass(frozen=True)
class HeldOut:
    """x: uint8 frames or float32 rows, as the data set has them; y: classes or None. what: where they come from."""

    x: np.ndarray
    y: np.ndarray | None
    what: str

    def inputs(self, source: Source, shape: tuple[int, ...]) -> np.ndarray:
        """float32 as the net takes them, normalised as in training."""
        if self.x.dtype != np.uint8:
            return self.x.reshape(len(self.x), *shape).astype(np.float32)
        out = np.empty(self.x.shape, np.float32)
        mean, std = source.data.get("mean"), source.data.get("std")
        channels = self.x.shape[-1]
        to_input(self.x, tuple(mean or [0.0] * channels), tuple(std or [255.0] * channels), out=out)
        return out.reshape(len(out), *shape)


def held_out(source: Source, count: int, data: str | None = None, **fetch: Any) -> HeldOut:
    """Up to `count` samples of the test set, or else of the validation split; random numbers when there are no data."""
    wanted = data or source.data.get("source")
    if wanted is None:
        return _random(source, count, "random inputs (the weights come without data)")
    photos = PhotoOptions(**(source.data.get("photos") or {}))
    frame = Frame(source.graph.input_shape, source.blueprint.preprocessing, source.blueprint.labels)
    try:
        splits = open_source(wanted, photos=photos, frame=frame, **fetch)
    except UserError as error:
        if data is not None:
            raise
        reason = str(error).partition("\n")[0].rstrip(".")
        return _random(source, count, f"random inputs (give --data; {reason})")
    whole = splits.train if source.embedding else None  # most of its classes are unseen
    given = [ds for ds in (splits.test, whole, splits.validation) if ds is not None]
    chosen: Dataset = given[0] if given else _validation(splits.train, source)
    which = "test samples" if splits.test is not None else "samples" if whole is not None else "held-out samples"
    take = np.linspace(0, len(chosen.x) - 1, min(count, len(chosen.x))).astype(int)
    some = chosen.take(take)
    if splits.preflight is None:
        some = to_frames(some, source.blueprint.preprocessing, source.graph.input_shape)
    return HeldOut(np.ascontiguousarray(some.x), some.y, f"{len(take)} {which} of {chosen.name}")


def _validation(train: Dataset, source: Source) -> Dataset:
    share = source.settings.get("validation_split") or 0.1
    return split(train, share, source.settings.get("seed", 0))[1]


def _random(source: Source, count: int, what: str) -> HeldOut:
    """Pictures where the net takes pictures, standard normal rows elsewhere; the same at every export."""
    rng, shape = np.random.default_rng(20), source.graph.input_shape
    if len(shape) == 3:
        return HeldOut(rng.integers(0, 256, (count, *shape), np.uint8), None, what)
    return HeldOut(rng.standard_normal((count, *shape)).astype(np.float32), None, what)
