"""What an operator declares: its permanent number, attributes with ranges, and weights with shapes.

An operator is one module of this folder. It holds
  OP            an Op (below): the facts that blueprint, planner, exporter, C decoder and tests are made from
  out_shape     (a, x[, x2]) -> shape of y; raises ShapeError with a sentence the blueprint reader completes
  macs          (a, x, y) -> multiply-accumulates of one sample
  forward       (a, x[, x2], *weights) -> y           the definition, as used for inference
  forward_train (a, ...) -> (y, aux)                  only where training differs or saves something
  forward_again (a, ...) -> y                         only where forward_train changes state: the bits of its y once
                                                      more, from what it kept; elsewhere forward_train's y serves
  backward      (a, dy, ...) -> {"x": dx, "weight": dweight, ...}
  CASES         what the tests run: attributes, and `x`, the input shape without the batch

Parameter names are the protocol. Besides `a` (the attributes) and `dy`, a function asks by name for the inputs
(`x`, `x2`), the weights, the output (`y`), an auxiliary result of forward_train, `x_shape` (with the batch), `rng`
(random numbers of this launch), or `want` (the set of gradients asked for). The arrays `backward` names are what the
planner keeps alive until then: the signature is the lifetime.

Shapes are written without the batch and NHWC: an image is (H, W, C). Arrays carry the batch in front.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

Shape = tuple[int, ...]

SIZES = {"u8": 1, "u16": 2, "u32": 4, "f32": 4}


class ShapeError(ValueError):
    """An operator cannot take this input; the text says why and, after a line break, what would help."""


class Attrs(SimpleNamespace):
    """The attributes of one node: `a.stride` and so on. Never changed once built."""


@dataclass(frozen=True)
class Attr:
    """One attribute. `count` 2 means (height, width); 4 means (top, left, bottom, right).

    `record` False keeps it out of the file: the device knows it from the tensors or never needs it.
    `default` None means the blueprint must give it; the name of an earlier attribute means that one's value.
    """

    name: str
    type: str
    lo: float
    hi: float
    default: Any = None
    count: int = 1
    record: bool = True
    doc: str = ""


@dataclass(frozen=True)
class Weight:
    """One tensor the operator owns. `fans` gives (fan_in, fan_out) for the initialisers that need them."""

    name: str
    shape: Callable[[Attrs, Shape], Shape]
    init: str = "auto"  # "auto": the layer's weight_init; "zeros", "ones": always
    fans: Callable[[Attrs, Shape], tuple[int, int]] | None = None
    trainable: bool = True  # False: state that forward_train rewrites, such as running statistics
    needs: str | None = None  # present only when this attribute is non-zero
    decay: bool = False  # whether weight decay applies


@dataclass(frozen=True)
class Aux:
    """A result of forward_train that backward reads; `shape` (of a, x, y) is without the batch."""

    name: str
    dtype: str
    shape: Callable[[Attrs, Shape, Shape], Shape]
    batched: bool = True  # False: one for the whole batch


@dataclass(frozen=True)
class Op:
    """The facts of one operator. `id` is written to files: never reused or changed; below 0: no file has it."""

    name: str
    id: int
    summary: str
    attrs: tuple[Attr, ...] = ()
    inputs: tuple[str, ...] = ("x",)
    weights: tuple[Weight, ...] = ()
    aux: tuple[Aux, ...] = ()
    activation: bool = False  # takes a fused activation
    inplace: tuple[str, ...] = ()  # y may overwrite this input
    backward_inplace: bool = False  # dx may overwrite dy
    view: bool = False  # y is x under another shape; nothing runs
    training_only: bool = False  # absent at inference
    imported: bool = False  # made by importers alone: files have it, no blueprint does
    fused: bool = False  # made by fuse.py alone: no blueprint has it, no file, no C code; its id is below 0
    layout: str = "none"  # how the exporter lays out the weights: none, panels, depthwise, vectors
    int8: tuple[str, ...] | None = None  # has an int8 form; what that takes from its record (gen_ops.INT8_FIELDS)
    int8_layout: str = "-"  # how the int8 form lays out its weights, in the words of FORMAT.md
    crosses: bool = False  # from one element type to the other: quantize, dequantize
    inferred: tuple[tuple[str, int], ...] = ()  # blueprint keys checked against an axis of x: ("in_features", -1)
    tolerance: tuple[float, float] = (1e-5, 1e-5)  # (absolute, relative) against the float64 definition

    @property
    def in_files(self) -> bool:
        """Whether a model file may hold it."""
        return not (self.training_only or self.fused)

    @property
    def record_attrs(self) -> tuple[Attr, ...]:
        """The attributes a program record holds, in order; alpha follows where an activation can be fused."""
        own = tuple(attr for attr in self.attrs if attr.record)
        return own + ((ALPHA,) if self.activation else ())


ALPHA = Attr("alpha", "f32", 0.0, 1.0, 0.01, doc="slope of leaky_relu below zero")
BIAS = Attr("bias", "u8", 0, 1, 1, record=False, doc="whether a bias is added")


def window_out(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Positions a window of `kernel` taps takes along one axis: floor((size + pads - reach) / stride) + 1."""
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def image(x: Shape, op: str) -> tuple[int, int, int]:
    """x as (H, W, C), or a ShapeError that says what to do."""
    if len(x) != 3:
        raise ShapeError(f"{op} needs an image (channels, height, width), but its input is {shape_text(x)}")
    return x[0], x[1], x[2]


def shape_text(x: Shape) -> str:
    """A shape as people write it in a blueprint: (H, W, C) becomes 32 x 14 x 14 (C x H x W)."""
    if len(x) == 3:
        return f"{x[2]} x {x[0]} x {x[1]} (C x H x W)"
    return " x ".join(str(n) for n in x) + (" values" if len(x) == 1 else "")
