"""The order in which samples are trained on, and their way from stored bytes to network input.

The order is a function of (seed, epoch) alone: a run that is taken up again at step k of an epoch sees the
batches it would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from .. import rng
from ..errors import UserError
from .dataset import Dataset


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """int64 (n,): every index once."""
    return rng.permutation(seed, rng.SHUFFLE, epoch, n)


def steps_per_epoch(n: int, batch: int, drop_last: bool = True) -> int:
    """How many batches n samples make."""
    if batch < 1:
        raise UserError(f"the batch size is {batch}; it must be at least 1")
    if drop_last and batch > n:
        raise UserError(f"the batch size is {batch}, but there are only {n} samples; choose at most {n}")
    return n // batch if drop_last else -(-n // batch)


def iterate(
    ds: Dataset,
    batch: int,
    seed: int,
    epoch: int,
    start_batch: int = 0,
    drop_last: bool = True,
    order: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """The index arrays of one epoch from batch `start_batch` on; a last, shorter one only without
    drop_last. order: another than epoch_order's."""
    steps = steps_per_epoch(ds.count, batch, drop_last)
    order = epoch_order(ds.count, seed, epoch) if order is None else order
    return (order[k * batch : (k + 1) * batch] for k in range(start_batch, steps))


def to_input(rows: np.ndarray, mean: ArrayLike, std: ArrayLike, out: np.ndarray | None = None) -> np.ndarray:
    """(float32(v) - mean[c]) / std[c] of (B, ..., C): one subtraction, one division in float32, as on the
    device.

    Writes into `out`, float32 and contiguous (a view of an arena), when it is given. mean and std are
    repeated along a sample, which makes the inner loop long; so laid out, the formula is faster than a table
    of 256 values.
    """
    C = rows.shape[-1]
    m, s = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    if m.shape != (C,) or s.shape != (C,):
        raise ValueError(
            f"mean {m.shape} and std {s.shape} for {C} channels; one of each a channel is needed"
        )
    if out is None:
        out = np.empty(rows.shape, np.float32)
    elif out.shape != rows.shape or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ValueError(f"out is {out.dtype} {out.shape}; contiguous float32 {rows.shape} is needed")
    values = rows[0].size if len(rows) else 0
    if values == 0:
        return out
    if C > 1:
        m, s = np.tile(m, values // C), np.tile(s, values // C)
    flat = out.reshape(len(rows), values)
    np.copyto(flat, rows.reshape(len(rows), values))
    np.subtract(flat, m, out=flat)
    np.divide(flat, s, out=flat)
    return out
