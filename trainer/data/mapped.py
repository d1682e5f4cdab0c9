"""A data set as files that are mapped into memory: opened in no time, and in memory only where it is being read.

Archives and batches have to be unpacked and turned to (H, W, C). That is done once; four .npy files remain.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..errors import UserError
from .dataset import Dataset, Splits


def open_mapped(
    folder: Path, good: Callable[[Splits], bool], labels: tuple[str, ...] | None, name: str
) -> Splits | None:
    """The set in a folder, None where it is not, or not `good`."""
    with suppress(OSError, ValueError, UserError):
        parts = []
        for part in ("train", "test"):
            x, y = (np.load(folder / f"{part}_{what}.npy", mmap_mode="r") for what in "xy")
            parts.append(Dataset(x, y, labels, name, str(folder)))
        splits = Splits(parts[0], parts[1])
        if good(splits):
            return splits
    return None


def write_mapped(folder: Path, splits: Splits) -> None:
    """Put a set there, each file whole or not at all. UserError where that cannot be."""
    from ..checkpoint import write_atomically

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"{folder}: this cache folder cannot be made ({fault.strerror}).") from None
    for part, ds in (("train", splits.train), ("test", splits.test)):
        if ds is not None:
            for what, array in (("x", ds.x), ("y", ds.y)):
                write_atomically(folder / f"{part}_{what}.npy", lambda file, a=array: np.save(file, a))
