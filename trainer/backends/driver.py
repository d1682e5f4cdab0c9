"""The NVIDIA driver asked directly, through its own library: what cards there are, with no CuPy and no CUDA toolkit."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from .cards import Capability

MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
NO_DEVICE = 100
REASONS = {  # of cuInit, by CUresult
    34: "the library found is a stub of the toolkit, not a driver",
    NO_DEVICE: "the driver sees no CUDA card",
    802: "the driver is not ready yet",
    803: "the driver's library and its kernel module differ in version",
    804: "a forward-compatibility library stands in the way, which this card does not support",
    999: "the driver does not answer (unknown error)",
}


@dataclass(frozen=True)
class Card:
    """One card as the driver lists it."""

    name: str
    capability: Capability
    bytes: int


@dataclass(frozen=True)
class Driver:
    """installed: its library was found. cuda: the newest CUDA it runs, 12040 for 12.4. problem: why no card is seen."""

    installed: bool
    cuda: int = 0
    cards: tuple[Card, ...] = ()
    problem: str = ""


def library() -> Any:
    """The driver's library, or None."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def probe() -> Driver:
    """What the driver says. Makes no context, so it takes no memory of the card."""
    lib = library()
    if lib is None:
        return Driver(False)
    failed = lib.cuInit(0)
    cuda = ctypes.c_int()
    lib.cuDriverGetVersion(ctypes.byref(cuda))
    if failed:
        return Driver(True, cuda.value, (), REASONS.get(failed, f"the driver does not start (error {failed})"))
    count = ctypes.c_int()
    lib.cuDeviceGetCount(ctypes.byref(count))
    cards = tuple(_card(lib, index) for index in range(count.value))
    return Driver(True, cuda.value, cards, "" if cards else REASONS[NO_DEVICE])


def _card(lib: Any, index: int) -> Card:
    device, value, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    lib.cuDeviceGet(ctypes.byref(device), index)
    lib.cuDeviceGetName(name, len(name), device)
    lib.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    capability = []
    for attribute in (MAJOR, MINOR):
        lib.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(value.value)
    return Card(name.value.decode(errors="replace"), (capability[0], capability[1]), size.value)


def version_text(cuda: int) -> str:
    """12040 -> "12.4"."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"
