"""What `edge-infer --tune` found for a model on this processor, kept from one process to the next.

A small JSON file for each model, set of kernels and number of threads, in the user's cache folder: the algorithm of
each operator by its number in litenet_fast.h, and the processor that it was measured on. On another processor it counts
for nothing. The environment variable LITENET_TUNE names another folder, or says "off": nothing is looked up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ._litenet import ffi

FORMAT = 1


def folder() -> Path | None:
    """Where the files are; None: nowhere. It need not exist."""
    given = os.environ.get("LITENET_TUNE")
    if given:
        return None if given.lower() == "off" else Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    else:
        home = os.environ.get("HOME")
        cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
        base = os.environ.get("XDG_CACHE_HOME") or (home and f"{home}/{cache}")
    return Path(base, "litenet", "tuned") if base else None


def path_of(model: Any, kernels: str, threads: int) -> Path | None:
    """The file for an open model: named by its length and its two checksums, which opening has compared."""
    where = folder()
    return where and where / f"{bytes(ffi.buffer(model.bin + 8, 12)).hex()}-{kernels}-{threads}.json"


def recall(model: Any, kernels: str, threads: int) -> bytes | None:
    """The number of each operator's algorithm; None where nothing, or nothing valid, is known."""
    path = path_of(model, kernels, threads)
    try:
        text = path.read_bytes() if path else b""
    except OSError:
        return None
    if not text:
        return None
    import json

    try:
        found = json.loads(text)
        known = found["format"] == FORMAT and found["processor"] == processor()
        choices = bytes(found["choices"]) if known else b""
    except (ValueError, TypeError, KeyError):
        return None
    return choices if len(choices) == model.op_count else None


def remember(model: Any, kernels: str, threads: int, choices: bytes) -> Path | None:
    """Keep the choices; the file's path, or None where there is no place for it. OSError: it cannot be written."""
    import json
    from tempfile import mkstemp

    path = path_of(model, kernels, threads)
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "processor": processor(), "choices": list(choices)}, file)
        Path(draft).replace(path)  # whoever reads sees the old file or the new one
    except BaseException:
        Path(draft).unlink()
        raise
    return path


def forget(model: Any, kernels: str, threads: int) -> None:
    """From now on the cost model decides again."""
    path = path_of(model, kernels, threads)
    if path:
        path.unlink(missing_ok=True)


PARTS = ("model name", "CPU implementer", "CPU variant", "CPU part", "CPU revision")


def processor() -> str:
    """A name by which a processor of another type is told from this one."""
    import platform

    machine = platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            block = file.read(4096).split("\n\n", 1)[0]
    except OSError:
        return f"{machine} {platform.processor()}".strip()
    facts = dict(line.split(":", 1) for line in block.split("\n") if ":" in line)
    known = {name.strip(): value.strip() for name, value in facts.items()}
    return " ".join([machine, *(known[part] for part in PARTS if part in known)])
