"""A picture to a model's input, by the C code that devices run. The rules: FORMAT.md, "Preprocessing"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._litenet import ffi, lib
from .errors import ImageError, ModelError

LAYOUTS = {
    "gray": (lib.LN_GRAY, 1), "gray_alpha": (lib.LN_GRAY_ALPHA, 2), "rgb": (lib.LN_RGB, 3),
    "rgba": (lib.LN_RGBA, 4), "bgr": (lib.LN_BGR, 3), "bgra": (lib.LN_BGRA, 4),
}  # fmt: skip
DEFAULT_LAYOUTS = ("gray", "gray_alpha", "bgr", "bgra")  # by number of channels, as OpenCV has them

RESIZE = {"nearest": lib.LN_NEAREST, "bilinear": lib.LN_BILINEAR, "area": lib.LN_AREA}
FIT = {"stretch": lib.LN_STRETCH, "crop": lib.LN_CROP, "letterbox": lib.LN_LETTERBOX}
COLOR = {"gray": lib.LN_COLOR_GRAY, "rgb": lib.LN_COLOR_RGB, "bgr": lib.LN_COLOR_BGR}
INVERT = {"never": lib.LN_INVERT_NEVER, "always": lib.LN_INVERT_ALWAYS, "auto": lib.LN_INVERT_AUTO}


@dataclass(frozen=True)
class Preprocessing:
    """How pictures become the input. mean and std are in pixel units, 0 to 255, one number a channel."""

    resize: str = "area"
    fit: str = "stretch"
    color: str = "rgb"
    invert: str = "never"
    pad: int = 0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self):
        for key, words in (("resize", RESIZE), ("fit", FIT), ("color", COLOR), ("invert", INVERT)):
            value = getattr(self, key)
            if value not in words:
                raise ModelError(f"preprocessing {key} is {value!r}; expected one of {', '.join(words)}.")
        for key in ("mean", "std"):
            if len(getattr(self, key)) not in (1, self.channels):
                count = len(getattr(self, key))
                raise ModelError(f"preprocessing {key} has {count} numbers; expected one a channel.")

    @property
    def channels(self) -> int:
        return 1 if self.color == "gray" else 3

    def frame(self, pixels: np.ndarray, height: int, width: int, layout: str | None = None) -> np.ndarray:
        """The picture as uint8 (height, width, channels): colour, fit, resize and inversion done."""
        pixels, code = as_pixels(pixels, layout)
        out = np.empty((height, width, self.channels), np.uint8)
        status = lib.ln_preprocess_bytes(
            self._record(), ffi.from_buffer("uint8_t[]", pixels), pixels.shape[0], pixels.shape[1], code,
            ffi.from_buffer("uint8_t[]", out), height, width,
        )  # fmt: skip
        check(status)
        return out

    def normalize(self, frame: np.ndarray) -> np.ndarray:
        """(frame - mean) / std as float32, of the same shape; the last axis is the channels."""
        frame = np.ascontiguousarray(frame, np.uint8)
        out = np.empty(frame.shape, np.float32)
        buffers = ffi.from_buffer("uint8_t[]", frame), ffi.from_buffer("float[]", out)
        lib.ln_normalize(self._record(), buffers[0], frame.size, buffers[1])
        return out

    def _record(self):
        record = ffi.new("ln_preprocessing *")
        record.resize, record.fit, record.color = RESIZE[self.resize], FIT[self.fit], COLOR[self.color]
        record.invert, record.pad = INVERT[self.invert], self.pad
        for values, place in ((self.mean, record.mean), (self.std, record.std)):
            place[0:3] = (values * 3)[:3]
        return record


def from_record(record) -> Preprocessing | None:
    """What an opened model says; None when its input is no picture."""
    if record.color == lib.LN_COLOR_NONE:
        return None
    channels = 1 if record.color == lib.LN_COLOR_GRAY else 3
    return Preprocessing(
        resize=_word(RESIZE, record.resize),
        fit=_word(FIT, record.fit),
        color=_word(COLOR, record.color),
        invert=_word(INVERT, record.invert),
        pad=record.pad,
        mean=tuple(record.mean[0:channels]),
        std=tuple(record.std[0:channels]),
    )


def _word(words: dict[str, int], code: int) -> str:
    return next(word for word, value in words.items() if value == code)


def as_pixels(pixels: np.ndarray, layout: str | None) -> tuple[np.ndarray, int]:
    """Contiguous (H, W, C) bytes and the layout's code, or one sentence that says what is wrong with them."""
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        what = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ImageError(f"A picture is a uint8 array (height, width, channels), not {what}.")
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    channels = pixels.shape[2]
    if layout is None and 1 <= channels <= 4:
        layout = DEFAULT_LAYOUTS[channels - 1]
    if layout is not None and layout not in LAYOUTS:
        raise ImageError(f"There is no layout {layout!r}; use one of {', '.join(LAYOUTS)}.")
    if layout is None or LAYOUTS[layout][1] != channels:
        wanted = f"layout {layout!r} has {LAYOUTS[layout][1]}" if layout else "a picture has 1 to 4"
        raise ImageError(f"The picture has {channels} channels (its shape is {pixels.shape}), but {wanted}.")
    if not (1 <= pixels.shape[0] <= 65535 and 1 <= pixels.shape[1] <= 65535):
        raise ImageError(f"The picture has shape {pixels.shape}; expected 1 to 65535 rows and columns.")
    return np.ascontiguousarray(pixels), LAYOUTS[layout][0]


def check(status: int) -> None:
    """The error gate for calls that leave no more to explain than their status."""
    if status != lib.LN_OK:
        text = ffi.string(lib.ln_status_text(status)).decode()
        raise ModelError(f"{text[:1].upper()}{text[1:]}.", status)
