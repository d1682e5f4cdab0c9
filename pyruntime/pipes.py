"""A command whose reader goes away, as in `edge-infer ... | head`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable


def while_read(work: Callable[[], object]) -> int:
    """The exit status that `work` returns (0 where it is no number), its output flushed; 1, quietly, once nobody reads
    standard output any more."""
    try:
        status = work()
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # what is still buffered goes nowhere when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
