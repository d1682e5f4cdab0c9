"""Folders of photos as a data set: looked at, split, and decoded to what the net sees.

    splits = open_photos(Path("photos/"), PhotoOptions(), Frame((96, 96, 3), {}))

Photos of one object, taken one after the other, must not stand on both sides of a split, or the test measures memory.
Without a pattern this is told from the numbers in file names: neighbours go together in short ranges.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import rng
from ..errors import UserError
from .dataset import Dataset, Splits, split
from .frames import frames
from .photo_list import Finding, Listing, Photo, natural, number, scan
from .pictures import rules
from .preflight import Preflight, preflight

LONGEST = 10  # photos in one range of file-name numbers
RANGES = 30  # ranges a class has at least, if it has as many photos
NUMBER = re.compile(r"(\d+)(?!.*\d)")  # the last number in a name
TEST_STREAM = rng.SPLIT << 8  # of random numbers: the test part is drawn by others than the validation part

Progress = Callable[[str, int, int], None]  # what is done, how many, of how many
Report = Callable[[Preflight], None]


@dataclass(frozen=True)
class PhotoOptions:
    """group: a regular expression; photos whose names (below the source) give the same text, or the same first group of
    it, stay together. test_split: the share that is kept for the test where the source has none. cache: where frames
    are kept. workers: processes, 0: one a processor."""

    group: str | None = None
    test_split: float = 0.1
    seed: int = 0
    cache: str | Path | None = None
    workers: int = 0

    def lasting(self) -> dict[str, Any]:
        """What decides the split, and where the frames are, for a checkpoint."""
        cache = None if self.cache is None else str(Path(self.cache).resolve())
        return {"group": self.group, "test_split": self.test_split, "seed": self.seed, "cache": cache}


@dataclass(frozen=True)
class Frame:
    """What the net takes: its input (H, W, C), or (values,) for the pictures' own size, None: their own size and
    channels; the blueprint's words of preprocessing; and its labels, whose order then counts."""

    shape: tuple[int, ...] | None = None
    wishes: dict[str, Any] | None = None
    labels: tuple[str, ...] | None = None


def look(
    source: Path, options: PhotoOptions, fresh: bool = False, progress: Progress | None = None
) -> tuple[Preflight, np.ndarray]:
    """The preflight of a source, and the part of each photo in it: "train", "validation" or "test"."""
    listing = scan(source)
    index = _home(options) / f"{_owner(source)}.json"
    said = None if progress is None else lambda done, of: progress("looking at photos", done, of)
    by_name = _by_pattern(options.group) if options.group else _by_numbers
    found = preflight(listing, index, by_name, fresh, options.workers, said)
    return found, parts_of(found, options)


def parts_of(found: Preflight, options: PhotoOptions) -> np.ndarray:
    """Given parts as they are; else a share of each class for the test, chosen by the seed, groups kept whole."""
    if found.listing.parted:
        return np.array([photo.part for photo in found.photos])
    parts = np.full(len(found.photos), "train", "<U10")
    if options.test_split > 0:
        y = _numbers_of(found.photos, found.listing.labels)
        numbered = Dataset(np.arange(len(y), dtype=np.float32)[:, None], y, group=found.groups)
        _, test = split(numbered, options.test_split, options.seed, TEST_STREAM)
        parts[test.x[:, 0].astype(int)] = "test"
    return parts


def open_photos(
    source: Path,
    options: PhotoOptions,
    frame: Frame,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Splits:
    """The photos as bytes of the net's input size, mapped from the cache. report: told what was found, before photos
    are decoded."""
    found, parts = look(source, options, progress=progress)
    if report is not None:
        report(found)
    labels = _labels(source, found.listing, frame.labels)
    H, W, C = _frame_shape(source, found, frame)
    words = rules(frame.wishes or {}, C)
    _need_extension()
    said = None if progress is None else lambda done, of: progress("decoding photos", done, of)
    photos = [(photo.path, record.content) for photo, record in zip(found.photos, found.records, strict=True)]
    x = frames(_home(options), _owner(source), photos, (H, W, C), words, options.workers, said)
    found = replace(found, frames=f"{H} x {W} x {C} bytes each, {x.nbytes:,} in {x.filename}")
    whole = Dataset(
        x, _numbers_of(found.photos, labels), labels, source.stem or "photos", str(source), group=found.groups,
        files=np.array([photo.name for photo in found.photos]),
    )  # fmt: skip
    made = {
        part: whole.take(np.flatnonzero(parts == part)) for part in ("train", "validation", "test") if part in parts
    }
    if "train" not in made:
        raise UserError(f"{source}: no photo is left to train on.\n  The report of `edge-train check-data` tells why.")
    return Splits(made["train"], made.get("test"), made.get("validation"), found)


def same_size(found: Preflight) -> tuple[int, int, int] | None:
    """(H, W, C) of all photos, None where they differ in size."""
    sizes = {(record.height, record.width) for record in found.records}
    return (*sizes.pop(), max(record.channels for record in found.records)) if len(sizes) == 1 else None


def _home(options: PhotoOptions) -> Path:
    from .known import default_cache

    return Path(options.cache or default_cache() / "photos")


def _owner(source: Path) -> str:
    return hashlib.sha256(str(source.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _numbers_of(photos: Sequence[Photo], labels: Sequence[str]) -> np.ndarray:
    at = {label: k for k, label in enumerate(labels)}
    return np.array([at[photo.label] for photo in photos], np.int64)


def _labels(source: Path, listing: Listing, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The blueprint's order of classes where it has one, which must then name them all."""
    if wanted is None:
        return listing.labels
    strange = [label for label in listing.labels if label not in wanted]
    if strange:
        raise UserError(
            f'{source}: the class "{strange[0]}" is not among the labels of the blueprint ({", ".join(wanted)}).\n'
            "  Rename the folder, or correct or remove the blueprint's labels."
        )
    return wanted


def _frame_shape(source: Path, found: Preflight, frame: Frame) -> tuple[int, int, int]:
    if frame.shape is not None and len(frame.shape) == 3:
        H, W, C = frame.shape
        if C not in (1, 3):
            raise UserError(
                f"{source}: the net takes {C} channels, but photos have 1 (grey) or 3 (colour).\n"
                f'  Write "input_shape": [3, {H}, {W}].'
            )
        return H, W, C
    own = same_size(found)
    if own is None:
        raise UserError(
            f"{source}: the photos have different sizes, so the net's input must say to which they are brought.\n"
            '  Write "input_shape": [3, 96, 96], for example (for a loader, shape=(3, 96, 96)).'
        )
    H, W, C = own
    if frame.shape is not None and frame.shape[0] == H * W:
        C = 1
    return H, W, C


def _need_extension() -> None:
    try:
        import litenet.pyruntime.preprocess  # noqa: F401
    except ImportError as fault:
        raise UserError(
            f"Photos are fitted by the C code of the runtime, which is not built here ({fault}).\n"
            "  Run: python pyruntime/build_ffi.py"
        ) from None


# ---- which photos belong together


def _by_pattern(pattern: str) -> Callable[[Sequence[Photo]], tuple[list[int], list[Finding]]]:
    try:
        rule = re.compile(pattern)
    except re.error as fault:
        raise UserError(
            f"--group {pattern}: not a regular expression ({fault}).\n  Try '^[^_]*' for example."
        ) from None

    def groups(photos: Sequence[Photo]) -> tuple[list[int], list[Finding]]:
        numbers, out, alone = dict[str, int](), [], []
        for n, photo in enumerate(photos):
            match = rule.search(photo.name)
            if match is None:
                alone.append(photo.name)
            text = f"\0{n}" if match is None else next((part for part in match.groups() if part is not None), match[0])
            out.append(numbers.setdefault(text, len(numbers)))
        made = f"--group makes {len(numbers) - len(alone):,} groups"
        findings = [Finding("groups", made, "each stays on one side of a split")]
        if alone:
            found = f"{number(alone, 'name')} without a match of --group"
            findings.append(Finding("groups", found, "each is a group of its own", tuple(alone)))
        return out, findings

    return groups


def _by_numbers(photos: Sequence[Photo]) -> tuple[list[int], list[Finding]]:
    """Ranges of neighbours within a class and a series, which is what the names share before their last number."""
    series: dict[tuple[str, str, str], list[int]] = {}
    sizes: dict[str, int] = {}
    for n, photo in enumerate(photos):
        sizes[photo.label] = sizes.get(photo.label, 0) + 1
        folder, _, name = photo.name.rpartition("/")
        last = NUMBER.search(Path(name).stem)
        stem = f"{n}\0" if last is None else name[: last.start()]
        series.setdefault((photo.label, folder, stem), []).append(n)
    out, group, longest = [0] * len(photos), 0, 1
    for (label, _, _), members in series.items():
        length = min(LONGEST, max(1, sizes[label] // RANGES))
        longest = max(longest, min(length, len(members)))
        members.sort(key=lambda n: natural(photos[n].name))
        for at in range(0, len(members), length):
            for n in members[at : at + length]:
                out[n] = group
            group += 1
    if longest == 1 or any(photo.part == "validation" for photo in photos):
        return out, []
    found = f"neighbours by the number in their names, up to {longest} in a row, may show one object"
    return out, [Finding("groups", found, "each range stays on one side of a split; --group says it better")]


def summary(found: Preflight, splits: Splits) -> dict[str, Any]:
    """For a run folder: the report, and which photo is in which part."""
    sets = (("train", splits.train), ("validation", splits.validation), ("test", splits.test))
    parts = {name: [str(f) for f in ds.files] for name, ds in sets if ds is not None and ds.files is not None}
    return found.as_dict() | {"parts": parts}
