"""Fetching one file: written under a temporary name beside its place, checked, and only then named."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import leftovers

Progress = Callable[[str, int, int], None]  # file name, bytes so far, bytes in all
PIECE = 1 << 16


@dataclass(frozen=True)
class File:
    """One file to fetch: its name, its exact size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


def fetch_file(
    file: File, mirrors: Sequence[str], folder: Path, progress: Progress | None = None, timeout: float = 30
) -> list[str]:
    """Try each mirror until one gives the right bytes: [] then, else a sentence for each mirror's failure."""
    tried = []
    for mirror in mirrors:
        fault = _fetch(file, mirror + file.name, folder, progress, timeout)
        if fault is None:
            return []
        tried.append(f"{mirror}{file.name}: {fault}")
    return tried


def _fetch(file: File, url: str, folder: Path, progress: Progress | None, timeout: float) -> str | None:
    """None when folder/name is complete and right; otherwise what went wrong, and nothing is left behind."""
    part = folder / f"{file.name}.{os.getpid()}.part"
    try:
        with part.open("wb") as out:
            fault = _copy(file, url, out.write, progress, timeout)
        if fault is None:
            part.replace(folder / file.name)
            leftovers.clear(folder, f"{file.name}.", ".part")
        return fault
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except urllib.error.URLError as error:
        return f"no connection ({error.reason})"
    except (OSError, http.client.HTTPException) as error:
        return f"broke off ({error})"
    finally:
        part.unlink(missing_ok=True)


def _copy(
    file: File, url: str, write: Callable[[bytes], object], progress: Progress | None, timeout: float
) -> str | None:
    sha, got = hashlib.sha256(), 0
    with urllib.request.urlopen(url, timeout=timeout) as stream:
        while got <= file.size:
            piece = stream.read(PIECE)
            if not piece:
                break
            write(piece)
            sha.update(piece)
            got += len(piece)
            if progress is not None:
                progress(file.name, min(got, file.size), file.size)
    if got != file.size:
        came = f"{got} bytes" if got < file.size else f"more than {file.size} bytes"
        return f"{came} came, expected {file.size}"
    if sha.hexdigest() != file.sha256:
        return f"its SHA-256 is {sha.hexdigest()}, expected {file.sha256}"
    return None
