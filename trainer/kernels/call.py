"""What a launch is, before any device is known: a kernel, its grid, and arguments named by role.

The same calls run on a card (backends/cuda.py) and, in the tests, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..ops import Attrs, Shape


@dataclass(frozen=True)
class Kernel:
    """One extern "C" function of one .cu file, compiled with these macros."""

    file: str  # "linear.cu"
    name: str
    defines: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True)
class Ref:
    """A pointer argument: the value of a role of the launch (NULL if the launch has none), plus an offset in bytes.

    bytes: how many of the value from there on the kernel touches; 0: any of the value's."""

    role: str
    offset: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Int:
    """An int argument (32 bits)."""

    value: int


@dataclass(frozen=True)
class Float:
    """A float argument (32 bits)."""

    value: float


Arg = Ref | Int | Float
Dims = tuple[int, int, int]


@dataclass(frozen=True)
class Call:
    """One launch. shared: bytes of dynamic shared memory."""

    kernel: Kernel
    grid: Dims
    block: Dims
    args: tuple[Arg, ...]
    shared: int = 0


@dataclass(frozen=True)
class Shapes:
    """What an operator's calls depend on. x and y are without the batch N.

    adds: input roles whose gradient is added to Ref("add:ROLE"). accumulate: parameter gradients add to what is there.
    want: the roles whose gradients are asked for.
    """

    a: Attrs
    N: int
    x: Shape
    y: Shape
    adds: frozenset[str] = frozenset()
    accumulate: bool = False
    want: frozenset[str] = field(default_factory=frozenset)
    algorithm: str = "auto"  # what the blueprint wants of a convolution: see choose.py
    half: bool = False  # activations and their gradients are stored in half precision (macro REAL = Half)
    sms: int = 0  # multiprocessors of the card, for splits that fill it; 0: unknown
    node: int = 0  # place of the node among the `nodes` of the net that draw random numbers
    nodes: int = 1
    scales: tuple[int, ...] = ()  # of inputs and output, in whole numbers: see calls_int8.py
    moments: bool = False  # a convolution leaves the moments of y, a batchnorm finds those of x, in the role "moments"


CallsOf = Callable[[str, Shapes], list[Call]]
BytesOf = Callable[[str, Shapes], int]


def blocks(n: int, size: int) -> int:
    """How many blocks of `size` cover n."""
    return -(-n // size)


def constants(**values: Any) -> tuple[tuple[str, str | int], ...]:
    """Macros in a fixed order, so that equal kernels are equal."""
    return tuple(sorted(values.items()))
