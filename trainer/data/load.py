"""One door to all data: a known name, a folder, a file, or photos."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UserError
from . import cifar, idx
from .dataset import Splits
from .fetch import Progress
from .known import KNOWN, read_known
from .npz import read_npz
from .photo_list import is_photos
from .photos import Frame, PhotoOptions, Report, open_photos

HINT = (
    "give a known set ({known}), a folder with one folder of pictures a class, a CSV of path,label, a folder with IDX "
    "or CIFAR-10 files, or one .npz, .gz, .tar.gz or .bin file"
)


def open_source(
    source: str | Path,
    cache: Path | None = None,
    fetch: bool = True,
    folders: Sequence[Path] = (),
    progress: Progress | None = None,
    layout: str | None = None,
    photos: PhotoOptions | None = None,
    frame: Frame | None = None,
    report: Report | None = None,
) -> Splits:
    """The samples behind `source`; a string that is a known name means that set (./mnist is a folder).

    `cache`, `fetch` and `folders` are for known sets (known.py), `layout` is for .npz (npz.py), `photos`, `frame` and
    `report` for folders of pictures (photos.py). progress(what, done, of) is called while something takes time.
    """
    path = Path(source).expanduser()
    try:
        if holds_photos(source):
            return open_photos(path, photos or PhotoOptions(), frame or Frame(), progress, report)
        if isinstance(source, str) and source.lower() in KNOWN:
            return read_known(source.lower(), cache, fetch, folders, progress)
        if path.is_dir():
            return _folder(path)
        if path.is_file():
            return _file(path, layout)
    except OSError as fault:
        raise UserError(f"{fault.filename or path}: cannot be read ({fault.strerror or fault})") from fault
    raise UserError(f"{source}: no such data set, folder or file{_meant(source)}; {_hint()}")


def holds_photos(source: str | Path) -> bool:
    """Whether this is a folder of photos, or a list of them, and none of the other kinds of data."""
    path = Path(source).expanduser()
    if isinstance(source, str) and source.lower() in KNOWN or not path.exists():
        return False
    if path.is_dir() and (idx.any_present(path) or cifar.locate(path) is not None):
        return False
    return is_photos(path)


def _folder(path: Path) -> Splits:
    if idx.any_present(path):
        return idx.read_folder(path)
    place = cifar.locate(path)
    if place is not None:
        return cifar.read_cifar(place)
    held = sorted(entry.name for entry in path.iterdir())
    shown = ", ".join(held[:5]) + (f" and {len(held) - 5} more" if len(held) > 5 else "")
    raise UserError(f"{path}: no data set that LiteNet knows ({shown or 'the folder is empty'}); {_hint()}")


def _file(path: Path, layout: str | None) -> Splits:
    name = path.name.lower()
    kinds: tuple[tuple[bool, Callable[[], Splits]], ...] = (
        (name.endswith((".npz", ".npy")), lambda: read_npz(path, layout)),
        (name.endswith((*cifar.TAR, ".bin")), lambda: cifar.read_cifar(path)),
        (cifar.BATCH.fullmatch(path.name) is not None, lambda: cifar.read_cifar(path)),
        (idx.NAME.fullmatch(name) is not None or name.endswith(".gz"), lambda: idx.read_single(path)),
    )
    for fits, read in kinds:
        if fits:
            return read()
    raise UserError(f"{path}: not a kind of file that LiteNet knows; {_hint()}")


def _meant(source: str | Path) -> str:
    """(did you mean ...?), when a known name or a neighbour on disk is close."""
    path = Path(source)
    close = difflib.get_close_matches(str(source).lower(), KNOWN, n=1, cutoff=0.6)
    if not close and path.parent.is_dir():
        names = [entry.name for entry in path.parent.iterdir()]
        close = [
            str(path.parent / name) for name in difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
        ]
    return f" (did you mean {close[0]}?)" if close else ""


def _hint() -> str:
    return HINT.format(known=", ".join(KNOWN))
