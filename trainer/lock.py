"""One run folder, one run: a lock that ends with the process, however that ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from .checkpoint import unwritten
from .errors import UserError

NAME = ".lock"
_held: dict[str, int] = {}  # descriptor by folder: a process may open its own run again


def acquire(folder: Path) -> None:
    """Lock a run folder, which exists, until this process ends, and clear away what a killed run had begun to write.
    UserError where another process has it; where the file system knows no locks, nothing."""
    path = folder / NAME
    key = os.path.realpath(folder)
    with suppress(KeyError, OSError):
        if os.path.samestat(os.fstat(_held[key]), path.stat()):
            return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise unwritten(path, error) from None
    try:
        _lock(descriptor)
    except (BlockingIOError, PermissionError):
        owner = os.read(descriptor, 32).decode("ascii", "replace").strip() or "?"
        os.close(descriptor)
        raise UserError(
            f"{folder} is in use by another edge-train (process {owner}).\n"
            "  Wait until it has ended, or choose another folder with --out."
        ) from None
    except OSError:
        os.close(descriptor)
        return
    if key in _held:
        os.close(_held[key])
    _held[key] = descriptor
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        for left in folder.glob(".*.tmp"):  # by checkpoint.write_atomically
            left.unlink()


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, 64, os.SEEK_SET)  # behind what is read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
