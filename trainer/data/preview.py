"""The preview of a run: a picture of what the net is going to see, to be looked at before time is spent.

Sixteen samples with their classes, in two bands of eight. The first row of a band shows them as they are, the rows
below as augmentation makes them in the first epochs. Without augmentation it is 64 samples as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from ..errors import UserError
from .augment import Augmentation, augment
from .batches import epoch_order, steps_per_epoch
from .dataset import Dataset

SIDE = 8  # tiles in a row and in a column
DRAWS = 3  # rows of augmented tiles in a band
LEAST = 64  # pixels of a tile's shorter side; smaller pictures are enlarged
CAPTION = 14  # pixels above a tile for its class
GAP = 2
PAPER, INK = 255, 0


def preview(
    data: Dataset,
    spec: Augmentation | None,
    seed: int,
    batch: int,
    labels: Sequence[str] | None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    bgr: bool = False,
) -> bytes:
    """The PNG file. bgr: whether three channels stand in that order; pictures of other than one or three channels
    are shown by their first."""
    if len(data.shape) != 3:
        raise UserError(f"{data.name} holds no pictures, so there is nothing to preview.\n  Leave --preview away.")
    rows = SIDE if spec is None else SIDE // (1 + DRAWS)  # of samples as they are
    index = epoch_order(data.count, seed, 0)[: SIDE * rows]
    x = data.x[index]
    lo, hi = (0.0, 255.0) if x.dtype == np.uint8 else (float(x.min()), float(x.max()))
    versions = [_bytes(x, lo, hi)]
    if spec is not None:
        steps = steps_per_epoch(data.count, batch)
        for epoch in range(DRAWS):
            seen = augment(x, spec, seed, epoch * steps, index, epoch, mean, std)
            if mean is not None and std is not None:
                seen = seen * np.asarray(std, np.float32) + np.asarray(mean, np.float32)
            versions.append(_bytes(seen, lo, hi))
    if bgr:
        versions = [pictures[..., ::-1] for pictures in versions]
    sheet = _sheet(versions, [_name(data.y[i], labels) for i in index])
    return cv2.imencode(".png", np.ascontiguousarray(sheet[..., ::-1]))[1].tobytes()


def _bytes(x: np.ndarray, lo: float, hi: float) -> np.ndarray:
    """(N,H,W,C) as colours, uint8 (N,H,W,3): lo is black, hi is white."""
    grey = np.clip((x.astype(np.float32) - lo) * (255 / max(hi - lo, 1e-12)) + 0.5, 0, 255).astype(np.uint8)
    return grey if grey.shape[-1] == 3 else np.repeat(grey[..., :1], 3, axis=-1)


def _name(answer: np.ndarray, labels: Sequence[str] | None) -> str:
    """What stands above a sample: its class, or nothing if its answer is many values."""
    if answer.size != 1:
        return ""
    if answer.dtype != np.int64:
        return f"{float(answer.reshape(-1)[0]):.4g}"
    label = labels[int(answer)] if labels is not None and int(answer) < len(labels) else ""
    return label if label and label.isascii() else str(int(answer))  # the font has no other letters


def _sheet(versions: list[np.ndarray], names: list[str]) -> np.ndarray:
    """All tiles: for each row of samples its caption, then one row of tiles a version. uint8 (height, width, 3)."""
    count, H, W, _ = versions[0].shape
    times = -(-LEAST // min(H, W))
    high, wide, bands = H * times + GAP, W * times + GAP, -(-count // SIDE)
    band = CAPTION + high * len(versions)
    sheet = np.full((GAP + band * bands, GAP + wide * min(count, SIDE), 3), PAPER, np.uint8)
    for n, name in enumerate(names):
        top, left = GAP + n // SIDE * band, GAP + n % SIDE * wide
        caption = np.full((CAPTION, wide - GAP, 3), PAPER, np.uint8)
        cv2.putText(caption, name, (1, CAPTION - 4), cv2.FONT_HERSHEY_SIMPLEX, 0.36, (INK,) * 3, 1, cv2.LINE_AA)
        sheet[top : top + CAPTION, left : left + wide - GAP] = caption
        for k, pictures in enumerate(versions):
            at = top + CAPTION + k * high
            tile = pictures[n].repeat(times, axis=0).repeat(times, axis=1)
            sheet[at : at + H * times, left : left + W * times] = tile
    return sheet
