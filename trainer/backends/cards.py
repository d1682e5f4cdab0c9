"""What a compute capability (major, minor) means: facts of NVIDIA's cards that no driver tells.

Sources: CUDA C++ Programming Guide, table "Throughput of Native Arithmetic Instructions" (cores, half precision);
CUDA Toolkit release notes (which toolkit compiles for what, which driver it needs).
"""

from __future__ import annotations

Capability = tuple[int, int]

OLDEST: Capability = (5, 0)  # the kernels are written and compiled for this and newer
HALF_FROM: Capability = (7, 0)  # where half-precision storage is offered: loads and arithmetic are fast
OLDEST_13: Capability = (7, 5)  # CUDA 13 compiles for this and newer only
DRIVERS = {11: 450, 12: 525, 13: 580}  # CUDA major -> first driver branch that runs it
FAMILIES = {3: "Kepler", 5: "Maxwell", 6: "Pascal", 7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell",
            12: "Blackwell"}  # fmt: skip


def family(cc: Capability) -> str:
    """The name of the architecture, or nothing where we do not know one."""
    return {(7, 5): "Turing", (8, 9): "Ada"}.get(cc, FAMILIES.get(cc[0], ""))


def cores(cc: Capability) -> int:
    """float32 multiply-adds a multiprocessor does in one clock."""
    if cc[0] == 3:
        return 192
    return 64 if cc in ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)) else 128


def half_arithmetic(cc: Capability) -> str:
    """How fast half-precision arithmetic is: "none", "slow" (1/64 of float32) or "fast"."""
    if cc < (5, 3):
        return "none"
    return "slow" if cc == (6, 1) else "fast"


def last_driver(cc: Capability) -> int:
    """The last driver branch for a card of this age, or 0 where branches go on."""
    return 390 if cc < (3, 0) else 470 if cc < (5, 0) else 580 if cc < OLDEST_13 else 0


def last_toolkit(cc: Capability) -> str:
    """The last CUDA toolkit whose NVRTC compiles for a card that is too old for today's, or nothing."""
    if cc < (3, 0):
        return "8.0"
    if cc < (3, 5):
        return "10.2"
    if cc < (5, 0):
        return "11.8"
    return "12.9" if cc < OLDEST_13 else ""
