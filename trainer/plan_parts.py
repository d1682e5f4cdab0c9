"""What a plan is made of: values, buffers, launches. plan.py makes plans, plan_draft.py holds how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from .graph import Graph, Node
from .ops import Shape

ITEM = {"f32": 4, "f16": 2, "u8": 1, "i8": 1, "i32": 4}
ALIGN = 256  # bytes: where each transient buffer and each persistent kind starts
VECTOR = 16  # bytes: where each tensor of a persistent kind starts, so that float4 loads work


@dataclass(frozen=True)
class Value:
    """An array; `shape` includes the batch where it is batched. `buffer` is the index of where it lives."""

    name: str
    shape: Shape
    dtype: str
    buffer: int
    batched: bool

    @property
    def bytes(self) -> int:
        return prod(self.shape) * ITEM[self.dtype]


@dataclass(frozen=True)
class Buffer:
    """Bytes of the arena from `offset`, in use from launch `first` to launch `last` (inclusive)."""

    name: str
    kind: str  # one of PERSISTENT; external; or input, activation, gradient, auxiliary, scratch
    owner: str  # the blueprint layer
    bytes: int
    first: int
    last: int
    offset: int

    @property
    def persistent(self) -> bool:
        return self.kind in PERSISTENT


PERSISTENT = ("control", "weights", "state", "optimizer", "gradients")
FIXED = (*PERSISTENT, "external")  # never overwritten by another value; external ones take no bytes of the arena


@dataclass(frozen=True)
class Launch:
    """One kernel to run. reads and writes map the operator's roles (x, weight, y, dy, ...) to values.

    `adds` names the written roles that add to what another value holds, where a tensor feeds several nodes.
    """

    name: str
    kind: str  # load, forward, loss, backward, sum, update, clip, average; again: forward anew, for the backward pass
    node: Node | None
    reads: dict[str, str]
    writes: dict[str, str]
    adds: dict[str, str] = field(default_factory=dict)
    group: str = ""  # for an update: the parameter, or "" for all
    still: bool = False  # a forward that runs as at inference, though the plan trains


@dataclass(frozen=True)
class Plan:
    """What a backend follows. All sizes in bytes."""

    graph: Graph
    batch: int
    training: bool
    update: str
    launches: tuple[Launch, ...]
    values: dict[str, Value]
    buffers: tuple[Buffer, ...]
    persistent_bytes: int
    arena_bytes: int
    lower_bound: int
    renames: tuple[tuple[int, str, str], ...]  # (launch from which on it holds, new value, value whose bytes it is)
    storage: str = "f32"  # of activations and their gradients: f32 or f16
    recomputed: frozenset[str] = frozenset()  # values that backward computes once more instead of keeping them

    def view(self, name: str) -> tuple[int, Shape, str]:
        """(offset, shape, dtype) of a value."""
        v = self.values[name]
        return self.buffers[v.buffer].offset, v.shape, v.dtype

    def live(self, launch: int) -> list[Buffer]:
        """Transient buffers in use while a launch runs."""
        return [b for b in self.buffers if b.kind not in FIXED and b.first <= launch <= b.last]


@dataclass(frozen=True)
class Needs:
    """What a device wants in the arena besides the net's own values.

    control: name -> (shape, dtype) of values that last, such as the step's counters. scratch: bytes that one launch
    needs while it runs, as a function of (graph, batch, launch, training). moments: numbers that a convolution leaves
    for the batchnorm behind it (fuse.join_moments), of (values of a channel, channels).
    """

    control: dict[str, tuple[Shape, str]] = field(default_factory=dict)
    scratch: Callable[[Graph, int, Launch, bool], int] | None = None
    moments: Callable[[int, int], int] = lambda values, channels: 2 * channels
