"""IDX, the format of MNIST and its relatives, plain or gzipped.

Big-endian: two zero bytes, a type byte (8: unsigned bytes, the only one used for pictures and labels), the
number of dimensions, one u32 a dimension, then the values, last dimension fastest.
"""

from __future__ import annotations

import gzip
import re
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from ..errors import UserError
from .dataset import Dataset, Splits

TYPES = {
    0x08: "unsigned bytes",
    0x09: "signed bytes",
    0x0B: "int16",
    0x0C: "int32",
    0x0D: "float32",
    0x0E: "float64",
}
GZIP_RATIO = 1032  # deflate never packs more than this many bytes into one
NAME = re.compile(r"(?P<stem>.*)(?P<kind>images|labels)[-.]idx[13]([-.]ubyte)?(\.gz)?", re.IGNORECASE)
TEST_STEMS = ("t10k-", "test-")


def read_idx(path: Path) -> np.ndarray:
    """The array in one file, uint8, any shape of 1 to 4 dimensions."""
    packed = path.stat().st_size
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if zipped:
                with gzip.GzipFile(fileobj=raw) as stream:
                    return _read(path, stream, packed * GZIP_RATIO)
            return _read(path, raw, packed)
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise UserError(
            f"{path}: damaged gzip file of {packed} bytes ({fault}); delete it and fetch it again"
        ) from fault


def read_folder(folder: Path, name: str = "", labels: tuple[str, ...] | None = None) -> Splits:
    """The pairs of a folder: train-images-idx3-ubyte with train-labels-idx1-ubyte, t10k-... likewise (each
    with or without .gz), or one pair of any other name, which is then all for training."""
    images = _files(folder, "images")
    if not images:
        raise UserError(
            f"{folder}: no IDX pictures here; expected train-images-idx3-ubyte and train-labels-idx1-ubyte "
            "(or the same with .gz)"
        )
    tests = [stem for stem in images if stem in TEST_STEMS]
    trains = ["train-"] if "train-" in images else [stem for stem in images if stem not in TEST_STEMS]
    if len(trains) != 1 or len(tests) > 1:
        raise UserError(
            f"{folder}: found {', '.join(path.name for path in images.values())}; expected one training pair "
            "(train-images-idx3-ubyte with its labels) and at most one test pair (t10k-images-idx3-ubyte)"
        )
    train, *test = (_read_pair(images[stem], name or folder.name, labels) for stem in trains + tests)
    return Splits(train, test[0] if test else None)


def read_single(images: Path, name: str = "", labels: tuple[str, ...] | None = None) -> Splits:
    """One file of pictures, with the labels file of the same stem beside it."""
    match = NAME.fullmatch(images.name)
    if match is None or match["kind"].lower() != "images":
        raise UserError(
            f"{images}: give the pictures of a pair, named such as train-images-idx3-ubyte.gz, or the folder "
            "that holds the pair"
        )
    return Splits(_read_pair(images, name or match["stem"].strip("-._") or images.parent.name, labels))


def present(folder: Path) -> bool:
    """Whether the folder holds a training and a test pair, complete."""
    stems = set(_files(folder, "images")) & set(_files(folder, "labels"))
    return "train-" in stems and any(stem in stems for stem in TEST_STEMS)


def any_present(folder: Path) -> bool:
    """Whether there is any file of IDX pictures."""
    return bool(_files(folder, "images"))


def _read_pair(images: Path, name: str, labels: tuple[str, ...] | None) -> Dataset:
    match = NAME.fullmatch(images.name)
    stem = match["stem"] if match else ""
    answers = _files(images.parent, "labels").get(stem.lower())
    if answers is None:
        raise UserError(f"{images}: its labels are missing; put {stem}labels-idx1-ubyte (or .gz) beside it")
    x, y = read_idx(images), read_idx(answers)
    if x.ndim not in (3, 4):
        raise UserError(f"{images}: has {x.ndim} dimensions; pictures have 3 (count, height, width)")
    if y.ndim != 1:
        raise UserError(f"{answers}: has {y.ndim} dimensions; labels have 1 (count)")
    if len(x) != len(y):
        raise UserError(
            f"{images}: {len(x)} pictures, but {answers.name} has {len(y)} labels; the two do not belong "
            "together"
        )
    return Dataset(x if x.ndim == 4 else x[..., None], y.astype(np.int64), labels, name, str(images))


def _files(folder: Path, kind: str) -> dict[str, Path]:
    """stem -> file, for kind "images" or "labels"; a plain file goes before its .gz."""
    found = {}
    for path in sorted(folder.iterdir(), reverse=True):  # a.gz comes before a, which then replaces it
        match = NAME.fullmatch(path.name)
        if match and path.is_file() and match["kind"].lower() == kind:
            found[match["stem"].lower()] = path
    return dict(sorted(found.items()))


def _read(path: Path, stream: BufferedIOBase, most: int) -> np.ndarray:
    """`most` bounds the bytes the file can hold, so that a broken header cannot ask for all memory."""
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise UserError(
            f"{path}: not an IDX file: it starts with {head!r}, expected two zero bytes and a type byte"
        )
    if head[2] != 0x08:
        raise UserError(
            f"{path}: holds {TYPES[head[2]]} (type 0x{head[2]:02X}); pictures and labels are unsigned bytes "
            "(0x08)"
        )
    dims = head[3]
    if not 1 <= dims <= 4:
        raise UserError(f"{path}: says it has {dims} dimensions; expected 1 (labels) or 3 (pictures)")
    sizes = stream.read(4 * dims)
    if len(sizes) < 4 * dims:
        raise UserError(f"{path}: ends inside its header, after {4 + len(sizes)} of {4 + 4 * dims} bytes")
    shape = tuple(int(n) for n in np.frombuffer(sizes, ">u4"))
    count = 1
    for n in shape:
        count *= n
    if count == 0:
        raise UserError(f"{path}: is empty, its header says {_times(shape)} values")
    if count > most:
        raise UserError(
            f"{path}: its header says {_times(shape)} values, more than a file of this size can hold; the "
            "header is damaged, fetch the file again"
        )
    values = np.empty(count, np.uint8)
    got = 0
    while got < count:
        step = stream.readinto(values.data[got : got + (1 << 24)])
        if not step:
            raise UserError(
                f"{path}: ends after {got} values; its header says {_times(shape)} = {count}; fetch the file "
                "again"
            )
        got += step
    if stream.read(1):
        raise UserError(
            f"{path}: goes on after the {_times(shape)} values its header announces; the header is damaged"
        )
    return values.reshape(shape)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in shape)
