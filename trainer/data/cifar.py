"""CIFAR-10, as binary batches or as the Python pickles, in a folder or still in its .tar.gz.

A binary record is one label byte and 3,072 bytes of pixels: 32 x 32 red, then green, then blue. The pickles
hold the same pixels; they are opened by pickles.py, which runs nothing. Planes become (H, W, C) once, here.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from ..errors import UserError
from .dataset import Dataset, Splits
from .pickles import read_batch

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCH = re.compile(r"(data_batch_[1-5]|test_batch)(\.bin)?")
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
TAR = (".tar.gz", ".tgz", ".tar")
RECORD = 1 + 3 * 32 * 32
LARGEST = 64 << 20  # bytes of one batch; the real ones have 31 million

Batch = tuple[np.ndarray, np.ndarray]  # planes (N,3,32,32) and labels (N,)


def locate(folder: Path) -> Path | None:
    """Where a folder keeps the set: itself, a subfolder of the usual name, or an archive; None if nowhere."""
    for place in (folder, *(folder / name for name in FOLDERS)):
        if place.is_dir() and any(BATCH.fullmatch(path.name) for path in place.iterdir()):
            return place
    return next((folder / name for name in ARCHIVES if (folder / name).is_file()), None)


def read_cifar(path: Path, name: str = "cifar10", labels: tuple[str, ...] = LABELS) -> Splits:
    """A folder or an archive with all six batches, or one batch, which is then all for training."""
    if path.is_file() and not path.name.lower().endswith(TAR):
        return Splits(_join(str(path), [_batch(str(path), path.name, _bytes(path))], name, labels))
    if path.is_dir():
        batches = {}
        for file in sorted(path.iterdir(), reverse=True):  # x.bin comes before x and is kept
            if BATCH.fullmatch(file.name) and _stem(file.name) not in batches:
                batches[_stem(file.name)] = _batch(str(file), file.name, _bytes(file))
    else:
        batches = dict(_unpack(path))
    missing = [stem for stem in (*TRAIN, "test_batch") if stem not in batches]
    if missing:
        raise UserError(
            f"{path}: {', '.join(missing)} not found; expected data_batch_1 to data_batch_5 and test_batch, "
            "all with .bin or all without"
        )
    train = _join(str(path), [batches[stem] for stem in TRAIN], name, labels)
    return Splits(train, _join(str(path), [batches["test_batch"]], name, labels))


def _stem(name: str) -> str:
    return name.removesuffix(".bin")


def _bytes(path: Path) -> bytes:
    _check_size(str(path), path.stat().st_size)
    return path.read_bytes()


def _check_size(where: str, size: int) -> None:
    if size > LARGEST:
        raise UserError(f"{where}: {size} bytes; a batch of CIFAR-10 has at most {LARGEST}")


def _unpack(path: Path) -> Iterator[tuple[str, Batch]]:
    """The batches of an archive, read in place: nothing is written to disk, other members are passed over."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                base = PurePosixPath(member.name).name
                stream = archive.extractfile(member) if member.isreg() and BATCH.fullmatch(base) else None
                if stream is not None:
                    where = f"{path} ({member.name})"
                    _check_size(where, member.size)
                    yield _stem(base), _batch(where, base, stream.read())
    except (tarfile.TarError, EOFError, OSError, zlib.error) as fault:
        raise UserError(
            f"{path}: not a readable archive of {path.stat().st_size} bytes ({fault}); fetch it again"
        ) from fault


def _batch(where: str, name: str, data: bytes) -> Batch:
    """One batch, binary or pickled."""
    if not name.endswith(".bin"):
        planes, labels = read_batch(where, data)
        if planes.ndim != 2 or planes.shape[1] != RECORD - 1 or len(planes) != len(labels):
            raise UserError(
                f"{where}: data of shape {planes.shape} and {len(labels)} labels; expected (N, {RECORD - 1}) "
                "and N"
            )
    else:
        if not data or len(data) % RECORD:
            raise UserError(
                f"{where}: {len(data)} bytes; expected a multiple of {RECORD} (a label and 32 x 32 x 3 "
                "pixels)"
            )
        records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
        planes, labels = records[:, 1:], records[:, 0]
    return planes.reshape(-1, 3, 32, 32), labels


def _join(where: str, parts: list[Batch], name: str, labels: tuple[str, ...]) -> Dataset:
    count = sum(len(y) for _, y in parts)
    x, y, at = np.empty((count, 32, 32, 3), np.uint8), np.empty(count, np.int64), 0
    for planes, answers in parts:
        x[at : at + len(answers)] = planes.transpose(0, 2, 3, 1)
        y[at : at + len(answers)] = answers
        at += len(answers)
    return Dataset(x, y, labels, name, where)
