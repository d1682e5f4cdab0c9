"""What this machine can do, measured where the profile is made: the bandwidth of its memory, and float32 arithmetic."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .kernels import calls_step
from .kernels.call import Call, Ref, Shapes
from .kernels.choose import Choice
from .kernels.tiles import COUNTERS
from .ops import OPS, make_attrs

COPY = 64 << 20  # bytes of an array that no cache of a card of today holds together with two more
SIDE = 2048  # rows and columns of the square product that measures arithmetic


@dataclass(frozen=True)
class Peaks:
    """GB/s and GFLOP/s, and how each was measured."""

    gbs: float
    gflops: float
    gbs_by: str
    gflops_by: str


def cpu_peaks(size: int = COPY, side: int = SIDE // 2) -> Peaks:
    """A copy and a matrix product by NumPy."""
    source = np.ones(size // 4, np.float32)
    target, a = np.empty_like(source), np.full((side, side), 0.5, np.float32)
    c = np.empty_like(a)
    copy = _best(lambda: np.copyto(target, source))
    product = _best(lambda: np.matmul(a, a, out=c))
    return Peaks(
        2 * source.nbytes / copy / 1e9,
        2 * side**3 / product / 1e9,
        f"NumPy copy of {size >> 20} MiB",
        f"NumPy product of two {side} x {side} matrices",
    )


def device_peaks(device: Any) -> Peaks:
    """The sum of two long arrays, and a square linear layer, by the kernels that also train."""
    real, choice = hasattr(device, "measure"), Choice(device, getattr(device, "table", None))
    size, side = (COPY, SIDE) if real else (COPY >> 12, SIDE >> 5)
    if hasattr(device, "free_bytes"):
        free = device.free_bytes()
        size = min(size, max(free // 8 & ~255, 256))
        while side > 64 and 3 * 4 * side**2 > free // 4:
            side //= 2
    n = size // 4
    moved = timed(device, calls_step.sum_calls(n, device.sms), {"a": size, "b": size, "y": size})
    attrs = make_attrs(OPS["linear"].OP, {"out_features": side, "bias": 0})
    shapes = Shapes(attrs, side, (side,), (side,), sms=device.sms)
    square = dict.fromkeys(("x", "weight", "y"), 4 * side * side)
    square |= {"scratch": choice.scratch("linear", "forward", shapes), "counters": 4 * COUNTERS}
    calls = choice.calls("linear", "forward", shapes, square["scratch"])
    worked = timed(device, calls, square)
    choice.save()
    return Peaks(
        3 * size / moved / 1e9,
        2 * side**3 / worked / 1e9,
        f"the sum of two arrays of {size / 2**20:.3g} MiB (sum_f32)",
        f"a linear layer {side} x {side} x {side} ({calls[0].kernel.name})",
    )


def seconds(device: Any, bound: Iterable[Any], repeat: int = 1) -> float:
    """Seconds of the kernels, run `repeat` times in a row, for one of these times."""
    launches = list(bound) * repeat
    if hasattr(device, "measure"):
        return device.measure(launches) / repeat
    started = time.perf_counter()
    for call, addresses in launches:
        device.launch(call, addresses)
    device.synchronize()
    return (time.perf_counter() - started) / repeat


def cpu_name() -> str:
    """As the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _best(work: Callable[[], Any]) -> float:
    work()
    found = []
    for _ in range(8):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def timed(device: Any, calls: Iterable[Call], sizes: dict[str, int]) -> float:
    """Seconds of the calls on arrays of their own, which are given back."""
    held, bound = {}, []
    try:
        for role, size in sizes.items():
            held[role] = device.allocate(size)
            fill = np.zeros if role == "counters" else np.ones
            device.upload(held[role], fill(size // 4, np.float32))
        for call in calls:
            refs = [arg for arg in call.args if isinstance(arg, Ref)]
            bound.append((call, tuple(held[r.role] + r.offset if r.role in held else None for r in refs)))
        return min(seconds(device, bound) for _ in range(3))
    finally:
        for address in held.values():
            if hasattr(device, "release"):
                device.release(address)
