"""Work on many files in several processes, of which any may be lost without loss.

    for place, answer in run("litenet.trainer.data.examine", None, paths): ...

A worker is a Python of its own that reads tasks from its standard input and writes answers, a line of JSON each. So a
decoder that crashes takes one picture with it, one that hangs is ended, and nothing of the caller's program is run
again, as `multiprocessing` would. A worker ends when its input does: also when the caller is killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

IN_HAND = 8  # tasks a worker is given at once
FEW = 48  # tasks that are done sooner than a worker starts
PATIENCE = 120.0  # seconds until a task counts as hanging
LOST = {"error": "made the decoder crash or hang"}


def cores() -> int:
    """Processors this program may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def run(
    module: str, settings: Any, tasks: Sequence[Any], workers: int = 0, patience: float = PATIENCE
) -> Iterator[tuple[int, Any]]:
    """(place of the task, answer) as they are ready, in any order. The module has Job(settings) -> function(task);
    settings, tasks and answers are plain values. workers: processes, 0: one a processor. The answer to a task whose
    worker is lost is LOST."""
    count = min(workers or cores(), 16, -(-len(tasks) // IN_HAND))
    if len(tasks) <= FEW and not workers:
        yield from _here(module, settings, tasks)
        return
    waiting = deque(range(len(tasks)))
    done: queue.Queue[tuple[int, Any] | BaseException] = queue.Queue()
    crew = [_Worker(module, settings, tasks, waiting, done, patience) for _ in range(count)]
    try:
        for worker in crew:
            worker.start()
        for _ in range(len(tasks)):
            got = done.get()
            if isinstance(got, BaseException):
                raise got
            yield got
    finally:
        waiting.clear()
        for worker in crew:
            worker.wanted = False
            worker.end()


def _here(module: str, settings: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    function = import_module(module).Job(settings)
    try:
        for place, task in enumerate(tasks):
            yield place, function(task)
    finally:
        if (close := getattr(function, "close", None)) is not None:
            close()


class _Worker(threading.Thread):
    """One process and what is said to it. A lost one is replaced."""

    def __init__(
        self, module: str, settings: Any, tasks: Sequence[Any], waiting: deque[int], done: queue.Queue, patience: float
    ):
        super().__init__(daemon=True)
        self.first = json.dumps([module, settings])
        self.tasks, self.waiting, self.done, self.patience = tasks, waiting, done, patience
        self.process: subprocess.Popen[str] | None = None
        self.wanted = True  # until nobody waits for answers any more

    def run(self) -> None:
        try:
            while places := self._take():
                while places and self.wanted:
                    answered = self._ask(places)
                    if answered < len(places) and self.wanted:
                        self.done.put((places[answered], LOST))
                        self.end()
                    places = places[answered + 1 :]
        except BaseException as error:  # for the caller, whose thread this is not
            self.done.put(error)
        finally:
            self.end()

    def _take(self) -> list[int]:
        places: list[int] = []
        while self.waiting and len(places) < IN_HAND:
            try:
                places.append(self.waiting.popleft())
            except IndexError:  # another worker was quicker
                break
        return places

    def _ask(self, places: list[int]) -> int:
        """How many of these tasks were answered, in their order."""
        process = self._begun()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(self.patience, process.kill)
        timer.start()
        try:
            process.stdin.write("".join(json.dumps(self.tasks[place]) + "\n" for place in places))
            process.stdin.flush()
            for answered, place in enumerate(places):
                line = process.stdout.readline()
                if not line.endswith("\n"):
                    return answered
                self.done.put((place, json.loads(line)))
        except OSError:  # it ended before it had read all
            return 0
        finally:
            timer.cancel()
        return len(places)

    def _begun(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            found = os.pathsep.join(path or os.curdir for path in sys.path)
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"], text=True, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": found, "OPENBLAS_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"},
            )  # fmt: skip
            assert self.process.stdin is not None
            self.process.stdin.write(self.first + "\n")
        return self.process

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what it was still to be told
                    pipe and pipe.close()


def serve() -> None:
    """What a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that started it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints does not get between the answers
    module, settings = json.loads(sys.stdin.readline())
    function = import_module(module).Job(settings)
    for line in sys.stdin:
        answers.write(json.dumps(function(json.loads(line))) + "\n")
        answers.flush()
