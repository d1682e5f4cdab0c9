"""A data set in memory: samples x, answers y, and the names of the classes.

Pictures are bytes, uint8 (N, H, W, C) with C = 1 for grey, and stay bytes until a batch is made (batches.py):
a quarter of the memory, and the arithmetic of the device. Everything else is float32, (N, D) or (N, H, W, C).
Answers are class numbers, int64 (N,), or float32 targets, (N,) or (N, ...).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isqrt
from mmap import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import rng
from ..errors import UserError

if TYPE_CHECKING:
    from .preflight import Preflight

CHUNK = 1 << 22  # values looked at in one go, so that a check never doubles the memory of the set
MAPPED = 1 << 30  # bytes above which a part of a mapped array is not brought into memory
MOST_CLASSES = 65536  # a larger class number is a mistake in the file, such as an identifier read as a class


@dataclass(frozen=True, eq=False)
class Dataset:
    """Checked when made. x and y are read-only views, so the hash stays true. `source` is their origin."""

    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    labels: tuple[str, ...] | None = None
    name: str = "data"
    source: str = ""
    origin: np.ndarray | None = field(default=None, repr=False)  # the samples' numbers in the set they were taken from
    group: np.ndarray | None = field(default=None, repr=False)  # whole numbers (N,): equal ones are not split apart
    files: np.ndarray | None = field(default=None, repr=False)  # texts (N,): the pictures' names below the source

    def __post_init__(self) -> None:
        where = self.source or self.name
        object.__setattr__(self, "x", _read_only(self.x))
        object.__setattr__(self, "y", _read_only(self.y))
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(str(label) for label in self.labels))
        _check_x(where, self.x)
        _check_y(where, self.x, self.y)
        if self.labels is not None and self.y.dtype == np.int64 and int(self.y.max()) >= len(self.labels):
            raise UserError(
                f"{where}: class {int(self.y.max())} occurs in y, but only {len(self.labels)} class names "
                f"are given, for 0 to {len(self.labels) - 1}; name every class"
            )

    @property
    def count(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: (H, W, C) or (D,)."""
        return self.x.shape[1:]

    @property
    def is_picture(self) -> bool:
        return self.x.ndim == 4

    @cached_property
    def classes(self) -> int:
        """How many classes there are; 0 when y holds targets instead."""
        if self.y.dtype != np.int64:
            return 0
        return len(self.labels) if self.labels is not None else int(self.y.max()) + 1

    def hash(self) -> str:
        """16 hex digits of SHA-256 over the types, shapes and bytes of x and y, whatever file they came
        in."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        sha = hashlib.sha256()
        for array in (self.x, self.y):
            sha.update(f"{array.dtype.name}{list(array.shape)}".encode())
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            sha.update(little.reshape(-1).data.cast("B"))
        return sha.hexdigest()[:16]

    def take(self, indices: Any) -> Dataset:
        """The samples at these indices, in that order, as a data set of its own (a copy)."""
        rows = np.asarray(indices)
        origin = np.arange(len(self.x)) if self.origin is None else self.origin
        group, files = (None if a is None else a[rows] for a in (self.group, self.files))
        return replace(self, x=_rows(self.x, rows), y=self.y[rows], origin=origin[rows], group=group, files=files)


@dataclass(frozen=True, eq=False)
class Splits:
    """What a source holds: the samples to learn from, and the ones it keeps apart for testing, if any.

    validation: where the source itself says which. preflight: of photos, whose pictures are then what the net sees."""

    train: Dataset
    test: Dataset | None = None
    validation: Dataset | None = None
    preflight: Preflight | None = None


def mean_std(ds: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel (the last axis), float32 (C,), in the units of x.

    For pictures that is 0..255, from exact whole-number sums. A channel that never changes gets 1, so that
    dividing by it is harmless.
    """
    C = ds.x.shape[-1]
    if ds.x.dtype != np.uint8:
        return _mean_std_float(ds.x.reshape(-1, C))
    seen = np.zeros((C, 256), np.int64)  # how often each value occurs
    for part in _chunks(ds.x.reshape(-1, C)):
        for c in range(C):
            seen[c] += np.bincount(part[:, c], minlength=256)
    mean, std = np.empty(C, np.float32), np.empty(C, np.float32)
    for c in range(C):
        counts = [int(k) for k in seen[c]]
        n = sum(counts)
        s1 = sum(v * k for v, k in enumerate(counts))
        s2 = sum(v * v * k for v, k in enumerate(counts))
        mean[c] = s1 / n
        std[c] = _sqrt_ratio(n * s2 - s1 * s1, n * n) or 1.0
    return mean, std


def split(ds: Dataset, fraction: float, seed: int, stream: int = rng.SPLIT) -> tuple[Dataset, Dataset]:
    """(train, validation): `fraction` of each class, to within one sample, is set apart, chosen by the seed.

    Both parts keep the order of ds, and every class stays in training. Targets are split as one class. Samples of one
    ds.group stay together, so that the share of a class is met only as far as its groups allow.
    """
    if not 0 < fraction < 1:
        raise UserError(
            f"the validation fraction is {fraction}; give a share between 0 and 1, such as 0.1 for a tenth"
        )
    kind = ds.y if ds.y.dtype == np.int64 else np.zeros(ds.count, np.int64)
    chosen = np.zeros(ds.count, bool)
    for k, amount in enumerate(_shares(np.bincount(kind), fraction)):
        members = np.flatnonzero(kind == k)
        if amount and ds.group is None:
            chosen[members[rng.permutation(seed, stream, k, len(members))[:amount]]] = True
        elif amount and ds.group is not None:
            _choose_groups(chosen, ds.group, members, amount, seed, stream, k)
    if not chosen.any():
        raise UserError(
            f"{ds.source or ds.name}: a validation fraction of {fraction} of {ds.count} samples is "
            "less than one; choose a larger fraction or give more samples"
        )
    return ds.take(np.flatnonzero(~chosen)), ds.take(np.flatnonzero(chosen))


def _choose_groups(
    chosen: np.ndarray, group: np.ndarray, members: np.ndarray, amount: int, seed: int, stream: int, k: int
) -> None:
    """Choose whole groups of class k, in random order, until `amount` of its samples are chosen or no group fits. One
    is chosen at least, but never all."""
    names, sizes = np.unique(group[members], return_counts=True)
    order = rng.permutation(seed, stream, k, len(names))
    taken = int(chosen[members].sum())
    for place in order:
        if taken + sizes[place] <= amount and not chosen[members[group[members] == names[place]]].any():
            chosen[group == names[place]] = True
            taken += int(sizes[place])
    if taken == 0 and len(names) > 1:
        chosen[group == names[int(sizes.argmin())]] = True


def _shares(counts: np.ndarray, fraction: float) -> list[int]:
    """How many of each class go to validation: floor(fraction*n), then one more where most was cut off.

    The sum is fraction of all, rounded, as far as each class can leave one sample in training.
    """
    exact = [fraction * int(n) for n in counts]
    amounts = [int(e) for e in exact]
    missing = int(fraction * int(counts.sum()) + 0.5) - sum(amounts)
    order = sorted(range(len(exact)), key=lambda k: (amounts[k] - exact[k], k))
    for k in [k for k in order if amounts[k] < exact[k] and amounts[k] + 1 < counts[k]][: max(0, missing)]:
        amounts[k] += 1
    return amounts


def _sqrt_ratio(p: int, q: int) -> float:
    """sqrt(p/q) of whole numbers to 60 bits, without the cancellation of a float sum of squares."""
    return isqrt((p << 120) // q) / (1 << 60)


def _mean_std_float(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two passes in float64 over (M, C)."""
    mean = np.zeros(rows.shape[1])
    for part in _chunks(rows):
        mean += part.sum(axis=0, dtype=np.float64)
    mean /= len(rows)
    square = np.zeros(rows.shape[1])
    for part in _chunks(rows):
        square += ((part - mean) ** 2).sum(axis=0)
    std = np.sqrt(square / len(rows)).astype(np.float32)
    std[std == 0] = 1
    return mean.astype(np.float32), std


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, CHUNK // max(1, rows[0].size))
    for at in range(0, len(rows), step):
        yield rows[at : at + step]


def reserve(descriptor: int, size: int, folder: Any, remedy: str) -> None:
    """Take `size` bytes on the disk now: a mapped file that finds none when it is filled ends the process. UserError
    where there is no room."""
    if not hasattr(os, "posix_fallocate"):  # not on this system
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        raise UserError(f"{folder}: {size:,} bytes could not be written ({error.strerror}).\n  {remedy}") from None


def _rows(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """x[rows]. Of a large array that lies in a file the rows go to a nameless file too, not into memory."""
    need = x.nbytes // max(len(x), 1) * len(rows)
    if need <= MAPPED or not _mapped(x) or rows.dtype == bool:
        return x[rows]
    with tempfile.TemporaryFile() as file:
        reserve(file.fileno(), need, tempfile.gettempdir(), "Free some space, or name another folder in TMPDIR.")
        out = np.memmap(file, x.dtype, "w+", shape=(len(rows), *x.shape[1:]))
    step = max(1, CHUNK // max(1, x[0].size))
    for at in range(0, len(rows), step):
        out[at : at + step] = x[rows[at : at + step]]
    return out


def _mapped(x: Any) -> bool:
    """Whether an array's bytes lie in a file."""
    while isinstance(x, np.ndarray):
        x = x.base
    return isinstance(x, mmap)


def _read_only(array: Any) -> np.ndarray:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _check_x(where: str, x: np.ndarray) -> None:
    if x.dtype not in (np.uint8, np.float32):
        raise UserError(
            f"{where}: x holds {x.dtype} values; pictures are uint8 (0 to 255), anything else is float32"
        )
    if x.ndim != 4 and not (x.ndim == 2 and x.dtype == np.float32):
        raise UserError(
            f"{where}: x has shape {_text(x.shape)}; expected (samples, height, width, channels), or "
            "(samples, values) in float32"
        )
    if x.size == 0:
        raise UserError(f"{where}: x is empty, its shape is {_text(x.shape)}; give at least one sample")
    _check_finite(where, "x", x)


def _check_y(where: str, x: np.ndarray, y: np.ndarray) -> None:
    if len(y) != len(x):
        raise UserError(f"{where}: {len(x)} samples but {len(y)} answers; x and y must be equally long")
    if y.dtype == np.int64 and y.ndim == 1:
        if y.min() < 0:
            at = int(np.argmax(y < 0))
            raise UserError(f"{where}: the class of sample {at} is {y[at]}; classes are numbered from 0")
        if y.max() >= MOST_CLASSES:
            at = int(y.argmax())
            raise UserError(
                f"{where}: the class of sample {at} is {y[at]}; at most {MOST_CLASSES} classes, numbered "
                "from 0 without gaps, are expected"
            )
    elif y.dtype != np.float32 or y.size == 0:
        raise UserError(
            f"{where}: y holds {y.dtype} values of shape {_text(y.shape)}; expected class numbers, int64 "
            f"({len(x)},), or targets, float32 ({len(x)}, ...)"
        )
    _check_finite(where, "y", y)


def _check_finite(where: str, what: str, values: np.ndarray) -> None:
    if values.dtype != np.float32:
        return
    rows = values.reshape(len(values), -1)
    at = 0
    for part in _chunks(rows):
        good = np.isfinite(part)
        if not good.all():
            row, column = (int(k) for k in np.argwhere(~good)[0])
            raise UserError(
                f"{where}: {what} of sample {at + row} contains {part[row, column]}; leave such samples out "
                "or repair them"
            )
        at += len(part)


def _text(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
