"""Picture files to bytes: decode(path or bytes) -> pixels uint8 (H, W, C) and what the channels mean.

Decoding is OpenCV's, after sniff.py has seen that the file is a picture, is all there and is not too large.
What OpenCV gets wrong or leaves out is done here: EXIF orientation in all formats, transparent grey in PNG,
and BMP files with channel masks. Of an animation the first picture is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from struct import unpack_from
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import sniff
from .errors import ImageError

if TYPE_CHECKING:
    from types import ModuleType

MAX_PIXELS = 64_000_000
MAX_SIDE = 65_535  # what ln_preprocess takes
MAX_FILE_BYTES = 512 << 20  # more than MAX_PIXELS of 16-bit RGBA
BAND = 64  # rows brought to 8 bits at a time: the numbers in between are four times as large


class Picture(NamedTuple):
    """pixels is uint8 (H, W, C); layout is "gray", "gray_alpha", "rgb", "rgba", "bgr" or "bgra"."""

    pixels: np.ndarray
    layout: str


def decode(source: str | os.PathLike[str] | bytes, name: str | None = None) -> Picture:
    """The picture in a file, or in bytes called `name` in errors, upright and with 8 bits a channel."""
    if isinstance(source, bytes):
        data, name = source, name or "picture"
    else:
        data, name = _read(Path(source)), name or str(source)
    header = inspect(data, name)
    with _named(name):
        return _decode(data, header)


def decode_reduced(data: bytes, name: str, factor: int) -> Picture:
    """The JPEG in these bytes at 1/1, 1/2, 1/4 or 1/8 of its size, upright: quick, and every byte of it is read."""
    header = inspect(data, name)
    with _named(name):
        return Picture(*_finish(_opencv(data, header, factor), header))


def inspect(data: bytes, name: str) -> sniff.Header:
    """What a picture says of itself. ImageError, with `name` as its subject, where decode would refuse it unseen."""
    with _named(name):
        header = sniff.read(data)
        _check(header)
    return header


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors of the functions here lack their subject."""
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name} {error}.") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ImageError(f"{path} does not exist; check the path of the picture.") from None
    except IsADirectoryError:
        raise ImageError(f"{path} is a folder; expected a picture file.") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read ({error.strerror}).") from None
    if len(data) > MAX_FILE_BYTES:
        raise ImageError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; expected a picture file.")
    return data


def _check(header: sniff.Header) -> None:
    kind, width, height = header.kind, header.width, header.height
    if width < 1 or height < 1:
        raise ImageError(f"is a {kind} of {width} x {height} pixels; expected at least one pixel")
    if width > MAX_SIDE or height > MAX_SIDE or width * height > MAX_PIXELS:
        raise ImageError(
            f"is a {kind} of {width} x {height} pixels; at most {MAX_PIXELS // 1_000_000} million pixels and "
            f"{MAX_SIDE} a side are read: scale it down first"
        )
    if not header.complete:
        raise ImageError(f"is a {kind} that ends too early; the file was cut short: copy it again")


def _decode(data: bytes, header: sniff.Header) -> Picture:
    pixels = _bmp_masks(data) if header.kind == "BMP" else None
    if pixels is None:
        pixels = _opencv(data, header)
    return Picture(*_finish(pixels, header))


def _finish(pixels: np.ndarray, header: sniff.Header) -> tuple[np.ndarray, str]:
    """What OpenCV gave, upright, with 8 bits a channel and with its transparency; and its layout."""
    alpha = None
    if header.gray_key is not None and pixels.ndim == 2:
        top = (1 << header.depth) - 1  # OpenCV spreads samples of fewer bits over 0..255
        key = (header.gray_key & top) * (65535 if pixels.dtype == np.uint16 else 255) // top
        alpha = np.where(pixels == key, np.uint8(0), np.uint8(255))
    white = header.white or (65535 if pixels.dtype == np.uint16 else 255)
    if white != 255:
        deep, pixels = pixels, np.empty(pixels.shape, np.uint8)
        for at in range(0, len(deep), BAND):
            band = np.minimum(deep[at : at + BAND], white).astype(np.uint32)
            pixels[at : at + BAND] = (band * 255 + white // 2) // white
        del deep
    if alpha is not None:
        pixels = np.dstack([pixels, alpha])
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    pixels = np.ascontiguousarray(_upright(pixels, header.orientation))
    return pixels, ("gray", "gray_alpha", "bgr", "bgra")[pixels.shape[2] - 1]


def _opencv(data: bytes, header: sniff.Header, factor: int = 1) -> np.ndarray:
    cv2 = _cv2()
    flags = cv2.IMREAD_UNCHANGED
    if header.kind == "JPEG":
        flags = cv2.IMREAD_ANYCOLOR | cv2.IMREAD_IGNORE_ORIENTATION
        if factor > 1:
            color = "GRAYSCALE" if header.channels == 1 else "COLOR"
            flags = getattr(cv2, f"IMREAD_REDUCED_{color}_{factor}") | cv2.IMREAD_IGNORE_ORIENTATION
    if header.kind == "BMP" and data[14] == 12:  # OS/2: "unchanged" takes its palette for grey
        flags = cv2.IMREAD_COLOR
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        pixels = None
    if pixels is None or pixels.dtype not in (np.uint8, np.uint16):
        reason = f"is damaged, or of a kind that OpenCV {cv2.__version__} cannot read"
        raise ImageError(f"is a {header.kind} that {reason}; try to save it as PNG")
    width, height = -(-header.width // factor), -(-header.height // factor)
    if pixels.shape[0] * pixels.shape[1] != width * height:
        raise ImageError(f"is a {header.kind} whose header and picture disagree about its size")
    return pixels


@cache
def _cv2() -> ModuleType:
    """OpenCV, loaded when first needed. A picture that fails is told once, by us, not by its log."""
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    import cv2

    return cv2


def _bmp_masks(data: bytes) -> np.ndarray | None:
    """A BMP of 16-bit words, or of 32-bit words with channel masks; None for all other BMPs.

    OpenCV reads unusual masks wrong, takes a missing alpha for fully transparent, and has no full white in 16 bits.
    """
    header_bytes = unpack_from("<I", data, 14)[0]
    if header_bytes < 40:
        return None
    offset, width, height = unpack_from("<I4xii", data, 10)
    bits, compression = unpack_from("<HI", data, 28)
    if (bits, compression) not in ((16, 0), (16, 3), (16, 6), (32, 3), (32, 6)):
        return None
    masks = [0x7C00, 0x3E0, 0x1F, 0]  # what 16 bits mean without masks
    if compression != 0:
        masks = list(unpack_from("<4I", data[54:70].ljust(16, b"\0")))
    if header_bytes < 56 and compression == 3:
        masks[3] = 0  # what stands there is not a mask
    row = (width * bits + 31) // 32 * 4
    words = np.frombuffer(data, np.uint8, row * abs(height), offset).reshape(abs(height), row)
    words = words.view("<u2" if bits == 16 else "<u4")[:, :width].astype(np.uint32)
    channels = []
    for mask in (masks[2], masks[1], masks[0], masks[3])[: 4 if masks[3] else 3]:
        low = (mask & -mask) or 1
        top = mask // low or 1
        if top >= 1 << 24:
            raise ImageError(f"is a BMP with a channel mask of {mask:#x}; expected at most 24 bits")
        channels.append((((words & np.uint32(mask)) // low * 255 + top // 2) // top).astype(np.uint8))
    pixels = np.dstack(channels)
    return pixels if height < 0 else pixels[::-1]


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Undo EXIF's orientation: 2 mirrored, 3 turned upside down, 4 both, 5 to 8 these of the transposed."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    flip_rows = orientation in (3, 4, 7, 8)
    flip_columns = orientation in (2, 3, 6, 7)
    return pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]
