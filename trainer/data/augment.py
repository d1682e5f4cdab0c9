"""Augmentation: the pictures of a training batch, each mirrored, shifted and cut into anew, and normalised.

    x = augment(data.x[index], Augmentation("horizontal", translate=4), seed, micro_step, index, epoch, mean, std)

What happens to a sample follows from (seed, micro-step, its place in the batch) alone, so that a resumed run draws what
it would have drawn; the alternate flip follows from (seed, epoch, the sample's place in the data set). This is the
definition; trainer/kernels/load.cu gives the same bits. Evaluation never augments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import blueprint_words, rng
from ..blueprint_text import Node, fail
from ..fields import Field, check_all
from .batches import to_input

FIELDS = (
    Field(
        "flip", "choice", default="none", words=("none", "horizontal", "vertical", "both", "alternate"),
        foreign=blueprint_words.FLIP,
        doc="mirrors half of the pictures left to right (`true` says the same), upside down, or each by itself; "
        "`alternate`: left to right, half of them in one epoch and the other half in the next",
    ),
    Field("translate", "whole", 0, 255, default=0, doc="shifts by up to so many pixels, up or down and left or right"),
    Field(
        "pad_mode", "choice", default="zero", words=("zero", "reflect"), foreign=blueprint_words.PAD_MODE,
        doc="what a shift uncovers: 0 after normalisation, that is the mean pixel, or the picture mirrored in its edge",
    ),
    Field(
        "cutout", "whole", 0, 65535, default=0,
        doc="side of a square around a random pixel that becomes 0 after normalisation, that is the mean pixel",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Augmentation:
    """What may happen to a picture. FIELDS says what each means."""

    flip: str = "none"
    translate: int = 0
    pad_mode: str = "zero"
    cutout: int = 0

    @property
    def idle(self) -> bool:
        """Whether nothing happens."""
        return self.flip == "none" and not self.translate and not self.cutout


@dataclass(frozen=True)
class Changes:
    """What happens to each of B samples, (B,) each: output pixel (i, j) comes from (i - dy, j - dx) of the picture, in
    that order mirrored; pixels from (top, left) on are cut out."""

    mirror: np.ndarray  # bool: left to right
    upside_down: np.ndarray  # bool
    dy: np.ndarray
    dx: np.ndarray
    top: np.ndarray
    left: np.ndarray

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Sample by sample, as plain numbers."""
        columns = (self.mirror, self.upside_down, self.dy, self.dx, self.top, self.left)
        return zip(*(column.tolist() for column in columns), strict=True)


def read_augmentation(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The checked settings of an Augmentation, of plain values or of a blueprint's nodes."""
    given = dict(given)
    flip = given.get("flip")
    if isinstance(flip.value if isinstance(flip, Node) else flip, bool):
        given["flip"] = "horizontal" if (flip.value if isinstance(flip, Node) else flip) else "none"
    found = check_all(FIELDS, given, where, "augmentation", blueprint_words.OPTION)
    if "pad_mode" in found and "translate" not in found:
        fail(where, "pad_mode is given, but translate is not", "Add translate, the largest shift in pixels.")
    return found


def check_pictures(spec: Augmentation, shape: tuple[int, ...], where: str) -> None:
    """Samples must be pictures, and larger than what is done to them."""
    if len(shape) != 3:
        values = " x ".join(map(str, shape))
        fail(where, f"augmentation changes pictures, but a sample is {values} values", 'Remove "augmentation".')
    H, W, _ = shape
    for name in ("translate", "cutout"):
        if (value := getattr(spec, name)) >= min(H, W):
            remedy = f"Use less than {min(H, W)}, the shorter side."
            fail(where, f"{name} is {value}, but the pictures are {H} x {W} pixels", remedy)


def augment(
    pictures: np.ndarray,
    spec: Augmentation,
    seed: int,
    micro_step: int,
    indices: np.ndarray,
    epoch: int,
    mean: ArrayLike | None = None,
    std: ArrayLike | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Pictures uint8 or float32 (B,H,W,C), at these places of the data set, as augmented input, float32 (B,H,W,C).

    mean, std: per channel; without them values stay as they are. Writes into `out` if it is given.
    """
    check_pictures(spec, pictures.shape[1:], "this batch")
    _, H, W, _ = pictures.shape
    return apply(pictures, spec, draw(spec, seed, micro_step, indices, epoch, H, W), mean, std, out)


def draw(spec: Augmentation, seed: int, micro_step: int, indices: np.ndarray, epoch: int, H: int, W: int) -> Changes:
    """The changes of the sample at place n of the batch are made of the four words of Philox counter n."""
    key = (seed & 0xFFFFFFFF, seed >> 32)
    place = np.arange(len(indices), dtype=np.uint64)
    words = rng.philox((place, micro_step & 0xFFFFFFFF, micro_step >> 32, rng.AUGMENT), key)
    side = 2 * spec.translate + 1
    shift = _below(words[:, 1], side * side)
    if spec.flip == "alternate":
        first = rng.philox((np.asarray(indices, np.uint64), 0, 0, rng.FLIP), key)[:, 0] >> 31
        mirror = (first + epoch) % 2 == 1
    else:
        mirror = (words[:, 0] >> 31 != 0) & (spec.flip in ("horizontal", "both"))
    upside_down = ((words[:, 0] >> 30) % 2 != 0) & (spec.flip in ("vertical", "both"))
    return Changes(
        mirror,
        upside_down,
        shift // side - spec.translate,
        shift % side - spec.translate,
        _below(words[:, 2], H) - spec.cutout // 2,
        _below(words[:, 3], W) - spec.cutout // 2,
    )


def _below(words: np.ndarray, n: int) -> np.ndarray:
    """Whole numbers 0..n-1, int64."""
    return (words.astype(np.uint64) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def apply(
    pictures: np.ndarray,
    spec: Augmentation,
    changes: Changes,
    mean: ArrayLike | None = None,
    std: ArrayLike | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """The pictures so changed, normalised and float32: framed by as much as they may shift, and cut from the frame."""
    (_, H, W, _), t = pictures.shape, spec.translate
    if mean is not None and std is not None:
        x = to_input(pictures, mean, std)
    else:
        x = pictures.astype(np.float32, copy=False)
    if t:
        mode: Any = "reflect" if spec.pad_mode == "reflect" else "constant"
        x = np.pad(x, ((0, 0), (t, t), (t, t), (0, 0)), mode)
    if out is None:
        out = np.empty(pictures.shape, np.float32)
    for n, (mirror, upside_down, dy, dx, top, left) in enumerate(changes.rows()):
        framed = x[n, ::-1] if upside_down else x[n]
        framed = framed[:, ::-1] if mirror else framed
        out[n] = framed[t - dy : t - dy + H, t - dx : t - dx + W]
        if spec.cutout:
            out[n, max(top, 0) : top + spec.cutout, max(left, 0) : left + spec.cutout] = 0
    return out
