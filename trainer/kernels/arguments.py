"""Arguments that the calls of several operators have in common: kernels by storage type, gradients by role, sizes."""

from __future__ import annotations

from math import prod
from typing import Any

from .call import Int, Kernel, Ref, Shapes, constants
from .grids import Columns
from .variants import storage

X, X2, Y, DY, DX = Ref("x"), Ref("x2"), Ref("y"), Ref("dy"), Ref("d:x")
PART = Ref("scratch")  # partial results
NONE = Ref("")  # NULL: no launch has a role of that name


def kernel(s: Shapes, file: str, name: str, **macros: Any) -> Kernel:
    """A kernel with these macros, over activations as they are stored."""
    return Kernel(file, name, constants(**macros, **storage(s)))


def matrix(s: Shapes) -> tuple[int, int]:
    """x as (rows, columns)."""
    return s.N * prod(s.x[:-1]), s.x[-1]


def older(s: Shapes, role: str = "x") -> Ref:
    """The gradient that the one of this role is added to."""
    return Ref(f"add:{role}") if role in s.adds else NONE


def wanted(s: Shapes, role: str) -> Ref:
    """Where the gradient of this role goes, if it is asked for."""
    return Ref(f"d:{role}") if role in s.want else NONE


def cut_of(c: Columns) -> tuple[Int, Int]:
    """chunk and log_tx, as columns.cuh takes them."""
    return Int(c.chunk), Int(c.log_tx)
