"""Preflight: photos are looked at before any time is spent on them, and what is wrong is said with what is done.

    found = preflight(scan(Path("photos/")))
    print("\n".join(found.lines()))

Every file is read and decoded once (examine.py), in parallel. What is learned is kept in the cache beside size and time
of each file, so that the next run need not look at files that have not changed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from . import workers
from .duplicates import Groups, exact, near
from .examine import Record
from .photo_list import Finding, Listing, Photo, number

UNEVEN = 3  # a class with so many times fewer pictures than the largest is named
FEW = 20  # pictures of a class below which that is named
TINY = 16  # pixels a side
SIDE = {"": 0, "train": 0, "validation": 1, "test": 2}  # the order in which copies keep their place, last first
ODD = {
    "cmyk": ("printing inks (CMYK)", "turned into RGB by formula, so colours may differ from a print"),
    "deep": ("more than 8 bits a channel", "scaled to 8 bits, as on the device"),
    "alpha": ("transparent pixels", "laid on white, as on the device"),
    "rotated": ("a turn in EXIF", "turned upright, as on the device"),
    "damaged": ("damage inside that the decoder gets over", "kept; look at them"),
}
BAR = 30  # characters of the longest bar


@dataclass(frozen=True)
class Preflight:
    """What is used: photos with their records, and a group number each that no split may divide. left_out: how many
    are not."""

    listing: Listing
    photos: tuple[Photo, ...]
    records: tuple[Record, ...]
    groups: np.ndarray
    findings: tuple[Finding, ...]
    seconds: float
    looked_at: int  # files that were read; of the others the cache knew enough
    frames: str = ""  # where what the net sees of them is kept, and its size

    @property
    def left_out(self) -> int:
        return len(self.listing.photos) - len(self.photos)

    def counts(self) -> dict[str, Counter[str]]:
        """How many of each class: {part: {label: count}}."""
        out: dict[str, Counter[str]] = {}
        for photo in self.photos:
            out.setdefault(photo.part, Counter())[photo.label] += 1
        return out

    def lines(self) -> list[str]:
        """The report as text."""
        n, labels = len(self.photos), self.listing.labels
        left = f", {self.left_out:,} left out" if self.left_out else ""
        head = f"{n:,} pictures of {len(labels)} classes{left}; looked at in {self.seconds:.1f} s"
        widths, heights = [r.width for r in self.records], [r.height for r in self.records]
        size = f"{widths[0]} x {heights[0]} pixels" if len({*widths}) == len({*heights}) == 1 else (
            f"{min(widths)} x {min(heights)} to {max(widths)} x {max(heights)} pixels"
        )  # fmt: skip
        counts = self.counts()
        total = sum(counts.values(), Counter[str]())
        most, wide = max(total.values()), max(len(_plain(label)) for label in labels)
        rows = [head, f"size: {size}"]
        for label in labels:
            parts = ", ".join(f"{part} {counts[part][label]:,}" for part in SIDE if part and part in counts)
            bar = "#" * max(1, round(BAR * total[label] / most)) if total[label] else ""
            rows.append(f"  {_plain(label):<{wide}}  {total[label]:>6,}  {bar}{f'  ({parts})' if parts else ''}")
        return rows + ([f"- {_plain(finding.line())}" for finding in self.findings] or ["nothing to remark"])

    def as_dict(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "pictures": len(self.photos), "left_out": self.left_out, "labels": list(self.listing.labels),
            "counts": {part or "all": dict(counts) for part, counts in self.counts().items()},
            "findings": [asdict(finding) for finding in self.findings], "seconds": round(self.seconds, 3),
        }  # fmt: skip


def preflight(
    listing: Listing,
    index: Path | None = None,
    joined: Callable[[Sequence[Photo]], tuple[Sequence[int], list[Finding]]] | None = None,
    fresh: bool = False,
    workers_wanted: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Preflight:
    """Look at all photos. index: where what is learned is kept; fresh: without trusting it. joined: the group of each
    photo, by its name; pictures that are there twice are put together on top of that."""
    started = time.perf_counter()
    records, looked_at = _records(listing, index, fresh, workers_wanted, progress)
    findings = list(listing.findings)
    good = [n for n, record in enumerate(records) if not record.error]
    findings += _unreadable(listing, records)
    photos, kept = [listing.photos[n] for n in good], [records[n] for n in good]
    twice = exact(kept)
    out, more = _copies(photos, twice)
    findings += more
    photos = [photo for n, photo in enumerate(photos) if n not in out]
    kept = [record for n, record in enumerate(kept) if n not in out]
    labels = tuple(label for label in listing.labels if any(photo.label == label for photo in photos))
    if len(labels) < 2:
        raise UserError(
            f"{listing.root}: {number(labels, 'class', 'classes')} with readable pictures"
            f"{_first_of(findings)}; at least two are needed.\n  Make a folder for each class, with its pictures in it."
        )
    pairs = near(kept) if index is None else _kept_pairs(kept, index.with_suffix(".near"))
    groups, more = _grouped(photos, kept, pairs, joined, listing.parted)
    findings += more + _oddities(photos, kept) + _balance(photos, labels)
    used = replace(listing, labels=labels)
    seconds = time.perf_counter() - started
    return Preflight(used, tuple(photos), tuple(kept), groups, tuple(findings), seconds, looked_at)


def _plain(text: str) -> str:
    """What any terminal can show."""
    return text.encode("utf-8", "backslashreplace").decode()


def _first_of(findings: list[Finding]) -> str:
    return f" ({_plain(findings[0].line())})" if findings else ""


# ---- looking, and remembering


def _records(
    listing: Listing, index: Path | None, fresh: bool, workers_wanted: int, progress: Callable[[int, int], None] | None
) -> tuple[list[Record], int]:
    known = _read_index(index) if index is not None and not fresh else {}
    records: list[Record | None] = []
    for photo in listing.photos:
        record = known.get(photo.name)
        with suppress(OSError):
            about = photo.path.stat()
            records.append(
                record if record and (record.size, record.time) == (about.st_size, about.st_mtime_ns) else None
            )
            continue
        records.append(None)
    new = [n for n, record in enumerate(records) if record is None]
    tasks = [str(listing.photos[n].path) for n in new]
    for done, (place, answer) in enumerate(workers.run("litenet.trainer.data.examine", None, tasks, workers_wanted), 1):
        records[new[place]] = _record({"size": 0, "time": 0, "content": ""} | answer)
        if progress is not None:
            progress(done, len(new))
    found = [record for record in records if record is not None]
    if index is not None and (new or len(known) != len(found)):
        _write_index(index, listing, found)
    return found, len(new)


def _record(values: dict[str, Any]) -> Record:
    return Record(**values | {"odd": tuple(values.get("odd", ()))})


def _read_index(path: Path) -> dict[str, Record]:
    """Nothing where there is none, or one of another version."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        stored = json.loads(path.read_text(encoding="ascii"))
        if stored["fields"] == [f.name for f in fields(Record)]:
            return {
                name: _record(dict(zip(stored["fields"], row, strict=True))) for name, row in stored["rows"].items()
            }
    return {}


def _write_index(path: Path, listing: Listing, records: list[Record]) -> None:
    rows = {
        photo.name: list(asdict(record).values())
        for photo, record in zip(listing.photos, records, strict=True)
        if record.content
    }
    _write(path, {"fields": [f.name for f in fields(Record)], "rows": rows})


def _kept_pairs(records: list[Record], path: Path) -> list[tuple[int, int]]:
    """near(records), which takes seconds for tens of thousands, as it was found for the same contents before."""
    contents = hashlib.sha256("".join(record.content for record in records).encode()).hexdigest()
    with suppress(OSError, ValueError, TypeError, KeyError):
        stored = json.loads(path.read_text(encoding="ascii"))
        if stored["contents"] == contents:
            return [(i, j) for i, j in stored["pairs"]]
    pairs = near(records)
    _write(path, {"contents": contents, "pairs": pairs})
    return pairs


def _write(path: Path, values: dict[str, Any]) -> None:
    """As JSON, whole or not at all."""
    from ..checkpoint import write_atomically

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(
            f"{path.parent}: the cache cannot be made ({fault.strerror}).\n  Name another folder with --cache."
        ) from None
    write_atomically(path, lambda file: file.write(json.dumps(values).encode("ascii")))


# ---- what is remarked


def _unreadable(listing: Listing, records: list[Record]) -> list[Finding]:
    """One finding for each kind of fault."""
    kinds: dict[str, list[str]] = {}
    for photo, record in zip(listing.photos, records, strict=True):
        if record.error:
            kinds.setdefault(_kind(record.error), []).append(photo.name)
    return [
        Finding("unreadable", f"{number(names, 'file')} {kind}", "left out", tuple(names))
        for kind, names in sorted(kinds.items())
    ]


FAULTS = (
    ("ends too early", "cut short"), ("ends inside", "cut short"), ("is empty", "empty"),
    ("at most", "too large to be decoded safely"), ("crash or hang", "on which the decoder crashes or hangs"),
    ("convert it", "of a kind that is not read: convert to PNG or JPEG"), ("cannot be read", "the disk does not give"),
    ("larger than", "too large to be decoded safely"),
    ("unknown format", "with a picture's name and no picture inside"),
    ("is a text file", "with a picture's name and no picture inside"),
    ("HTML", "with a picture's name and no picture inside"),
    ("git-lfs", "that only point to pictures: fetch them with `git lfs pull`"), )  # fmt: skip


def _kind(error: str) -> str:
    return next((word for sign, word in FAULTS if sign in error), "damaged")


def _copies(photos: list[Photo], twice: list[list[int]]) -> tuple[set[int], list[Finding]]:
    """Equal files: with two labels none is used; across a given split the one in test, else in validation, is kept."""
    out, torn, leaked, same = set[int](), list[str](), list[str](), list[str]()
    for places in twice:
        if len({photos[n].label for n in places}) > 1:
            out |= set(places)
            torn += [photos[n].name for n in places]
            continue
        last = max(SIDE[photos[n].part] for n in places)
        gone = [n for n in places if SIDE[photos[n].part] < last]
        out |= set(gone)
        leaked += [photos[n].name for n in gone]
        same += [photos[n].name for n in places[1:] if n not in gone]
    findings = []
    if torn:
        findings.append(
            Finding("labels", f"{number(torn, 'file')} equal to one of another class", "left out", tuple(torn))
        )
    if leaked:
        done = "left out of training, or the test would be too easy"
        found = f"{number(leaked, 'file')} for training with a copy in the test or validation part"
        findings.append(Finding("duplicates", found, done, tuple(leaked)))
    if same:
        found = f"{number(same, 'copy', 'copies')} of files of the same part"
        findings.append(Finding("duplicates", found, "kept, and on one side of a split", tuple(same)))
    return out, findings


def _grouped(
    photos: list[Photo],
    records: list[Record],
    pairs: list[tuple[int, int]],
    joined: Callable[[Sequence[Photo]], tuple[Sequence[int], list[Finding]]] | None,
    parted: bool,
) -> tuple[np.ndarray, list[Finding]]:
    first, findings = joined(photos) if joined is not None else (range(len(photos)), [])
    groups, sizes = Groups(list(first)), Counter(photo.label for photo in photos)
    for places in exact(records):
        for place in places[1:]:
            groups.join(places[0], place)
    across = [(i, j) for i, j in pairs if photos[i].part != photos[j].part]
    for i, j in pairs:
        groups.join(i, j, max(4, sizes[photos[i].label] // 10))
    if across:
        names = tuple(dict.fromkeys(photos[k].name for pair in across for k in pair))
        found = f"{number(across, 'look-alike pair')} across the given split"
        findings.append(Finding("near", found, "kept, since the split is yours; the test may be too easy", names))
    if inside := [(i, j) for i, j in pairs if photos[i].part == photos[j].part]:
        names = tuple(dict.fromkeys(photos[k].name for pair in inside for k in pair))
        done = "kept" if parted else "kept, and on one side of the split"
        findings.append(Finding("near", number(inside, "look-alike pair"), done, names))
    return groups.numbers(), findings


def _oddities(photos: list[Photo], records: list[Record]) -> list[Finding]:
    findings = []
    for word, (found, done) in ODD.items():
        names = tuple(photo.name for photo, record in zip(photos, records, strict=True) if word in record.odd)
        if names:
            findings.append(Finding(word, f"{number(names, 'picture')} with {found}", done, names))
    small = tuple(p.name for p, r in zip(photos, records, strict=True) if min(r.width, r.height) < TINY)
    if small:
        findings.append(
            Finding("tiny", f"{number(small, 'picture')} with a side below {TINY} pixels", "kept, and enlarged", small)
        )
    grey = sum(record.channels == 1 for record in records)
    if 0 < grey < len(records):
        names = tuple(photo.name for photo, record in zip(photos, records, strict=True) if record.channels == 1)
        found = f"{grey:,} are grey and {len(records) - grey:,} in colour"
        findings.append(Finding("grey", found, "brought to the channels of the net", names[:1000]))
    return findings


def _balance(photos: list[Photo], labels: Sequence[str]) -> list[Finding]:
    findings = []
    seen = Counter(photo.label for photo in photos if photo.part in ("", "train"))
    most = max(seen.values(), default=0)
    small = [label for label in labels if 0 < seen[label] * UNEVEN < most]
    if small:
        what = ", ".join(f'"{label}" {seen[label]:,}' for label in small[:3]) + (
            " and others" if len(small) > 3 else ""
        )
        findings.append(
            Finding("balance", f"classes are uneven ({what}; the largest has {most:,})", "kept as they are")
        )
    few = [label for label in labels if seen[label] < FEW]
    if few:
        what = ", ".join(f'"{label}" {seen[label]:,}' for label in few[:3]) + (" and others" if len(few) > 3 else "")
        findings.append(Finding("few", f"classes with fewer than {FEW} pictures to learn from ({what})", "kept"))
    return findings
