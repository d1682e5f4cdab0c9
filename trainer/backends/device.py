"""A plan on a device with kernels: one arena, launches bound to addresses once, a whole step as one replay.

Knows no CUDA: a Device (cuda.py, or the tests' CPU shim) allocates, copies, launches and captures. What kernels are
launched for an operator is decided in trainer/kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from ..graph import Graph, Node
from ..kernels import calls_gemm, calls_load, calls_other, calls_step
from ..kernels.call import Call, Ref, Shapes
from ..kernels.choose import Choice
from ..losses import BoundLoss
from ..ops import OPS
from ..optimizers import Optimizer
from ..plan import Launch, Plan
from .numpy import DTYPES

TRAINED = (*calls_gemm.PARTS, *calls_other.CALLS)  # operators that have kernels
Bound = tuple[Call, tuple[int | None, ...]]  # a call, and the address of each of its Refs in order


class Device(Protocol):
    """What a device must do. Addresses are plain integers."""

    name: str
    sms: int

    def allocate(self, size: int) -> int: ...
    def upload(self, address: int, array: np.ndarray) -> None: ...
    def download(self, address: int, array: np.ndarray) -> None: ...
    def launch(self, call: Call, addresses: Sequence[int | None]) -> None: ...
    def capture(self, launches: Sequence[Bound]) -> Callable[[], None]: ...
    def synchronize(self) -> None: ...


def supports(graph: Graph) -> str | None:
    """The first node no kernel trains, or None."""
    return next((f"{n.name} ({n.op})" for n in graph.nodes if n.op not in TRAINED and not OPS[n.op].OP.view), None)


def shapes(graph: Graph, node: Node, rows: int, sms: int, **more: Any) -> Shapes:
    """What the node's calls depend on."""
    index = {n.name: i for i, n in enumerate(graph.nodes)}
    x, y = graph.shapes(node)[0], graph.tensors[node.output].shape
    return Shapes(node.attrs, rows, x, y, sms=sms, node=index[node.name], nodes=len(graph.nodes), **more)


def workspace(choice: Choice, loss: BoundLoss | None, classes: bool) -> Callable[[Graph, int, Launch, bool], int]:
    """Bytes of scratch a launch of a plan needs, for the planner."""
    sms = choice.device.sms

    def need(graph: Graph, batch: int, launch: Launch, training: bool) -> int:
        if launch.kind == "loss" and loss is not None:
            return calls_step.loss_scratch(batch, graph.output_shape, classes, sms)
        if launch.node is None or launch.kind not in ("forward", "backward"):
            return 0
        s = shapes(graph, launch.node, batch, sms, adds=frozenset(launch.adds), want=wanted(launch))
        return choice.scratch(launch.node.op, direction(launch, training), s)

    return need


def direction(launch: Launch, training: bool) -> str:
    return "backward" if launch.kind == "backward" else "train" if training else "forward"


def wanted(launch: Launch) -> frozenset[str]:
    return frozenset(launch.writes) - {"scratch"} if launch.kind == "backward" else frozenset()


class DeviceBackend:
    """Runs a training and an evaluation plan in one arena on a device. Host arrays go in and out by name."""

    def __init__(
        self, device: Device, choice: Choice, plans: Iterable[Plan], loss: BoundLoss, rule: Optimizer, classes: bool
    ):
        self.device, self.choice, self.loss, self.rule, self.classes = device, choice, loss, rule, classes
        self.plans = list(plans)
        self.bytes = max(plan.arena_bytes for plan in self.plans)
        self.base = device.allocate(self.bytes)
        device.upload(self.base, np.zeros(self.bytes, np.uint8))
        self.external: dict[str, int] = {}  # arrays outside the arena: the data set and its answers

    # ---- arrays

    def address(self, plan: Plan, name: str) -> int:
        return self.base + plan.view(name)[0]

    def read(self, plan: Plan, name: str, rows: int | None = None) -> np.ndarray:
        """A value as a copy on the host; of a batched one the first `rows` samples."""
        _, shape, dtype = plan.view(name)
        if rows is not None and plan.values[name].batched:
            shape = (rows, *shape[1:])
        out = np.empty(shape, DTYPES[dtype])
        self.device.download(self.address(plan, name), out)
        return out

    def write(self, plan: Plan, name: str, array: np.ndarray) -> None:
        """Put a host array into a value (the front of it, where it is smaller)."""
        self.device.upload(self.address(plan, name), np.ascontiguousarray(array, DTYPES[plan.view(name)[2]]))

    def run_of(self, plan: Plan, prefix: str = "") -> tuple[int, int]:
        """(address, float32 values) of a run of tensors: all weights, all gradients, or one optimiser state."""
        names = [prefix + p.name for p in plan.graph.trainable]
        first, (last, shape, _) = plan.view(names[0])[0], plan.view(names[-1])
        return self.base + first, (last + 4 * prod(shape) - first) // 4

    def read_run(self, plan: Plan, prefix: str = "") -> np.ndarray:
        """Such a run as one float32 vector, gaps included: a copy."""
        address, count = self.run_of(plan, prefix)
        out = np.empty(count, np.float32)
        self.device.download(address, out)
        return out

    def write_run(self, plan: Plan, vector: np.ndarray, prefix: str = "") -> None:
        self.device.upload(self.run_of(plan, prefix)[0], np.ascontiguousarray(vector, np.float32))

    # ---- launches

    def bind(self, plan: Plan, launch: Launch, rows: int, accumulate: bool = False) -> list[Bound]:
        """The kernel calls of a forward, loss, sum or backward launch, with addresses."""
        names = dict(launch.reads)
        if launch.kind == "backward":
            names |= {f"d:{role}": name for role, name in launch.writes.items() if role != "scratch"}
            names |= {f"add:{role}": name for role, name in launch.adds.items()}
        else:
            names |= launch.writes
        if "scratch" in launch.writes:
            names["scratch"] = launch.writes["scratch"]
        return self.resolve(plan, self._calls(plan, launch, rows, accumulate), names)

    def _calls(self, plan: Plan, launch: Launch, rows: int, accumulate: bool) -> list[Call]:
        graph, sms = plan.graph, self.device.sms
        if launch.kind == "sum":
            return calls_step.sum_calls(rows * prod(plan.values[launch.writes["y"]].shape[1:]), sms)
        if launch.kind == "loss":
            return calls_step.loss_calls(self.loss, rows, graph.output_shape, self.classes, sms)
        assert launch.node is not None
        more = {"adds": frozenset(launch.adds), "accumulate": accumulate, "want": wanted(launch)}
        s = shapes(graph, launch.node, rows, sms, **more)
        return self.choice.calls(launch.node.op, direction(launch, plan.training), s)

    def bind_load(self, plan: Plan, dtype: str, rows: int, count: int, ordered: bool, answers: bool) -> list[Bound]:
        """Gather `rows` samples of a set of `count` (roles set, labels, and order if ordered) into x and target."""
        x = plan.graph.tensors[plan.graph.input]
        C = x.shape[-1] if len(x.shape) == 3 else plan.values["mean"].shape[0] if "mean" in plan.values else 1
        words = prod(plan.values["target"].shape[1:]) if answers else 1
        calls = calls_load.load_calls(
            dtype, rows, plan.batch, count, prod(x.shape), C, words, dtype == "u8", self.device.sms
        )
        names = {"x": x.name} | ({"target": "target"} if answers else {})
        return self.resolve(plan, calls, names, skip={"step"} | (set() if ordered else {"order"}))

    def bind_update(self, plan: Plan, clip_value: float, clip_norm: float, bounds: int) -> list[Bound]:
        """Clip and update all weights at once."""
        runs = {"weights": "", "gradients": "d:"} | {state: f"{state}:" for state in self.rule.states}
        addresses = {role: self.run_of(plan, prefix)[0] for role, prefix in runs.items()}
        count = self.run_of(plan)[1]
        calls = calls_step.update_calls(self.rule, count, bounds, clip_value, clip_norm, 0, self.device.sms)
        return self.resolve(plan, calls, {}, addresses=addresses)

    def bind_advance(self, plan: Plan, updated: bool, history: int) -> list[Bound]:
        """The end of a micro-step: the norm, and a row of the history."""
        partials = calls_step.partial_count(self.run_of(plan)[1], self.device.sms) if updated else 0
        return self.resolve(plan, calls_step.advance_calls(partials, 0, history), {})

    def resolve(
        self,
        plan: Plan,
        calls: Iterable[Call],
        names: dict[str, str],
        skip: Iterable[str] = (),
        addresses: dict[str, int] | None = None,
    ) -> list[Bound]:
        """Calls with the address of each Ref: a value of `names`, a control value, or an array outside the arena."""
        roles = {n: self.address(plan, n) for n, v in plan.values.items() if plan.buffers[v.buffer].kind == "control"}
        roles |= self.external | (addresses or {}) | {role: self.address(plan, name) for role, name in names.items()}
        for role in skip:
            roles.pop(role, None)
        out = []
        for call in calls:
            refs = [arg for arg in call.args if isinstance(arg, Ref)]
            out.append((call, tuple(roles[r.role] + r.offset if r.role in roles else None for r in refs)))
        return out

    def run(self, bound: Iterable[Bound]) -> None:
        for call, addresses in bound:
            self.device.launch(call, addresses)
