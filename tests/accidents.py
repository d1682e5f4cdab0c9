"""Accidents on demand: a command runs in a process of its own, which is killed, or whose disk is full, at the n-th
thing that it does to the disk or the net.

    count = accidents.run(work).events                 # work: a function; what it does counts
    done = accidents.run(work, "kill", 17)             # done.code: its exit status, or -9; done.text: what it printed

An event is a step of training, a piece written to a file (killed: half of it is), a flush to the disk, a file renamed,
removed, or a folder made.
"""

from __future__ import annotations

import errno
import io
import os
import pathlib
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litenet.trainer import trainer

PIECE = 512  # bytes of one write: so that each file has several


@dataclass(frozen=True)
class Done:
    code: int  # -9: killed
    text: str
    events: int


class _Clock:
    def __init__(self, fault: str | None, at: int):
        self.fault, self.at, self.events = fault, at, 0

    def strikes(self) -> bool:
        self.events += 1
        return self.fault is not None and self.events >= self.at

    def tick(self) -> None:
        if self.strikes() and self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


class _File(io.FileIO):
    """A file that is written in pieces; a full disk takes half of the last one."""

    clock: _Clock

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")[:PIECE]
        if self.clock.strikes():
            super().write(view[: len(view) // 2])
            if self.clock.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(view) or 0


def run(work: Callable[[], int | None], fault: str | None = None, at: int = 0) -> Done:
    """work() in a fork of this process. fault: "kill", or "full" for a disk that is full from that event on."""
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            _child(work, _Clock(fault, at), out.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        text = out.read().decode()
    said, ended, count = text.rpartition("\nevents ")
    return Done(os.waitstatus_to_exitcode(status), said if ended else text, int(count) if ended else 0)


def _child(work: Callable[[], int | None], clock: _Clock, out: int) -> None:
    code = 70
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(1, "w"), "utf-8", write_through=True)
        _watch(clock)
        code = work() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    os.write(1, f"\nevents {clock.events}".encode())
    os._exit(code)


def _watch(clock: _Clock) -> None:
    plain, kind = pathlib.Path.open, type("File", (_File,), {"clock": clock})

    def opened(path: pathlib.Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        if "w" not in mode and "a" not in mode:
            return plain(path, mode, *more, **options)
        raw = io.BufferedWriter(kind(os.fspath(path), mode.replace("b", "").replace("t", "")), PIECE)
        return raw if "b" in mode else io.TextIOWrapper(raw, options.get("encoding") or "utf-8")

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            clock.tick()
            return function(*args, **options)

        return counted

    pathlib.Path.open = opened  # type: ignore[method-assign,assignment]
    for owner, name in ((os, "fsync"), (os, "replace"), (os, "rename"), (os, "unlink"), (os, "mkdir"),
                        (pathlib.Path, "replace"), (trainer.Trainer, "micro")):  # fmt: skip
        setattr(owner, name, counting(getattr(owner, name)))
