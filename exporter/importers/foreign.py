"""What an importer hands over, and the one way it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from litenet.trainer.errors import UserError
from litenet.trainer.graph import Graph

if TYPE_CHECKING:
    from .given import Given


@dataclass(frozen=True)
class Port:
    """An input or output of the source: its name and shape there (with the batch), and the order of axes in which
    our array, with a batch in front, becomes that one."""

    name: str
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def to_source(self, ours: np.ndarray) -> np.ndarray:
        """(N, ...), each sample as the source has it, without a batch of 1."""
        own = self.shape[1:] if self.shape[:1] == (1,) else self.shape
        return ours.transpose(self.order).reshape(len(ours), *own)

    def to_ours(self, source: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The inverse, for arrays whose axes are those of the source."""
        back = np.argsort(self.order)
        turned = (1, *shape)
        return source.reshape(-1, *(turned[k] for k in self.order[1:])).transpose(back)


@dataclass(frozen=True)
class Foreign:
    """A model read from another format: unfused, so that it is the NumPy definition of the source too."""

    graph: Graph
    weights: dict[str, np.ndarray]
    input: Port
    outputs: tuple[Port, ...]
    kind: str  # "ONNX", "TFLite"
    where: str
    run: Callable[[np.ndarray], tuple[list[np.ndarray], str] | None]  # the source's own answers, and by whom; or None
    rounds: bool = False  # the source has int8 weights, and its runtime rounds what it multiplies with them
    given: Given | None = None  # the whole numbers of a quantised source


@dataclass(frozen=True)
class Place:
    """One node of the source, for messages."""

    where: str
    node: str
    op: str
    shapes: tuple[str, ...] = ()

    def refuse(self, why: str, instead: str = "") -> NoReturn:
        given = f" of {', '.join(self.shapes)}" if self.shapes else ""
        more = f"\n  {instead}" if instead else ""
        raise UserError(f"{self.where}: node {self.node!r} ({self.op}{given}): {why}.{more}")


# What malformed attributes and constants lead to, inside libraries too; a node that raises one is refused by name.
MALFORMED = (
    ValueError, TypeError, IndexError, KeyError, AttributeError, NotImplementedError, ArithmeticError, RuntimeError,
)  # fmt: skip


def shape_text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
