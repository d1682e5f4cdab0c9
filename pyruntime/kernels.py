"""Vector kernels and threads for an opened model: litenet_fast.h from Python."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
from functools import cache
from typing import Any

from . import tuned as remembered
from ._litenet import ffi, lib
from .errors import ModelError

HUGE_PAGE = 2 << 20  # bytes
POPULATE_READ, POPULATE_WRITE = 22, 23  # MADV_POPULATE_READ and _WRITE, which Linux has since 5.14
MOST_AT_ONCE = 256 << 20  # bytes of an arena
SPIN_ROUNDS = 300_000  # about a millisecond
KERNELS = {ffi.string(lib.ln_fast_name(k)).decode(): k for k in range(1, lib.LN_KERNELS_END)}  # name: number

_pools: dict[int, Any] = {}  # by number of threads; all engines share them, and they sleep when nobody calls
_lock = threading.Lock()


def available() -> list[str]:
    """The sets of kernels that this processor can run, the slowest first."""
    return ["portable", *(name for name, number in KERNELS.items() if lib.ln_fast_has(number))]


@cache
def _best() -> str:
    """The fastest set. Asked once: a virtual machine takes microseconds to tell what its processor can do."""
    return available()[-1]


def prepare(model: Any, kernels: str | None, threads: int | None, tuned: bool | bytes) -> tuple[str, int, Any]:
    """Have the model run by the kernels of that name, or the best, on so many threads, or as many as are worth it, with
    the algorithms that are remembered for it (True), chosen by the cost model (False), or given. Returns the kernels'
    name, the number of threads, and the memory that must live as long as the model."""
    if kernels is not None and kernels not in available():
        raise ModelError(f"There are no kernels {kernels!r} on this processor; it can run {', '.join(available())}.")
    name = kernels or _best()
    if name == "portable":
        return name, 1, None
    number = KERNELS[name]
    if threads is None:
        threads = lib.ln_fast_threads(model, number, _processors())
    pool = _pool(threads) if threads > 1 else ffi.NULL
    choices = remembered.recall(model, name, pool.threads if pool else 1) if tuned is True else tuned or None
    if choices is not None:
        if len(choices) != model.op_count:
            raise ModelError(f"tuned has {len(choices)} numbers; this model has {model.op_count} operators.")
        lib.ln_fast_choose(model, ffi.from_buffer(choices))
    size = lib.ln_fast_bytes(model, number)
    keep, memory = pages(size, at_once=False)  # ln_fast_prepare writes all of it, and finds a new page in the cache
    status = lib.ln_fast_prepare(model, number, pool, memory, size)
    lib.ln_fast_choose(model, ffi.NULL)  # `choices` ends here
    if status:
        raise ModelError(ffi.string(lib.ln_status_text(status)).decode(), status)
    return name, pool.threads if pool else 1, keep


def peak_gflops(kernels: str, seconds: float) -> float | None:
    """What one core reaches with multiply-adds in registers alone, the best of short slices; None for portable."""
    from time import perf_counter

    if kernels not in KERNELS:
        return None
    best, until = 0.0, perf_counter() + seconds
    while perf_counter() < until:
        began = perf_counter()
        flops = lib.ln_fast_spin(KERNELS[kernels], SPIN_ROUNDS)
        best = max(best, 1e-9 * flops / (perf_counter() - began))
    return best


def pages(size: int, at_once: bool = True) -> tuple[Any, Any]:
    """(what keeps it alive, its address): zeroed memory that starts at a multiple of 64. If it is large it is made of
    huge pages, where the system has them: a net whose tensors take megabytes runs up to a quarter faster. at_once: all
    of it is asked for now, so that the first run meets no new page; of more than MOST_AT_ONCE, which a file of a few
    bytes can ask for, only what is used. ModelError where there is not so much."""
    huge = size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    try:
        memory = mmap.mmap(-1, size + HUGE_PAGE * huge, **private)
    except (OSError, ValueError, OverflowError):
        raise ModelError(f"The model needs {size:,} bytes of memory, which are not to be had here.") from None
    keep = ffi.from_buffer(memory)
    first = -int(ffi.cast("uintptr_t", keep)) % HUGE_PAGE if huge else 0
    with contextlib.suppress(OSError):
        if huge:
            memory.madvise(mmap.MADV_HUGEPAGE)
        if at_once and size <= MOST_AT_ONCE and sys.platform == "linux":
            memory.madvise(POPULATE_WRITE, first, size)
    return keep, keep + first


def map_file(file: int) -> mmap.mmap:
    """The file's bytes, to read, without a copy; all pages of a large one at once, as the checksum sees them all."""
    memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    if sys.platform == "linux" and len(memory) >= HUGE_PAGE:
        with contextlib.suppress(OSError):
            memory.madvise(POPULATE_READ)
    return memory


def _pool(threads: int) -> Any:
    with _lock:
        if threads not in _pools:
            _pools[threads] = lib.ln_threads_start(threads)
        return _pools[threads]


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
