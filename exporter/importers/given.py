"""What a quantised source says of its whole numbers, gathered while its nodes are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from litenet.trainer.graph import Node
from litenet.trainer.int8.scheme import Quant

from .builder import Builder, Value
from .foreign import Place, Port

WEIGHTED = ("conv2d", "depthwise_conv2d", "linear")
SMALLEST = -127  # of a weight
AGAIN = "Quantise it again with symmetric int8 weights, or import its float form with --int8."


@dataclass(frozen=True)
class Scaled:
    """A constant as the source has it: whole numbers, scales (one, or one for each output channel) and zero points,
    along this axis."""

    steps: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int = 0


    def symmetric(self) -> Scaled | None:
        """The same without zero points, if that is int8 of -127 to 127."""
        axis = [-1 if k == self.axis % self.steps.ndim else 1 for k in range(self.steps.ndim)]
        zero = self.zero.astype(np.int64)
        whole = self.steps.astype(np.int64) - (zero.reshape(axis) if zero.size > 1 else zero.sum())
        fits = whole.size == 0 or SMALLEST <= whole.min() <= whole.max() <= -SMALLEST
        return Scaled(whole.astype(np.int8), self.scale, 0 * zero, self.axis) if fits else None


# Of one run of the source's runtime for inputs (N, ...): the int8 that it has at these names, each (N, ...), uint8 less
# 128; its outputs in real numbers; and whose runtime that is.
Inside = tuple[dict[str, np.ndarray], list[np.ndarray], str]


@dataclass
class Given:
    """quants: by tensor of ours, where the source says so. scales (O) or (1) float32 of weights, biases (O) int32: by
    node. where: the source's nodes, by ours, for messages. other: outputs for inputs (N, ...), as Foreign.run's, by
    other kernels of the source's runtime; None where there are none. sources: by tensor of ours, what the source calls
    it and how it lies there. inside: see Inside. unsigned: of an ONNX source whether its whole numbers are uint8; else
    None."""

    quants: dict[int, Quant] = field(default_factory=dict)
    scales: dict[str, np.ndarray] = field(default_factory=dict)
    biases: dict[str, np.ndarray] = field(default_factory=dict)
    where: dict[str, Place] = field(default_factory=dict)
    other: Callable[[np.ndarray], list[np.ndarray] | None] | None = None
    sources: dict[int, Port] = field(default_factory=dict)
    inside: Callable[[np.ndarray], Inside | None] | None = None
    unsigned: bool | None = None

    def mark(self, b: Builder, v: Value, q: Quant) -> Value:
        """v in whole numbers of scale and zero point q; an operator that changes them where it has others already."""
        if self.quants.get(v.tensor, q) != q:
            v = replace(v, tensor=b.node("activation", [v.tensor], {"activation": "none"}))
        self.quants[v.tensor] = q
        return v

    def note(self, v: Value, name: str) -> Value:
        """The source calls it so."""
        if v.tensor in self.quants:
            self.sources.setdefault(v.tensor, Port(name, v.shape, v.order))
        return v

    def layer(self, place: Place, made: Iterable[Node], weight: Scaled, bias: Scaled | None) -> None:
        """Remember the whole numbers of the one of these nodes that has weights."""
        for n in made:
            if n.op not in WEIGHTED:
                continue
            if weight.zero.any() or weight.steps.dtype != np.int8:
                place.refuse("its weights are not symmetric int8: they have a zero point", AGAIN)
            if weight.steps.min(initial=0) < SMALLEST:
                place.refuse(f"a weight of it is -128; {SMALLEST} to 127 is expected", AGAIN)
            self.scales[n.name] = weight.scale.astype(np.float32)
            if bias is not None:
                self.biases[n.name] = bias.steps.astype(np.int64).reshape(-1)


def less_128(values: np.ndarray) -> np.ndarray:
    """uint8 as the int8 128 below; int8 as they are."""
    return (values ^ np.uint8(128)).view(np.int8) if values.dtype == np.uint8 else values


def quant(place: Place, scale: float, zero: int, unsigned: bool) -> Quant:
    """As ours, which is signed: uint8 are 128 less."""
    try:
        return Quant(float(np.float32(scale)), int(zero) - 128 * unsigned)
    except ValueError as error:
        place.refuse(f"its whole numbers have {error}", AGAIN)
