"""Files that killed processes had begun to write. Their names hold the number of their process."""

from __future__ import annotations

import os
from contextlib import suppress
from glob import escape
from pathlib import Path


def clear(folder: Path, before: str, after: str) -> None:
    """Remove folder/BEFORE<number>AFTER where no process has that number any more. What cannot be removed stays."""
    if os.name == "nt":  # there is no harmless way to ask for a process
        return
    with suppress(OSError):
        for path in folder.glob(f"{escape(before)}*{escape(after)}"):
            number = path.name[len(before) : len(path.name) - len(after)]
            if number.isdecimal() and not _lives(int(number)):
                path.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
