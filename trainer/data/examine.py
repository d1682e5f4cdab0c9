"""What preflight learns of one picture file: whether the device could read it, its size, its oddities, its likeness.

A file is read once. Kind, size and completeness come from its header, before any decoder sees it, so a small file that
unfolds to gigabytes is refused here. Large JPEGs are decoded at a fraction of their size, which reads all of the file
all the same.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ODDITIES = ("cmyk", "deep", "alpha", "rotated", "damaged")
LARGE = 1 << 20  # pixels from which a JPEG is decoded at a fraction of its size
ENOUGH = 128  # pixels a side that a likeness is made of
TILE = 16  # pixels a side of the thumbnail
MOST_BYTES = 512 << 20  # a larger file is no photo


@dataclass(frozen=True)
class Record:
    """`error` is a sentence without its subject, empty where the picture can be read; the rest is then of use.

    likeness: 64 bits, close for pictures that look the same; thumbnail: TILE x TILE grey bytes, both in hex."""

    size: int  # of the file, in bytes
    time: int  # of its last change, in ns
    content: str  # of SHA-256, 32 hex digits
    error: str = ""
    kind: str = ""
    width: int = 0
    height: int = 0
    channels: int = 0
    odd: tuple[str, ...] = ()  # of ODDITIES
    likeness: str = ""
    thumbnail: str = ""


class Job:
    """For workers.py: path -> Record as a dict."""

    def __init__(self, _: Any) -> None:
        self.messages = Messages()

    def __call__(self, path: str) -> dict[str, Any]:
        return asdict(examine(path, self.messages))

    def close(self) -> None:
        self.messages.close()


def examine(path: str | Path, messages: Messages | None = None) -> Record:
    """Everything there is to know of one file. It never raises: what is wrong stands in `error`."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            data = file.read(MOST_BYTES + 1)
    except OSError as fault:
        return Record(0, 0, "", f"cannot be read ({fault.strerror or fault})")
    content = hashlib.sha256(data).hexdigest()[:32]
    record = Record(about.st_size, about.st_mtime_ns, content)
    if len(data) > MOST_BYTES:
        return Record(**asdict(record) | {"error": f"is larger than {MOST_BYTES >> 20} MiB"})
    return Record(**asdict(record) | _look(data, messages))


def _look(data: bytes, messages: Messages | None) -> dict[str, Any]:
    from litenet.pyruntime import image
    from litenet.pyruntime.errors import ImageError

    if messages is not None:
        messages.new()
    try:
        header = image.inspect(data, "#")
        pixels, layout = _pixels(data, header)
    except ImageError as error:
        return {"error": str(error).removeprefix("# ").rstrip(".")}
    except MemoryError:
        return {"error": "needs more memory than there is"}
    said = header.kind == "JPEG" and messages is not None and messages.new()  # libpng warns of harmless things
    found = {
        "cmyk": header.kind == "JPEG" and header.channels == 4,
        "deep": header.depth > 8 or (header.white or 255) > 255,
        "alpha": layout in ("gray_alpha", "bgra") and bool((pixels[..., -1] < 255).any()),
        "rotated": header.orientation != 1,
        "damaged": said,
    }
    turned = header.orientation >= 5
    width, height = (header.height, header.width) if turned else (header.width, header.height)
    grey = _grey(pixels)
    return {
        "kind": header.kind, "width": width, "height": height,
        "channels": 1 if layout.startswith("gray") else 3,
        "odd": tuple(word for word, so in found.items() if so),
        "likeness": likeness(grey), "thumbnail": _shrunk(grey, TILE, TILE).tobytes().hex(),
    }  # fmt: skip


def _pixels(data: bytes, header: Any) -> tuple[np.ndarray, str]:
    """As image.decode gives them, or for a large JPEG a half, quarter or eighth of its size."""
    from litenet.pyruntime import image

    if header.kind != "JPEG" or header.width * header.height < LARGE:
        return image.decode(data, "#")
    shorter = min(header.width, header.height)
    return image.decode_reduced(data, "#", next((n for n in (8, 4, 2) if shorter >= n * ENOUGH), 1))


def _grey(pixels: np.ndarray) -> np.ndarray:
    """(H, W) bytes; transparent pixels are white."""
    import cv2

    C = pixels.shape[-1]
    if C == 4:
        grey = cv2.cvtColor(pixels, cv2.COLOR_BGRA2GRAY)
    else:
        grey = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY) if C == 3 else np.ascontiguousarray(pixels[..., 0])
    if C in (2, 4):
        alpha = pixels[..., -1].astype(np.uint16)
        grey = ((grey * alpha + 255 * (255 - alpha)) // 255).astype(np.uint8)
    return grey


def _shrunk(grey: np.ndarray, width: int, height: int) -> np.ndarray:
    import cv2

    return cv2.resize(grey, (width, height), interpolation=cv2.INTER_AREA)


def likeness(grey: np.ndarray) -> str:
    """Whether each of 8 x 8 fields is brighter than the one to its right: the difference hash, 16 hex digits."""
    small = _shrunk(grey, 9, 8).astype(np.int16)
    return np.packbits(small[:, 1:] < small[:, :-1]).tobytes().hex()


class Messages:
    """What decoders print of damage inside a file goes to file descriptor 2, past Python. It is caught from here on."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process, or until close)
        self.seen = 0
        try:
            self.saved: int | None = os.dup(2)
        except OSError:  # there is none
            self.saved = None
            return
        os.dup2(self.file.fileno(), 2)

    def new(self) -> bool:
        """Whether something was printed since the last call."""
        if self.saved is None:
            return False
        end = os.lseek(self.file.fileno(), 0, os.SEEK_END)
        more, self.seen = end > self.seen, end
        return more

    def close(self) -> None:
        if self.saved is not None:
            os.dup2(self.saved, 2)
            os.close(self.saved)
        self.file.close()
