"""CompressedDataLoader: a data set kept small in memory and handed out in shuffled batches of float32.

    loader = CompressedDataLoader("mnist.npz", batch_size=256)
    for batch in loader:
        trainer.step(batch)

MNIST's 60,000 pictures take 188 MB as float32, 94 MB as float16 and 47 MB as uint8, the bytes they came in.
uint8 also loses nothing, while float16 rounds a normalised value by up to 1/32 of a grey level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .augment import Augmentation, augment, check_pictures, read_augmentation
from .batches import epoch_order, steps_per_epoch, to_input
from .load import open_source
from .photos import Frame, PhotoOptions

DTYPES = ("uint8", "float16", "float32")
CENTRE = 127.5  # normalize: bytes 0..255 become -1..1
PIECE = 1024  # samples turned at a time while the set is packed


@dataclass(frozen=True, eq=False)
class Batch:
    """x float32 (B, ...), y (B,) or (B, ...), and the places of the samples in the data set."""

    x: np.ndarray
    y: np.ndarray
    indices: np.ndarray


class CompressedDataLoader:
    """Each pass over the loader is the next epoch, in an order fixed by `seed` and the number of the epoch.

    `dtype` is how samples are stored; batches are float32 always. `normalize` maps pixels to -1..1 (pictures
    in floats must run from 0 to 1 for it). `into`, float32 (batch_size, ...), is written by every batch in
    place of fresh memory: a view of an arena, say. The batches then share it, and each is valid until the
    next. `augmentation` is what a blueprint's key of that name holds, {"flip": True, "translate": 2} for example:
    pictures then change anew in each batch (augment.py). Of a folder of photos (photos.py), `shape` (channels, height,
    width) is what they are brought to, if they are not all of one size, and `cache` where they are kept; all that are
    not in a folder `test` are dealt out.
    """

    def __init__(
        self,
        dataset_path: str | Path,
        batch_size: int,
        dtype: str = "float16",
        normalize: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        into: np.ndarray | None = None,
        augmentation: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        cache: str | Path | None = None,
    ) -> None:
        frame = None if shape is None else Frame((*shape[1:], shape[0]))
        ds = open_source(dataset_path, photos=PhotoOptions(test_split=0, cache=cache), frame=frame).train
        pixels = ds.x.dtype == np.uint8
        lo, hi = ds.x.min(), ds.x.max()
        if dtype not in DTYPES or (dtype == "uint8" and not pixels):
            raise UserError(
                f"{dataset_path}: dtype is {dtype!r}; samples of type {ds.x.dtype} can be stored as "
                + ", ".join(DTYPES if pixels else DTYPES[1:])
            )
        if normalize and not pixels and not (lo >= 0 and hi <= 1):
            raise UserError(
                f"{dataset_path}: values run from {lo:g} to {hi:g}; only pixels (0 to 255 in uint8, 0 to 1 "
                "in floats) are normalised, give normalize=False"
            )
        if dtype == "float16" and max(-float(lo), float(hi)) > float(np.finfo(np.float16).max):
            raise UserError(
                f"{dataset_path}: values run from {lo:g} to {hi:g}; float16 ends at 65504, use float32"
            )
        scale = (CENTRE if pixels else 0.5) if normalize else 0.0
        self._mean = np.full(ds.x.shape[-1], scale, np.float32)
        self._std = np.full(ds.x.shape[-1], scale or 1.0, np.float32)
        self._x = ds.x if dtype == "uint8" else self._pack(ds.x, np.dtype(dtype))
        self.y, self.labels = ds.y, ds.labels
        self.batch_size, self.seed, self.drop_last, self.epoch = batch_size, seed, drop_last, 0
        self._steps = steps_per_epoch(ds.count, batch_size, drop_last)
        self._into = into
        self._spec = Augmentation(**read_augmentation(augmentation or {}, "augmentation"))
        if self._spec.mixes:
            raise UserError(
                f"{dataset_path}: mixup and cutmix give each picture two labels, but a batch here has one.\n"
                "  Leave them away, or train with edge-train."
            )
        if not self._spec.idle:
            check_pictures(self._spec, ds.shape, str(dataset_path))

    def _pack(self, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The whole set normalised and rounded to dtype."""
        packed = np.empty(x.shape, dtype)
        for at in range(0, len(x), PIECE):
            packed[at : at + PIECE] = to_input(x[at : at + PIECE], self._mean, self._std)
        return packed

    @property
    def nbytes(self) -> int:
        """Bytes the stored samples take."""
        return self._x.nbytes

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        order = epoch_order(len(self._x), self.seed, epoch)
        for step in range(self._steps):
            indices = order[step * self.batch_size : (step + 1) * self.batch_size]
            rows = self._x[indices]
            out = None if self._into is None else self._into[: len(rows)]
            if not self._spec.idle:
                mean, std = (self._mean, self._std) if rows.dtype == np.uint8 else (None, None)
                at = epoch * self._steps + step
                x = augment(rows, self._spec, self.seed, at, indices, epoch, mean, std, out)
            elif rows.dtype == np.uint8:
                x = to_input(rows, self._mean, self._std, out)
            elif out is None:
                x = rows.astype(np.float32)
            else:
                out[...] = rows
                x = out
            yield Batch(x, self.y[indices], indices)
