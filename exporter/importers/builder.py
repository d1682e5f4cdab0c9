"""Building our graph from another's nodes. What is foreign here is only the order of axes.

A value of the source is a `Value`: a tensor of ours, (H,W,C) and the like, and how the source's array comes from it:

    source array = our array with a batch axis in front, .transpose(order).reshape(shape)

so a transpose or a reshape of the source usually moves nothing: it changes `order` or `shape`, and an operator is
made only where somebody needs the values in an order they do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from litenet.trainer.graph import Graph, Node, Param, Tensor
from litenet.trainer.ops import OPS, ShapeError, make_attrs

from .foreign import Place

NCHW_OF_NHWC: tuple[int, ...] = (0, 3, 1, 2)
NHWC_OF_NCHW: tuple[int, ...] = (0, 2, 3, 1)


@dataclass(frozen=True)
class Value:
    """See above. `shape` is the source's, with its batch of 1."""

    tensor: int
    order: tuple[int, ...]
    shape: tuple[int, ...]


class Builder:
    """Adds nodes one by one. Ends its life as the fields of a Graph."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.params: dict[str, Param] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.names: set[str] = set()
        self.place = Place("", "", "")  # the node that is being read

    # ---- tensors and nodes

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    def tensor(self, name: str, shape: Sequence[int]) -> int:
        self.tensors.append(Tensor(name, tuple(map(int, shape))))
        return len(self.tensors) - 1

    def input(self, shape: Sequence[int], order: Sequence[int]) -> Value:
        """The input, whose shape in the source is given; order: how it comes from ours."""
        full = [0] * len(order)
        for k, axis in enumerate(order):
            full[axis] = shape[k]
        self.names.add("input")
        return Value(self.tensor("input", full[1:]), tuple(order), tuple(shape))

    def unique(self, name: str) -> str:
        found, n = name, 1
        while found in self.names:
            n += 1
            found = f"{name}.{n}"
        self.names.add(found)
        return found

    def node(self, op: str, inputs: Sequence[int], given: dict[str, Any], weights: dict[str, Any] | None = None) -> int:
        """One operator of ours; returns the tensor it puts out. weights by role; None is left out."""
        module, name = OPS[op], self.unique(self.place.node or op)
        try:
            attrs = make_attrs(module.OP, given)
            if op == "linear":
                x = self.shape(inputs[0])
                shape = (x[0], attrs.out_features) if len(x) == 2 else (attrs.out_features,)
            else:
                shape = tuple(module.out_shape(attrs, *(self.shape(t) for t in inputs)))
        except (ShapeError, ValueError) as error:
            sentence, _, remedy = str(error).partition("\n")
            self.place.refuse(f"our {op} cannot do it: {sentence.rstrip('.')}", remedy)
        roles = {}
        for role, array in (weights or {}).items():
            if array is None:
                continue
            key, array = f"{name}.{role}", np.ascontiguousarray(array, np.float32)
            if not np.isfinite(array).all():
                self.place.refuse("its weights hold NaN or infinite values")
            self.weights[key] = array
            self.params[key] = Param(key, array.shape, "zeros", (1, 1), True, False, name)
            roles[role] = key
        out = self.tensor(name, shape)
        self.nodes.append(Node(name, op, attrs, tuple(inputs), out, roles, name))
        return out

    def graph(self, name: str, source: int, outputs: Sequence[int]) -> Graph:
        return Graph(name, tuple(self.tensors), tuple(self.nodes), self.params, source, tuple(outputs), {})

    # ---- order and shape

    def base(self, v: Value) -> tuple[int, ...]:
        return (1, *self.shape(v.tensor))

    def turned(self, v: Value) -> tuple[int, ...]:
        """The shape between transpose and reshape."""
        base = self.base(v)
        return tuple(base[k] for k in v.order)

    def in_place(self, v: Value) -> bool:
        """Whether the source's values stand in memory as ours do: only axes of 1 change their places."""
        base = self.base(v)
        real = [k for k in v.order if base[k] > 1]
        return real == sorted(real)

    def transposed(self, v: Value, axes: Sequence[int]) -> Value:
        """v.transpose(axes) of the source."""
        if list(axes) == list(range(len(v.shape))):
            return v
        if self.turned(v) != v.shape and v.shape[0] != 1:  # no batch: one is put in front meanwhile
            batch = self.transposed(self.reshaped(v, (1, *v.shape)), [0, *(k + 1 for k in axes)])
            return self.reshaped(batch, batch.shape[1:])
        if self.turned(v) != v.shape:
            v = self.shaped_value(v)
        return Value(v.tensor, tuple(v.order[k] for k in axes), tuple(v.shape[k] for k in axes))

    def reshaped(self, v: Value, shape: Sequence[int]) -> Value:
        if prod(shape) != prod(v.shape):
            self.place.refuse(f"{prod(v.shape)} values cannot have shape {tuple(shape)}")
        return self.split(replace(v, shape=tuple(map(int, shape))))

    def split(self, v: Value) -> Value:
        """Where the new shape only cuts one axis of ours in two, our tensor takes the cut too, so that a transpose
        behind it (a channel shuffle) still moves nothing twice."""
        turned, shape = self.turned(v), v.shape
        if len(shape) != len(turned) + 1 or len(shape) > 5 or self.in_place(v):
            return v
        for k, n in enumerate(turned):
            if shape[:k] == turned[:k] and shape[k + 2 :] == turned[k + 1 :] and shape[k] * shape[k + 1] == n:
                axis, base = v.order[k], self.base(v)
                if axis == 0:
                    return v
                cut = (*base[1:axis], shape[k], shape[k + 1], *base[axis + 1 :])
                order = [a + (a > axis) for a in v.order]
                return Value(self.view(v.tensor, cut), (*order[: k + 1], axis + 1, *order[k + 1 :]), shape)
        return v

    def view(self, tensor: int, shape: Sequence[int]) -> int:
        """The tensor under another shape."""
        shape = tuple(shape)
        if self.shape(tensor) == shape:
            return tensor
        if not 1 <= len(shape) <= 4:
            self.place.refuse(f"it needs a tensor of {len(shape)} axes, {shape}; a .bin holds up to 4")
        return self.node("reshape", [tensor], {"shape": [*shape, *[0] * (4 - len(shape))]})

    def rows(self, v: Value) -> int:
        """A tensor of ours whose memory is that of the source's array, whatever its shape."""
        if self.in_place(v):
            return v.tensor
        base = self.base(v)
        axes = [k - 1 for k in v.order if k > 0]
        if len(base) > 5:
            self.place.refuse(f"it needs a tensor of {len(base) - 1} axes; a .bin holds up to 4")
        return self.node("transpose", [v.tensor], {"axes": [*axes, *range(len(axes), 4)]})

    def shaped(self, v: Value, shape: Sequence[int] | None = None) -> int:
        """A tensor of ours that is the source's array (without its batch of 1), or that under another shape."""
        return self.view(self.rows(v), plain_shape(v.shape) if shape is None else shape)

    def shaped_value(self, v: Value) -> Value:
        return self.plain(self.shaped(v), v.shape)

    def plain(self, tensor: int, shape: Sequence[int]) -> Value:
        """The tensor as a value whose memory order is the source's."""
        return Value(tensor, tuple(range(len(self.shape(tensor)) + 1)), tuple(shape))

    def image(self, v: Value, channels_first: bool) -> int:
        """(H,W,C) of a value that the source has as (1,C,H,W) or (1,H,W,C)."""
        if len(v.shape) != 4 or v.shape[0] != 1:
            self.place.refuse(f"an image is expected, not {v.shape}")
        last = self.transposed(v, NHWC_OF_NCHW) if channels_first else v
        return self.shaped(last)

    def of_image(self, tensor: int, channels_first: bool) -> Value:
        """The inverse."""
        H, W, C = self.shape(tensor)
        if channels_first:
            return Value(tensor, NCHW_OF_NHWC, (1, C, H, W))
        return Value(tensor, (0, 1, 2, 3), (1, H, W, C))

    def same(self, v: Value, tensor: int) -> Value:
        """The value that an elementwise operator made of v."""
        return replace(v, tensor=tensor)


def plain_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape of the source without its batch of 1."""
    return tuple(shape[1:]) if len(shape) > 1 and shape[0] == 1 else tuple(shape) or (1,)
