"""A plan on a device with kernels: one arena, launches bound to addresses once, a whole step as one replay.

Knows no CUDA: a Device (cuda.py, or the tests' CPU shim) allocates, copies, launches and captures. What kernels are
launched for an operator is decided in trainer/kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from ..aids import AVERAGE
from ..data.augment import Augmentation
from ..graph import Graph, Node
from ..kernels import calls_gemm, calls_int8, calls_load, calls_other, calls_step
from ..kernels.call import Call, Ref, Shapes
from ..kernels.choose import Choice
from ..losses import BoundLoss
from ..ops import OPS, Shape
from ..optimizers import Optimizer
from ..plan import Launch, Plan
from .lanes import Bound, Span
from .numpy import DTYPES, drawing

TRAINED = (*calls_gemm.PARTS, *calls_other.CALLS)  # operators that have kernels


@dataclass(frozen=True)
class Source:
    """Where a batch is gathered from: addresses of `count` samples and of their answers, bytes or float32.

    shape: of a sample, (H, W, C) of a picture. ordered: the step's order says which samples; else the first ones.
    """

    set: int
    labels: int
    count: int
    shape: Shape
    dtype: str  # u8 or f32
    ordered: bool
    slot: int = -1  # of a ring, where the batch was sent


class Device(Protocol):
    """What a device must do. Addresses are plain integers."""

    name: str
    sms: int

    def allocate(self, size: int) -> int: ...
    def upload(self, address: int, array: np.ndarray) -> None: ...
    def zero(self, address: int, size: int) -> None: ...
    def copy(self, source: int, target: int, size: int) -> None: ...
    def download(self, address: int, array: np.ndarray) -> None: ...
    def launch(self, call: Call, addresses: Sequence[int | None]) -> None: ...
    def capture(self, launches: Sequence[Bound]) -> Callable[[], None]: ...
    def synchronize(self) -> None: ...
    def pinned(self, size: int) -> np.ndarray: ...
    def lane(self, slots: int) -> Any: ...


def supports(graph: Graph) -> str | None:
    """The first node no kernel trains, or None."""
    return next((f"{n.name} ({n.op})" for n in graph.nodes if n.op not in TRAINED and not OPS[n.op].OP.view), None)


def shapes(graph: Graph, node: Node, rows: int, sms: int, **more: Any) -> Shapes:
    """What the node's calls depend on."""
    places = drawing(graph)
    x, y = graph.shapes(node)[0], graph.tensors[node.output].shape
    more["algorithm"] = node.algorithm
    more |= {"node": places.get(node.name, 0), "nodes": max(len(places), 1), "moments": bool(node.moments)}
    more["scales"] = node.scales
    return Shapes(node.attrs, rows, x, y, sms=sms, **more)


def workspace(
    choice: Choice, half: bool = False, limits: dict[str, int] | None = None
) -> Callable[[Graph, int, Launch, bool], int]:
    """Bytes of scratch a launch of a plan needs, for the planner. limits: how many it may need, by launch, 0 where
    nothing is said; None: as many as are fastest."""
    known: dict[tuple, int] = {}

    def need(graph: Graph, batch: int, launch: Launch, training: bool) -> int:
        if launch.node is None or launch.kind not in ("forward", "again", "backward"):
            return 0
        limit = None if limits is None else max(limits.get(launch.name, 0), 0)
        key = (id(graph), batch, launch.kind, launch.node.name, frozenset(launch.adds), wanted(launch), training)
        if key not in known:
            more = {"half": half, "adds": frozenset(launch.adds), "want": wanted(launch)}
            s = shapes(graph, launch.node, batch, choice.device.sms, **more)
            known[key] = choice.scratch(launch.node.op, direction(launch, training), s, limit)
        return known[key]

    return need


def options(
    choice: Choice, graph: Graph, batch: int, launches: Iterable[Launch], half: bool
) -> dict[str, list[list[tuple[float, int]]]]:
    """`Choice.options` of the launches of a training plan that are matrix products, by name."""
    found = {}
    for launch in launches:
        if launch.node is not None and launch.node.op in calls_gemm.PARTS and launch.kind != "sum":
            more = {"half": half, "adds": frozenset(launch.adds), "want": wanted(launch)}
            s = shapes(graph, launch.node, batch, choice.device.sms, **more)
            found[launch.name] = choice.options(launch.node.op, direction(launch, True), s)
    return found


def kernels(choice: Choice, graph: Graph, batch: int, launches: Iterable[Launch], training: bool, half: bool) -> set:
    """The kernels that the operators' launches may come to, to be compiled together."""
    found = set()
    for launch in launches:
        if launch.node is not None and launch.kind in ("forward", "again", "backward"):
            more = {"half": half, "adds": frozenset(launch.adds), "want": wanted(launch)}
            s = shapes(graph, launch.node, batch, choice.device.sms, **more)
            found |= choice.kernels(launch.node.op, direction(launch, training), s)
    return found


def direction(launch: Launch, training: bool) -> str:
    """The word by which trainer/kernels knows what a launch wants."""
    if launch.still:
        return "forward"
    return launch.kind if launch.kind in ("backward", "again") else "train" if training else "forward"


def wanted(launch: Launch) -> frozenset[str]:
    return frozenset(launch.writes) - {"scratch"} if launch.kind == "backward" else frozenset()


# control values that no operator writes
CONSTANT = ("step", "order", "mean", "std", "scaling", "class_weights", "rate_starts", "rate_factors")


class DeviceBackend:
    """Runs a training and an evaluation plan in one arena on a device. Host arrays go in and out by name."""

    def __init__(
        self, device: Device, choice: Choice, plans: Iterable[Plan], loss: BoundLoss, rule: Optimizer, classes: bool
    ):
        self.device, self.choice, self.loss, self.rule, self.classes = device, choice, loss, rule, classes
        self.entering: int | None = None  # the place of the scale by which the input is rounded, if it is
        self.plans = list(plans)
        self.bytes = max(plan.arena_bytes for plan in self.plans)
        self.base = device.allocate(self.bytes)
        device.zero(self.base, self.bytes)

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

    def run_of(self, plan: Plan, prefix: str = "", of: Sequence[str] | None = None) -> tuple[int, int]:
        """(address, float32 values) of a run of tensors: all weights, all gradients, or one optimiser state; `of`
        names others than the weights."""
        names = [prefix + name for name in of or [p.name for p in plan.graph.trainable]]
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

    def bind(
        self, plan: Plan, launch: Launch, rows: int, accumulate: bool = False, mixed: bool = False
    ) -> list[Bound]:
        """The kernel calls of a forward, again, loss, sum or backward launch, with addresses. mixed: the batch is mixed
        with itself (data/mix.py)."""
        names = dict(launch.reads)
        if launch.kind == "backward":
            names |= {f"d:{role}": name for role, name in launch.writes.items() if role != "scratch"}
            names |= {f"add:{role}": name for role, name in launch.adds.items()}
        else:
            names |= launch.writes
        if "scratch" in launch.writes:
            names["scratch"] = launch.writes["scratch"]
        state = {p.name for p in plan.graph.statistics}
        written = {*launch.writes.values(), *(state if launch.kind == "forward" and plan.training else ())}
        keeps = [role for role, name in names.items() if name not in written]
        return self.resolve(plan, self._calls(plan, launch, rows, accumulate, mixed), names, keeps=keeps)

    def _calls(self, plan: Plan, launch: Launch, rows: int, accumulate: bool, mixed: bool) -> list[Call]:
        graph, sms, half = plan.graph, self.device.sms, plan.storage == "f16"
        if launch.kind == "sum":
            return calls_step.sum_calls(rows * prod(plan.values[launch.writes["y"]].shape[1:]), sms, half)
        if launch.kind == "loss":
            history, width, _ = plan.view("history")[1]
            return calls_step.loss_calls(
                self.loss, rows, graph.output_shape, self.classes, history, width, half, mixed
            )
        assert launch.node is not None
        more = {"adds": frozenset(launch.adds), "accumulate": accumulate, "want": wanted(launch)}
        s = shapes(graph, launch.node, rows, sms, half=half, **more)
        scratch = plan.values[launch.writes["scratch"]].bytes if "scratch" in launch.writes else 0
        return self.choice.calls(launch.node.op, direction(launch, plan.training), s, scratch, rows == plan.batch)

    def bind_load(
        self, plan: Plan, source: Source, rows: int, answers: bool, augment: Augmentation | None = None
    ) -> list[Bound]:
        """Gather `rows` samples into x and, with answers, theirs into target."""
        x = plan.graph.tensors[plan.graph.input]
        picture = len(source.shape) == 3
        calls = calls_load.load_calls(
            source.dtype,
            rows,
            plan.batch,
            source.count,
            prod(source.shape),
            source.shape[-1] if picture else 1,
            words=prod(plan.values["target"].shape[1:]) if answers else 1,
            normalise=source.dtype == "u8",
            sms=self.device.sms,
            half=plan.storage == "f16",
            cursor=False,
            augment=augment,
            width=source.shape[1] if picture else 0,
        )
        names = {"x": x.name} | ({"target": "target"} if answers else {})
        addresses = {"set": source.set} | ({"labels": source.labels} if answers else {})
        if augment and not source.ordered:
            addresses["numbers"] = self.address(plan, "order")
        if self.entering is not None:
            calls += calls_int8.round_calls(rows * prod(x.shape), self.entering, self.device.sms)
        return self.resolve(plan, calls, names, set() if source.ordered else {"order"}, addresses)

    def bind_update(self, plan: Plan, clip_value: float, clip_norm: float, bounds: int) -> list[Bound]:
        """Clip and update all weights at once."""
        runs = {"weights": "", "gradients": "d:"} | {state: f"{state}:" for state in self.rule.states}
        addresses = {role: self.run_of(plan, prefix)[0] for role, prefix in runs.items()}
        count, half = self.run_of(plan)[1], plan.storage == "f16"
        calls = calls_step.update_calls(
            self.rule, count, bounds, clip_value, clip_norm, 0, self.device.sms, half, *self._partials(plan),
            self._groups(plan),
        )  # fmt: skip
        return self.resolve(plan, calls, {}, addresses=addresses)

    def bind_update_of(self, plan: Plan, name: str, decays: bool, first: int) -> list[Bound]:
        """Update one tensor. first: how many sums of squares the updates before it leave in a row of "partials"."""
        count, sms = prod(plan.values[name].shape), self.device.sms
        names = {"weights": name, "gradients": f"d:{name}"} | {state: f"{state}:{name}" for state in self.rule.states}
        calls = calls_step.update_calls(
            self.rule, count, 2 if decays else 0, 0.0, 0.0, first, sms, False, *self._partials(plan),
            min(self._groups(plan), 1), [p.name for p in plan.graph.trainable].index(name),
        )  # fmt: skip
        return self.resolve(plan, calls, names | {"bounds": "everywhere"}, keeps=["gradients", "bounds"])

    def bind_average(self, plan: Plan, decay: float) -> list[Bound]:
        """Let the averages follow the weights, and the statistics."""
        out: list[Bound] = []
        for params in (plan.graph.trainable, plan.graph.statistics):
            if params:
                names = [p.name for p in params]
                (weights, n), (average, _) = self.run_of(plan, "", names), self.run_of(plan, f"{AVERAGE}:", names)
                calls = calls_step.average_calls(n, decay, self.device.sms)
                out += self.resolve(plan, calls, {}, addresses={"weights": weights, "average": average})
        return out

    @staticmethod
    def _groups(plan: Plan) -> int:
        """How many groups of weights have a rate of their own."""
        return plan.values["rate_factors"].shape[0] if "rate_factors" in plan.values else 0

    @staticmethod
    def _partials(plan: Plan) -> tuple[int, int]:
        """Rows of "partials", and float64 sums in each."""
        rows, size = plan.view("partials")[1]
        return rows, size // 8

    def resolve(
        self,
        plan: Plan,
        calls: Iterable[Call],
        names: dict[str, str],
        skip: Iterable[str] = (),
        addresses: dict[str, int] | None = None,
        keeps: Iterable[str] | None = None,
    ) -> list[Bound]:
        """Calls with the address of each Ref: a value of `names`, a control value, or one of `addresses`.

        keeps: the roles that are read only; all others count as written. None: nothing may run beside these calls."""
        values = {n: n for n, v in plan.values.items() if plan.buffers[v.buffer].kind == "control"} | names
        roles = {role: self.address(plan, name) for role, name in values.items()} | (addresses or {})
        for role in skip:
            roles.pop(role, None)
        read = {*(keeps or ()), *CONSTANT}
        out = []
        for call in calls:
            refs = [arg for arg in call.args if isinstance(arg, Ref)]
            places = tuple(roles[r.role] + r.offset if r.role in roles else None for r in refs)
            spans = None
            if keeps is not None:
                touched = [r for r in refs if r.role in roles and r.role != "counters"]  # each lane has its own
                spans = tuple(
                    Span(
                        roles[r.role] + (r.offset if r.bytes else 0),
                        roles[r.role] + (r.offset + r.bytes if r.bytes else plan.values[values[r.role]].bytes),
                        r.role not in read,
                    )
                    for r in touched
                )
            out.append(Bound(call, places, spans))
        return out

    def run(self, bound: Iterable[Bound]) -> None:
        for call, addresses in bound:
            self.device.launch(call, addresses)
