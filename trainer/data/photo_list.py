"""Which photos a source holds, and what they are called: a folder with one folder a class, or a CSV of path and label.

    photos/cat/1.jpg  photos/dog/7.jpg                              the split is made here
    photos/train/cat/1.jpg  photos/test/cat/9.jpg                   the split is given; `val` may be there as well
    photos.csv with lines such as  pictures/1.jpg,cat  (or pictures/1.jpg,cat,test)

No picture is opened here.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserError

READ = (
    ".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".webp", ".pbm", ".pgm", ".ppm", ".pnm",
)  # fmt: skip
NOT_READ = (".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".svg", ".raw", ".cr2", ".nef", ".dng")  # but named
SUFFIXES = frozenset(READ + NOT_READ)
PARTS = {
    "train": "train", "training": "train", "val": "validation", "valid": "validation", "validation": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip
SEPARATORS = re.compile(r"[\s_\-]+")
PATH_WORDS = ("path", "file", "filename", "image", "image_path", "filepath", "picture")
SHOWN = 3  # files named in a line


def number(things: Sized, one: str, many: str = "") -> str:
    """ "1 file", "2 files"."""
    return f"{len(things):,} {one if len(things) == 1 else many or one + 's'}"


@dataclass(frozen=True)
class Finding:
    """Something worth knowing: what was found in how many files, what is done about it, and which files they are."""

    kind: str
    found: str
    done: str
    files: tuple[str, ...] = ()

    def line(self) -> str:
        shown = ", ".join(self.files[:SHOWN]) + (f" and {len(self.files) - SHOWN:,} more" * (len(self.files) > SHOWN))
        return f"{self.found}: {self.done}" + (f" ({shown})" if self.files else "")


@dataclass(frozen=True)
class Photo:
    """One picture. name: its path below the source, with slashes. part: train, validation, test, or not given."""

    path: Path
    name: str
    label: str
    part: str = ""


@dataclass(frozen=True)
class Listing:
    """What a source holds, in the order of the names; labels in natural order, 2 before 10."""

    root: Path
    photos: tuple[Photo, ...]
    labels: tuple[str, ...]
    findings: tuple[Finding, ...] = field(default=())

    @property
    def parted(self) -> bool:
        return any(photo.part for photo in self.photos)


def is_photos(path: Path) -> bool:
    """Whether a folder holds folders with pictures, or a file is a list of them."""
    if path.is_file():
        return path.suffix.lower() in (".csv", ".tsv")
    return any(True for folder in _folders(path) for _ in _pictures(folder))


def scan(source: Path) -> Listing:
    """The photos of a folder or a list. UserError where there is nothing to learn from."""
    if source.is_file():
        root, photos, findings = source.parent, *_listed(source)
    else:
        root = _inner(source)
        photos, findings = _filed(root)
    photos, more = _one_spelling(sorted(photos, key=lambda photo: natural(photo.name)))
    labels = tuple(sorted({photo.label for photo in photos}, key=natural))
    if not photos:
        raise UserError(
            f"{source}: no pictures were found; expected a folder for each class with its pictures in it, or a CSV of "
            "path,label.\n  See docs/data.md for the layouts."
        )
    for label in labels:
        if not label.isprintable() or not 0 < len(label) <= 200:
            raise UserError(f"{source}: the class name {label!r} cannot be printed.\n  Rename its folder.")
    return Listing(root, tuple(photos), labels, (*findings, *more))


def natural(text: str) -> list[tuple[int, int, str]]:
    """A sorting key: numbers inside a text count as numbers."""
    pieces = re.split(r"(\d+)", text)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces if piece]


def _folders(path: Path) -> list[Path]:
    """The folders in a folder, without hidden ones and what macOS leaves in archives."""
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__MACOSX")))


def _pictures(folder: Path) -> Iterator[Path]:
    """The pictures in a folder and below it, those of other systems' making left out."""
    return (path for path in _files(folder) if path.suffix.lower() in SUFFIXES)


def _files(folder: Path) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith((".", "__MACOSX")))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(place, name)


def _inner(root: Path) -> Path:
    """An archive often unfolds to one folder in another."""
    inside = _folders(root)
    while len(inside) == 1 and not any(_pictures_in(root)) and any(is_photos(folder) for folder in inside):
        root, inside = inside[0], _folders(inside[0])
    return root


def _pictures_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)


def _filed(root: Path) -> tuple[list[Photo], list[Finding]]:
    folders, findings = _folders(root), list[Finding]()
    parts = {folder: PARTS[folder.name.lower()] for folder in folders if folder.name.lower() in PARTS}
    given = any(part == "train" and is_photos(folder) for folder, part in parts.items())
    homes = [(folder, part, folder.name) for folder, part in parts.items()] if given else [(root, "", "")]
    if given and len(parts) < len(folders):
        others = tuple(folder.name for folder in folders if folder not in parts)
        findings.append(Finding("beside", f"{number(others, 'folder')} beside train and test", "not read", others))
    photos, passed, loose = list[Photo](), Counter[str](), list[str]()
    for home, part, _ in homes:
        loose += [path.relative_to(root).as_posix() for path in _pictures_in(home)]
        for folder in _folders(home):
            empty = True
            for path in _files(folder):
                if path.suffix.lower() not in SUFFIXES:
                    passed[path.suffix.lower() or "no suffix"] += 1
                    continue
                empty = False
                photos.append(Photo(path, path.relative_to(root).as_posix(), folder.name, part))
            if empty:
                name = folder.relative_to(root).as_posix()
                findings.append(Finding("empty", f"the folder {name} holds no picture", "it is no class"))
    if passed:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in passed.most_common(5))
        count = number(range(passed.total()), "file")
        findings.append(Finding("other", f"{count} without a picture's name", f"passed over ({kinds})"))
    if loose:
        done = "left out, since no folder names their class"
        findings.append(Finding("loose", f"{number(loose, 'picture')} beside the class folders", done, tuple(loose)))
    return photos, findings


def _listed(source: Path) -> tuple[list[Photo], list[Finding]]:
    """The rows of a CSV: path,label or path,label,part, with or without a line of column names."""
    try:
        text = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as fault:
        raise UserError(f"{source}: the text is not UTF-8 (byte {fault.start}).\n  Save it as UTF-8.") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = [
        (n, [cell.strip() for cell in row])
        for n, row in enumerate(csv.reader(text.splitlines(), delimiter=separator), 1)
        if row
    ]
    if rows and rows[0][1][0].lower() in PATH_WORDS:
        rows = rows[1:]
    photos, missing, seen, twice = list[Photo](), list[str](), dict[str, str](), list[str]()
    for line, cells in rows:
        if len(cells) not in (2, 3) or not cells[0] or not cells[1]:
            raise UserError(
                f"{source}, line {line}: {len(cells)} columns; expected path,label or path,label,part.\n"
                "  Put a path that holds a comma in quotes."
            )
        if len(cells) == 3 and cells[2].lower() not in PARTS:
            raise UserError(
                f"{source}, line {line}: the part is {cells[2]!r}; expected train, validation or test.\n  Correct it."
            )
        name, label, part = cells[0], cells[1], PARTS[cells[2].lower()] if len(cells) == 3 else ""
        if name in seen:
            if seen[name] != label:
                raise UserError(
                    f"{source}, line {line}: {name} is {label!r} here, but was {seen[name]!r} before.\n"
                    "  Keep one of the two lines."
                )
            twice.append(name)
            continue
        seen[name] = label
        path = source.parent / name
        if path.is_file():
            photos.append(Photo(path, Path(name).as_posix(), label, part))
        else:
            missing.append(name)
    findings = []
    if missing:
        findings.append(
            Finding("missing", f"{number(missing, 'file')} of the list not there", "left out", tuple(missing))
        )
    if twice:
        findings.append(Finding("twice", f"{number(twice, 'repeated line')}", "read once", tuple(twice)))
    return photos, findings


def _one_spelling(photos: list[Photo]) -> tuple[list[Photo], list[Finding]]:
    """Names that differ only in case, spaces, _ and - become one: the one most pictures have. Short names, which may be
    letters, are only reported."""
    counts, spellings = Counter(photo.label for photo in photos), dict[str, list[str]]()
    for label in sorted(counts):
        spellings.setdefault(SEPARATORS.sub("", label).casefold(), []).append(label)
    meant, findings = dict[str, str](), list[Finding]()
    for key, names in spellings.items():
        if len(names) == 1:
            continue
        quoted = " and ".join(f'"{name}"' for name in names)
        if len(key) <= 2:
            findings.append(Finding("labels", f"the classes {quoted} are nearly the same name", "kept apart"))
            continue
        best = max(names, key=lambda name: counts[name])
        meant |= dict.fromkeys(names, best)
        findings.append(
            Finding("labels", f"the classes {quoted} are one name written differently", f'joined as "{best}"')
        )
    photos = [replace(photo, label=meant.get(photo.label, photo.label)) for photo in photos]
    labels = sorted({photo.label for photo in photos})
    for place, one in enumerate(labels):
        for other in labels[place + 1 :]:
            if _one_slip(one.casefold(), other.casefold()):
                found = (
                    f'the class names "{one}" ({counts[one]:,}) and "{other}" ({counts[other]:,}) are one slip apart'
                )
                findings.append(Finding("labels", found, "kept apart; rename one folder if they are the same"))
    return photos, findings


def _one_slip(a: str, b: str) -> bool:
    """Whether one letter too many, too few or wrong, or two letters exchanged, make a into b. Numbers and short words
    are no slips."""
    if min(len(a), len(b)) < 5 or abs(len(a) - len(b)) > 1 or re.sub(r"\D", "", a) != re.sub(r"\D", "", b):
        return False
    head = len(os.path.commonprefix([a, b]))
    a, b = a[head:], b[head:]
    tail = len(os.path.commonprefix([a[::-1], b[::-1]]))
    a, b = a[: len(a) - tail], b[: len(b) - tail]
    return max(len(a), len(b)) <= 1 or (len(a) == len(b) == 2 and a == b[::-1])
