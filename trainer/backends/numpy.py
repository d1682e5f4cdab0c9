"""The NumPy backend: each launch calls the operator's definition on views of one arena. The reference for all others.

Every value of the plan lives in the arena at its planned offset. What a definition allocates while it computes
(the columns of a convolution, a mask) is NumPy's own and gone when the launch ends; a device kernel needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import rng
from ..graph import Graph
from ..ops import OPS, parameters
from ..plan import Launch, Plan

DTYPES = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "i32": np.int32}


@dataclass(frozen=True)
class Draw:
    """The random numbers of one launch: a function of (seed, step, node) and the position, nothing else."""

    seed: int
    step: int
    node: int
    nodes: int  # that draw, in the whole net

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """float32 in [0, 1)."""
        return rng.uniform(self.seed, rng.DROPOUT, self.step * self.nodes + self.node, shape)


def drawing(graph: Graph) -> dict[str, int]:
    """The nodes that draw random numbers, each with its place among them: the same however others are fused."""
    names = (n.name for n in graph.nodes if "rng" in parameters(OPS[n.op].backward))
    return {name: place for place, name in enumerate(names)}


class NumpyBackend:
    """Runs plans that share one persistent layout (a training and an evaluation plan) in one block of memory."""

    name = "numpy"

    def __init__(self, plans: Iterable[Plan], poison: bool = False):
        self.plans = list(plans)
        self.bytes = max(plan.arena_bytes for plan in self.plans)
        self.poison = poison
        memory = np.zeros(self.bytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        self.arena = memory[start : start + self.bytes]
        self._views: dict[tuple[int, str], np.ndarray] = {}
        self._drawing = drawing(self.plans[0].graph)
        if poison:
            self._poison(max(plan.persistent_bytes for plan in self.plans), self.bytes)

    # ---- arrays

    def array(self, plan: Plan, name: str, rows: int | None = None) -> np.ndarray:
        """A value as a view of the arena; of a batched one the first `rows` samples."""
        key = (id(plan), name)
        view = self._views.get(key)
        if view is None:
            offset, shape, dtype = plan.view(name)
            size = int(np.prod(shape)) * np.dtype(DTYPES[dtype]).itemsize
            view = self._views[key] = self.arena[offset : offset + size].view(DTYPES[dtype]).reshape(shape)
        return view[:rows] if rows is not None and plan.values[name].batched else view

    def flat(self, plan: Plan, kind: str) -> np.ndarray:
        """All tensors of a persistent kind (weights, gradients, ...) as one float32 vector, gaps included."""
        buffers = [b for b in plan.buffers if b.kind == kind]
        if not buffers:
            return np.empty(0, np.float32)
        start, end = buffers[0].offset, max(b.offset + b.bytes for b in buffers)
        return self.arena[start:end].view(np.float32)

    # ---- launches

    def run(
        self, plan: Plan, launch: Launch, rows: int, seed: int = 0, step: int = 0, accumulate: bool = False
    ) -> None:
        """One launch that is an operator's: forward, again, sum or backward."""
        if launch.kind == "backward":
            self.backward(plan, launch, rows, seed, step, accumulate)
        elif launch.kind == "sum":
            self.add(plan, launch, rows)
        else:
            self.forward(plan, launch, rows, seed, step)

    def forward(self, plan: Plan, launch: Launch, rows: int, seed: int = 0, step: int = 0) -> None:
        """Run one forward launch; with plan.training the training form, which also writes the auxiliaries. Run again,
        it writes its output alone."""
        node = launch.node
        assert node is not None
        module, again = OPS[node.op], launch.kind == "again"
        train = plan.training and not launch.still and hasattr(module, "forward_train")
        call = module.forward_train if train else module.forward
        if again and hasattr(module, "forward_again") and not launch.still:
            call, train = module.forward_again, False
        env = self._read(plan, launch, rows)
        env["rng"] = Draw(seed, step, self._drawing.get(node.name, 0), len(self._drawing))
        result = call(node.attrs, *(env.get(p) for p in parameters(call)))
        y, aux = result if train else (result, {})
        self._write(plan, launch.writes["y"], y, rows)
        for role, value in () if again else aux.items():
            name = launch.writes.get(role) or node.params[role]
            self._write(plan, name, value, rows)

    def backward(
        self, plan: Plan, launch: Launch, rows: int, seed: int = 0, step: int = 0, accumulate: bool = False
    ) -> None:
        """Run one backward launch. With accumulate, parameter gradients are added to what is there."""
        node = launch.node
        assert node is not None
        module = OPS[node.op]
        env = self._read(plan, launch, rows)
        env["rng"] = Draw(seed, step, self._drawing.get(node.name, 0), len(self._drawing))
        env["x_shape"] = (rows, *plan.graph.shapes(node)[0])
        env["want"] = frozenset(launch.writes)
        grads = module.backward(node.attrs, *(env.get(p) for p in parameters(module.backward)))
        for role, name in launch.writes.items():
            value, older = grads[role], launch.adds.get(role)
            if older is not None:
                value = self.array(plan, older, rows) + value
            elif accumulate and role in node.params:
                value = self.array(plan, name) + value
            self._write(plan, name, value, rows)

    def add(self, plan: Plan, launch: Launch, rows: int) -> None:
        """y = a + b, where a tensor's gradient comes from several nodes."""
        env = self._read(plan, launch, rows)
        np.add(env["a"], env["b"], out=self.array(plan, launch.writes["y"], rows))

    def _read(self, plan: Plan, launch: Launch, rows: int) -> dict[str, Any]:
        return {role: self.array(plan, name, rows) for role, name in launch.reads.items()}

    def _write(self, plan: Plan, name: str, value: np.ndarray, rows: int) -> None:
        np.copyto(self.array(plan, name, rows), value)

    # ---- proof that nothing reads what the plan calls dead

    def after(self, plan: Plan, index: int) -> None:
        """With poison, fill the buffers whose last launch was `index` with NaN (all bits set).

        What lives to the end of a plan is its result: the caller reads it.
        """
        if self.poison and index < len(plan.launches) - 1:
            for b in plan.buffers:
                if not b.persistent and b.last == index:
                    self._poison(b.offset, b.offset + b.bytes)

    def _poison(self, start: int, end: int) -> None:
        self.arena[start:end] = 0xFF
