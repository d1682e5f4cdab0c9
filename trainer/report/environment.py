"""Where and how a run was made: environment.json in its folder, one entry for each start."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint import write_atomically
from ..profile_peaks import cpu_name

NAME = "environment.json"


def record(folder: Path, command: str, device: str) -> None:
    """Add this start. command: as it was typed; device: the card's name, or "cpu"."""
    found = {
        "started": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "command": command,
        "folder": str(Path.cwd()),
        "device": device if device != "cpu" else f"{cpu_name()}, NumPy",
        "litenet": _litenet(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS"),
    }
    if "cupy" in sys.modules:
        found["cupy"] = sys.modules["cupy"].__version__
    text = json.dumps([*read(folder), found], indent=2, ensure_ascii=False) + "\n"
    write_atomically(folder / NAME, lambda file: file.write(text.encode()))


def read(folder: Path) -> list[dict[str, Any]]:
    """The starts so far, oldest first; none of a run older than this file."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _litenet() -> str | None:
    try:
        return metadata.version("litenet")
    except metadata.PackageNotFoundError:
        return None
