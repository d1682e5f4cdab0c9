"""Launches that are set up while the one before them still runs, which CuPy does not offer: the driver asked directly.

Between two launches of a stream the card waits until the first is done before it starts to prepare the second. Told
that the second follows "programmatically", it prepares the second as the blocks of the first end, and each kernel waits
for the first's results by itself (wait_for_last_launch in common.cuh). That saves a part of a microsecond between any
two. Compute capability 9.0, and a driver that keeps this in graphs (CUDA 12.3).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ..kernels.call import Call, Float, Int
from . import driver
from .cards import Capability

LEAST_CAPABILITY, LEAST_CUDA = (9, 0), 12030
PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: what is asked for, and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def follower(capability: Capability) -> Any:
    """The driver's function for such launches, or None where card or driver cannot do it."""
    library = driver.library() if capability >= LEAST_CAPABILITY else None
    if library is None or not hasattr(library, "cuLaunchKernelEx"):
        return None
    cuda = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(cuda))
    return library.cuLaunchKernelEx if cuda.value >= LEAST_CUDA else None


def follow(launch: Any, function: int, call: Call, addresses: Sequence[int | None], stream: int) -> int:
    """Launch a function (its handle) behind the last launch of a stream. The result: 0, or the number of an error."""
    given = iter(addresses)
    values: list[Any] = []
    for arg in call.args:
        if isinstance(arg, Int):
            values.append(ctypes.c_int(arg.value))
        elif isinstance(arg, Float):
            values.append(ctypes.c_float(arg.value))
        else:
            values.append(ctypes.c_void_p(next(given)))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    attribute = Attribute(PROGRAMMATIC, 0, (ctypes.c_int * 16)(1))
    dims = (ctypes.c_uint * 3)(*call.grid), (ctypes.c_uint * 3)(*call.block)
    config = Config(*dims, call.shared, stream, ctypes.pointer(attribute), 1)
    return int(launch(ctypes.byref(config), ctypes.c_void_p(function), pointers, None))
