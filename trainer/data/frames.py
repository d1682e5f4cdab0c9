"""The cache of decoded photos: what the net sees of each, as bytes in one file that is mapped into memory.

A set of frames is a .npy file, uint8 (N, H, W, C), made by several processes, each of which holds one decoded photo at
a time. Its name follows from the contents of the photos and from what is done to them, so a stale one is never read.
It is written as NAME.part, whose finished rows a journal tells: a run that is killed goes on where it stopped. It gets
its name when all rows are on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from . import workers
from .dataset import reserve

ROOM = "Free some space, name another folder with --cache, or make the net's input smaller."
VERSION = 1  # of what a frame is
SAVE_EVERY = 2.0  # seconds between two entries of the journal


class Job:
    """For workers.py: (row, path, content) -> None, or what is wrong. The frame goes into the file itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from litenet.pyruntime.preprocess import Preprocessing

        from .examine import Messages

        self.frames = np.load(settings["file"], mmap_mode="r+")
        self.recipe = Preprocessing(**settings["words"])
        self.messages = Messages()

    def __call__(self, task: tuple[int, str, str]) -> dict[str, str] | None:
        from litenet.pyruntime import image
        from litenet.pyruntime.errors import ImageError

        row, path, content = task
        try:
            data = Path(path).read_bytes()
            if hashlib.sha256(data).hexdigest()[:32] != content:
                return {"error": "has changed since it was looked at"}
            picture = image.decode(data, "#")
            _, H, W, _ = self.frames.shape
            self.frames[row] = self.recipe.frame(picture.pixels, H, W, picture.layout)
        except OSError as fault:
            return {"error": f"cannot be read ({fault.strerror})"}
        except ImageError as fault:
            return {"error": str(fault).removeprefix("# ").rstrip(".")}
        except MemoryError:
            return {"error": "needs more memory than there is"}
        return None

    def close(self) -> None:
        self.messages.close()


def frames(
    folder: Path,
    owner: str,
    photos: Sequence[tuple[Path, str]],
    shape: tuple[int, int, int],
    words: dict[str, Any],
    workers_wanted: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> np.memmap:
    """uint8 (N, *shape), mapped read-only: photo after photo as the device's preprocessing `words` make it.

    folder: of the cache. owner: whose photos, a word for the file's name: frames of an earlier state of them are taken
    over, and then deleted. photos: path and content (Record.content) of each. progress(done, of).
    """
    name = f"{owner}-{_digest([VERSION, _decoder(), words, *shape])[:12]}-"
    path = folder / f"{name}{_digest([content for _, content in photos])[:20]}.npy"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _make(path, name, photos, shape, words, workers_wanted, progress)
        found = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as fault:
        raise UserError(
            f"{path}: the cache of photos cannot be used ({fault}).\n"
            "  Delete the file, free some space, or name another folder with --cache."
        ) from None
    if not isinstance(found, np.memmap) or found.shape != (len(photos), *shape) or found.dtype != np.uint8:
        raise UserError(f"{path}: this is no cache of these photos.\n  Delete the file.")
    return found


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _decoder() -> str:
    import cv2

    return f"opencv {cv2.__version__}"


def _make(
    path: Path,
    name: str,
    photos: Sequence[tuple[Path, str]],
    shape: tuple[int, int, int],
    words: dict[str, Any],
    workers_wanted: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    part, journal = path.with_suffix(".part"), path.with_suffix(".rows")
    out, done = _begin(part, journal, (len(photos), *shape))
    older = [p for p in path.parent.glob(f"{name}*.npy") if p != path]
    for source in older:
        _take_over(source, [content for _, content in photos], out, done)
    rows = np.flatnonzero(~done).tolist()
    tasks = [(row, str(photos[row][0]), photos[row][1]) for row in rows]
    bad: list[str] = []
    saved, fresh = time.monotonic(), list[int]()
    settings = {"file": str(part), "words": words}
    for n, (place, answer) in enumerate(workers.run(__name__, settings, tasks, workers_wanted), 1):
        if answer is not None:
            bad.append(f"{tasks[place][1]} {answer['error']}")
            continue
        fresh.append(rows[place])
        if progress is not None:
            progress(len(photos) - len(rows) + n, len(photos))
        if time.monotonic() - saved > SAVE_EVERY:
            _save(out, journal, fresh)
            saved, fresh = time.monotonic(), []
    _save(out, journal, fresh)
    if bad:
        more = f"; so do {len(bad) - 1} more" if len(bad) > 1 else ""
        raise UserError(f"{bad[0]}{more}.\n  Repair or remove them, and start again: what is decoded is kept.")
    out.flush()  # type: ignore[attr-defined]  # rows that were taken over, too
    del out
    _write_contents(path, photos)
    _publish(part, path)
    journal.unlink(missing_ok=True)
    for source in older:
        for old in (source, source.with_suffix(".json")):
            with suppress(OSError):  # another run may still read it
                old.unlink()


def _begin(part: Path, journal: Path, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The file to be filled and which rows it has: one that was begun, or a new one."""
    done = np.zeros(shape[0], bool)
    with suppress(OSError, ValueError):
        out = np.load(part, mmap_mode="r+")
        if out.shape == shape and out.dtype == np.uint8:
            text = journal.read_text(encoding="ascii") if journal.exists() else ""
            rows = np.array([int(n) for n in text.rpartition("\n")[0].split()], np.int64)
            done[rows[(rows >= 0) & (rows < shape[0])]] = True
            return out, done
        del out
    need, free = int(np.prod(shape)), shutil.disk_usage(part.parent).free
    if need > free:
        from ..memory import bytes_text

        raise UserError(
            f"{part.parent}: the decoded photos take {bytes_text(need)}, but only {bytes_text(free)} are free.\n"
            f"  {ROOM}"
        )
    journal.unlink(missing_ok=True)
    out = np.lib.format.open_memmap(part, "w+", np.uint8, shape)
    try:
        with part.open("r+b") as file:
            reserve(file.fileno(), out.offset + out.nbytes, part.parent, ROOM)
    except UserError:
        part.unlink()
        raise
    return out, done


def _save(out: np.ndarray, journal: Path, rows: list[int]) -> None:
    """First the frames, then the word that they are there."""
    if not rows:
        return
    out.flush()  # type: ignore[attr-defined]
    with journal.open("a", encoding="ascii") as file:
        file.write("".join(f"{row}\n" for row in rows))
        file.flush()
        os.fsync(file.fileno())


def _publish(part: Path, path: Path) -> None:
    """Two runs may make the same file; the second finds it made."""
    try:
        part.replace(path)
    except FileNotFoundError:
        if not path.exists():
            raise


def _write_contents(path: Path, photos: Sequence[tuple[Path, str]]) -> None:
    from ..checkpoint import write_atomically

    text = json.dumps([content for _, content in photos])
    write_atomically(path.with_suffix(".json"), lambda file: file.write(text.encode()))


def _take_over(source: Path, contents: Sequence[str], out: np.ndarray, done: np.ndarray) -> None:
    """Rows of an earlier state of the same photos."""
    with suppress(OSError, ValueError):
        old = np.load(source, mmap_mode="r")
        at = {content: row for row, content in enumerate(json.loads(source.with_suffix(".json").read_text()))}
        for row in np.flatnonzero(~done).tolist():
            place = at.get(contents[row])
            if place is not None and old.shape[1:] == out.shape[1:]:
                out[row], done[row] = old[place], True
