"""Augmentation: the pictures of a training batch, each mirrored, shifted and cut into anew, and normalised.

    x = augment(data.x[index], Augmentation("horizontal", translate=4), seed, micro_step, index, epoch, mean, std)

A picture is mirrored, turned and zoomed about its middle, shifted; its colours are changed; a square is cut out; then
two pictures may be mixed. What happens to a sample follows from (seed, micro-step, its place in the batch) alone, so
that a resumed run draws what it would have drawn; the alternate flip follows from (seed, epoch, the sample's place in
the data set). This is the definition; trainer/kernels/load.cu gives the same bits. Evaluation never augments.
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
from . import warp
from .batches import to_input
from .mix import draw_mix, mix

FIELDS = (
    Field(
        "flip", "choice", default="none", words=("none", "horizontal", "vertical", "both", "alternate"),
        foreign=blueprint_words.FLIP,
        doc="mirrors half of the pictures left to right (`true` says the same), upside down, or each by itself; "
        "`alternate`: left to right, half of them in one epoch and the other half in the next",
    ),
    Field("translate", "whole", 0, 255, default=0, doc="shifts by up to so many pixels, up or down and left or right"),
    Field("rotate", "number", 0, 180, default=0.0, doc="turns about the middle by up to so many degrees, either way"),
    Field("scale", "number", 0, 0.75, default=0.0, doc="enlarges or shrinks by up to this share; enlarging crops"),
    Field(
        "pad_mode", "choice", default="zero", words=("zero", "reflect"), foreign=blueprint_words.PAD_MODE,
        doc="what a move uncovers: 0 after normalisation, that is the mean pixel, or the picture mirrored in its edge",
    ),
    Field("brightness", "number", 0, 1, default=0.0, doc="adds up to this share of white to all pixels, or takes it"),
    Field("contrast", "number", 0, 1, default=0.0, doc="changes distances from the mean pixel by up to this share"),
    Field("saturation", "number", 0, 1, default=0.0, doc="changes distances from grey by up to this share"),
    Field("tint", "number", 0, 1, default=0.0, doc="changes each channel by itself by up to this share: another light"),
    Field(
        "cutout", "whole", 0, 65535, default=0,
        doc="side of a square around a random pixel that becomes 0 after normalisation, that is the mean pixel",
    ),
    Field(
        "mixup", "number", 0, 1, default=0.0,
        doc="blends the pictures of a batch in pairs, and their labels: alpha of the beta distribution of the share",
    ),
    Field(
        "cutmix", "number", 0, 1, default=0.0,
        doc="puts a rectangle of one picture into another, and mixes their labels: alpha; with mixup, one of the two",
    ),
)  # fmt: skip


MOST_CHANNELS = 4  # of pictures that are changed in full: load.cu holds a pixel in registers


@dataclass(frozen=True)
class Augmentation:
    """What may happen to a picture. FIELDS says what each means."""

    flip: str = "none"
    translate: int = 0
    pad_mode: str = "zero"
    cutout: int = 0
    rotate: float = 0.0
    scale: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    tint: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing happens."""
        return self == Augmentation(pad_mode=self.pad_mode)

    @property
    def warps(self) -> bool:
        """Whether pictures are turned or zoomed, so that pixels fall between pixels."""
        return self.rotate > 0 or self.scale > 0

    @property
    def colors(self) -> bool:
        return self.brightness > 0 or self.contrast > 0 or self.saturation > 0 or self.tint > 0

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0

    @property
    def in_full(self) -> bool:
        """Whether more happens than moves by whole pixels and a square cut out."""
        return self.warps or self.colors or self.mixes

    def limits(self) -> tuple[int, int]:
        """The largest angle, in 2^-24 turns, and the largest change of zoom, in 2^-16."""
        return round(self.rotate / 360 * warp.TURN), round(self.scale * warp.ONE)

    def color_limits(self, pixels: bool) -> tuple[float, float, float, float]:
        """The largest change of brightness (of bytes in their unit), of contrast, of saturation and of one channel."""
        return self.brightness * (255 if pixels else 1), self.contrast, self.saturation, self.tint


@dataclass(frozen=True)
class Changes:
    """What happens to each of B samples, (B,) each: output pixel (i, j) comes from (i - dy, j - dx) of the picture, in
    that order mirrored; pixels from (top, left) on are cut out. Turned and zoomed: see warp.py. light, contrast,
    saturation and tints (B, MOST_CHANNELS) are -1 .. 1, float32: what share of the largest change."""

    mirror: np.ndarray  # bool: left to right
    upside_down: np.ndarray  # bool
    dy: np.ndarray
    dx: np.ndarray
    top: np.ndarray
    left: np.ndarray
    angle: np.ndarray
    zoom: np.ndarray
    light: np.ndarray
    contrast: np.ndarray
    saturation: np.ndarray
    tints: np.ndarray

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Sample by sample, as plain numbers."""
        columns = (self.mirror, self.upside_down, self.dy, self.dx, self.top, self.left)  # of whole pixels
        return zip(*(column.tolist() for column in columns), strict=True)


def read_augmentation(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The checked settings of an Augmentation, of plain values or of a blueprint's nodes."""
    given = dict(given)
    flip = given.get("flip")
    if isinstance(flip.value if isinstance(flip, Node) else flip, bool):
        given["flip"] = "horizontal" if (flip.value if isinstance(flip, Node) else flip) else "none"
    found = check_all(FIELDS, given, where, "augmentation", blueprint_words.OPTION)
    if "pad_mode" in found and not {"translate", "rotate", "scale"} & {*found}:
        fail(where, "pad_mode is given, but translate is not", "Add translate, the largest shift in pixels.")
    for name in ("mixup", "cutmix"):
        if 0 < found.get(name, 0) < 0.05:
            fail(where, f"{name} is {found[name]:g}; below 0.05 hardly anything is mixed", "Use 0.2, or leave it out.")
    return found


def check_pictures(spec: Augmentation, shape: tuple[int, ...], where: str) -> None:
    """Samples must be pictures, and larger than what is done to them."""
    if len(shape) != 3:
        values = " x ".join(map(str, shape))
        fail(where, f"augmentation changes pictures, but a sample is {values} values", 'Remove "augmentation".')
    H, W, C = shape
    if spec.in_full and C > MOST_CHANNELS:
        names = "rotate, scale, changes of colour, mixup and cutmix"
        fail(where, f"{names} take up to {MOST_CHANNELS} channels, but the pictures have {C}", "Remove them.")
    for name in ("translate", "cutout"):
        if (value := getattr(spec, name)) >= min(H, W):
            remedy = f"Use less than {min(H, W)}, the shorter side."
            fail(where, f"{name} is {value}, but the pictures are {H} x {W} pixels", remedy)


def check_mixing(spec: Augmentation, loss: str, where: str) -> None:
    """Mixed labels are for cross_entropy."""
    if spec.mixes and loss != "cross_entropy":
        name = "mixup" if spec.mixup else "cutmix"
        remedy = f'Remove {name}, or use "loss": "cross_entropy".'
        fail(where, f"{name} mixes classes, which {loss} does not take", remedy)


def check_classes(spec: Augmentation, classes: int, where: str) -> None:
    """Answers that are mixed must be class numbers."""
    if spec.mixes and not classes:
        fail(where, "mixup and cutmix mix classes, but the answers are values", "Remove them.")


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
    out = apply(pictures, spec, draw(spec, seed, micro_step, indices, epoch, H, W), mean, std, out)
    mix(out, draw_mix(spec, seed, micro_step, H, W))
    return out


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
    counter = (micro_step & 0xFFFFFFFF, micro_step >> 32)
    turned = rng.philox((place, *counter, rng.WARP), key) if spec.warps else np.zeros_like(words)
    tinted = rng.philox((place, *counter, rng.COLOR), key) if spec.colors else np.zeros_like(words)
    angle, zoom = spec.limits()
    light, contrast, saturation = ((tinted[:, :3] >> 8).astype(np.float32) * np.float32(2.0**-23) - 1).T
    bytes_of = tinted[:, 3:] >> np.array([0, 8, 16, 24], np.uint32) & 255  # one for each channel
    return Changes(
        mirror,
        upside_down,
        shift // side - spec.translate,
        shift % side - spec.translate,
        _below(words[:, 2], H) - spec.cutout // 2,
        _below(words[:, 3], W) - spec.cutout // 2,
        _below(turned[:, 0], 2 * angle + 1) - angle,
        _below(turned[:, 1], 2 * zoom + 1) - zoom + warp.ONE,
        light, contrast, saturation, (2 * bytes_of.astype(np.float32) - 255) / np.float32(255),
    )  # fmt: skip


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
    """The pictures so changed, normalised and float32, each by itself: nothing is mixed here."""
    if out is None:
        out = np.empty(pictures.shape, np.float32)
    if spec.warps or spec.colors:
        return _apply_in_full(pictures, spec, changes, mean, std, out)
    return _apply_moves(pictures, spec, changes, mean, std, out)


def _apply_moves(
    pictures: np.ndarray, spec: Augmentation, changes: Changes, mean: Any, std: Any, out: np.ndarray
) -> np.ndarray:
    """Whole pixels only: framed by as much as they may shift, and cut from the frame."""
    (_, H, W, _), t = pictures.shape, spec.translate
    if mean is not None and std is not None:
        x = to_input(pictures, mean, std)
    else:
        x = pictures.astype(np.float32, copy=False)
    if t:
        mode: Any = "reflect" if spec.pad_mode == "reflect" else "constant"
        x = np.pad(x, ((0, 0), (t, t), (t, t), (0, 0)), mode)
    for n, (mirror, upside_down, dy, dx, top, left) in enumerate(changes.rows()):
        framed = x[n, ::-1] if upside_down else x[n]
        framed = framed[:, ::-1] if mirror else framed
        out[n] = framed[t - dy : t - dy + H, t - dx : t - dx + W]
        if spec.cutout:
            out[n, max(top, 0) : top + spec.cutout, max(left, 0) : left + spec.cutout] = 0
    return out


def _apply_in_full(
    pictures: np.ndarray, spec: Augmentation, changes: Changes, mean: Any, std: Any, out: np.ndarray
) -> np.ndarray:
    """Sample by sample: sampled, coloured, normalised; then what is cut out or outside becomes 0."""
    cos, sin = warp.matrix(changes.angle, changes.zoom)
    factors = color_factors(spec, changes, pictures.dtype == np.uint8)
    middle = np.float32(0) if mean is None else np.asarray(mean, np.float32)
    for n, (mirror, upside_down, dy, dx, top, left) in enumerate(changes.rows()):
        to = (dy, dx, spec.pad_mode == "reflect", bool(upside_down), bool(mirror))
        if spec.warps:
            values, blank = warp.sample(pictures[n], int(cos[n]), int(sin[n]), *to)
        else:
            values, blank = warp.shift(pictures[n], *to)
        if spec.colors:
            _color(values, middle, factors[n], pictures.dtype == np.uint8)
        if mean is not None and std is not None:
            to_input(values[None], mean, std, out[n : n + 1])
        else:
            out[n] = values
        if spec.cutout:
            blank[max(top, 0) : top + spec.cutout, max(left, 0) : left + spec.cutout] = True
        out[n][blank] = 0
    return out


def color_factors(spec: Augmentation, changes: Changes, pixels: bool) -> np.ndarray:
    """float32 (B, 3 + MOST_CHANNELS): what is added, the factors of contrast, of saturation and of each channel."""
    light, contrast, saturation, tint = (np.float32(limit) for limit in spec.color_limits(pixels))
    one = np.float32(1)
    columns = light * changes.light, one + contrast * changes.contrast, one + saturation * changes.saturation
    return np.concatenate([np.stack(columns, axis=1), one + tint * changes.tints], axis=1)


def _color(v: np.ndarray, middle: Any, factors: np.ndarray, pixels: bool) -> None:
    """Change a picture's colours in place: each channel, saturation about grey, contrast about the mean pixel,
    brightness."""
    light, contrast, saturation, *_ = factors
    v *= factors[3 : 3 + v.shape[-1]]
    if v.shape[-1] == 3:
        grey = ((v[..., :1] + v[..., 1:2]) + v[..., 2:]) * np.float32(1 / 3)
        np.add((v - grey) * saturation, grey, out=v)
    np.add((v - middle) * contrast, middle, out=v)
    v += light
    if pixels:
        np.clip(v, 0, 255, out=v)
