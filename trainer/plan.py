"""The plan: every launch of a step in order, and for every tensor the place it has in ONE block of memory.

A training step is  load, forward..., loss, backward...(, update...), clip, update.  Each launch reads and writes
*values*. A value that only renames another (a flatten) or may overwrite one that nobody needs any more shares its
*buffer*; a buffer lives from the launch that first writes it to the launch that last reads it. Buffers that never
live together share bytes. What outlives the step (weights, optimiser state, statistics) stands at the front.

    [ control | weights | state | optimiser | gradients ] [ transient buffers, placed by arena.py ]
      persistent: the same in every plan of one net                           offsets differ from plan to plan

`update="immediate"` hands each gradient to the optimiser as soon as it is complete, so gradients die young;
`update="end"` keeps them all (needed for clipping by the global norm, accumulation, and the step-by-step mode).
Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod

from .arena import align, place
from .graph import Graph, Node
from .ops import OPS, Shape, backward_needs

ITEM = {"f32": 4, "u8": 1, "i32": 4}
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
    kind: str  # load, forward, loss, backward, sum, update, clip
    node: Node | None
    reads: dict[str, str]
    writes: dict[str, str]
    adds: dict[str, str] = field(default_factory=dict)
    group: str = ""  # for an update: the parameter, or "" for all


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
    needs while it runs, as a function of (graph, batch, launch, training).
    """

    control: dict[str, tuple[Shape, str]] = field(default_factory=dict)
    scratch: Callable[[Graph, int, Launch, bool], int] | None = None


def plan_training(
    graph: Graph,
    batch: int,
    states: Iterable[str] = (),
    update: str = "end",
    target: tuple[Shape, str] = ((), "i32"),
    needs: Needs | None = None,
) -> Plan:
    """The plan of one training step of `batch` samples.

    states: names of the optimiser's per-weight arrays. target: (shape without batch, dtype) of what the loss
    compares with. Any batch works; a shorter last batch uses the front of each array.
    """
    draft = _Draft(graph, batch, needs=needs, training=True)
    draft.persistent(states, gradients=update == "end")
    draft.load(target)
    for node in graph.nodes:
        draft.forward(node, training=True)
    draft.loss()
    for node in reversed(graph.nodes):
        draft.backward(node, update)
    if update == "end":
        weights = {p.name: p.name for p in graph.trainable}
        grads = {f"d:{p.name}": f"d:{p.name}" for p in graph.trainable}
        draft.launch("clip", "clip", None, grads, {})
        draft.launch("update", "update", None, grads | weights, {})
    return draft.finish(True, update)


def plan_inference(
    graph: Graph, batch: int = 1, states: Iterable[str] = (), gradients: bool = False, needs: Needs | None = None
) -> Plan:
    """The plan of the forward pass alone. states, gradients and needs keep a training plan's persistent layout."""
    draft = _Draft(graph, batch, needs=needs)
    draft.persistent(states, gradients)
    return _forward_only(draft)


def plan_device(graph: Graph, alignment: int = 16) -> Plan:
    """The plan of one inference on a device: weights stay in the file, input and outputs are the caller's, so that
    the arena holds nothing but what lies between."""
    draft = _Draft(graph, 1, alignment, external=True)
    for p in graph.params.values():
        draft.declare(p.name, p.shape, "f32", "external", p.layer)
    return _forward_only(draft)


def _forward_only(draft: _Draft) -> Plan:
    draft.load(None)
    for node in draft.graph.nodes:
        draft.forward(node, training=False)
    return draft.finish(False, "none")


@dataclass
class _Storage:
    """A buffer while the plan is made."""

    name: str
    kind: str
    owner: str
    bytes: int
    members: list[str]
    first: int


class _Draft:
    """Emits launches over values first; finish() decides which values share a buffer and where each stands."""

    def __init__(
        self,
        graph: Graph,
        batch: int,
        alignment: int = ALIGN,
        external: bool = False,
        needs: Needs | None = None,
        training: bool = False,
    ):
        self.graph, self.batch, self.alignment = graph, batch, alignment
        self.needs, self.training = needs or Needs(), training
        self.external = {graph.input, *graph.outputs} if external else set()
        self.launches: list[Launch] = []
        self.shape: dict[str, tuple[Shape, str, str, str]] = {}  # value -> shape, dtype, kind, owner
        self.batched: set[str] = set()
        self.renames: list[tuple[int, str, str]] = []  # (after this many launches, new value, of value)
        self.inplace: dict[str, list[str]] = {}  # value -> values it may overwrite, best first
        self.gradient: dict[int, str] = {}  # tensor -> value that holds its gradient so far
        self.wants = _needs_gradient(graph)

    # ---- launches over values

    def persistent(self, states: Iterable[str], gradients: bool) -> None:
        for name, (shape, dtype) in self.needs.control.items():
            self.declare(name, shape, dtype, "control", "step")
        params = self.graph.params.values()
        for p in params:
            self.declare(p.name, p.shape, "f32", "weights" if p.trainable else "state", p.layer)
        for state in states:
            for p in self.graph.trainable:
                self.declare(f"{state}:{p.name}", p.shape, "f32", "optimizer", p.layer)
        if gradients:
            for p in self.graph.trainable:
                self.declare(f"d:{p.name}", p.shape, "f32", "gradients", p.layer)

    def declare(self, name: str, shape: Shape, dtype: str, kind: str, owner: str) -> str:
        self.shape[name] = (shape, dtype, kind, owner)
        return name

    def tensor(self, t: int) -> str:
        return self.graph.tensors[t].name

    def per_sample(self, name: str, shape: Shape, dtype: str, kind: str, owner: str) -> str:
        """Declare a value that has one `shape` for each sample of the batch."""
        self.batched.add(name)
        return self.declare(name, (self.batch, *shape), dtype, kind, owner)

    def per_tensor(self, name: str, t: int, kind: str, owner: str) -> str:
        """Declare a value shaped as the graph's tensor t, with the batch."""
        return self.per_sample(name, self.graph.tensors[t].shape, "f32", kind, owner)

    def launch(
        self, name: str, kind: str, node: Node | None, reads: dict, writes: dict, adds: dict | None = None, group=""
    ) -> None:
        launch = Launch(name, kind, node, reads, writes, adds or {}, group)
        size = self.needs.scratch(self.graph, self.batch, launch, self.training) if self.needs.scratch else 0
        if size:
            owner = node.layer if node else kind
            writes["scratch"] = self.declare(f"{name}:scratch", (size,), "u8", "scratch", owner)
        self.launches.append(launch)

    def rename(self, new: str, of: str) -> None:
        self.renames.append((len(self.launches), new, of))

    def load(self, target: tuple[Shape, str] | None) -> None:
        kind = "external" if self.external else "input"
        x = self.per_tensor(self.tensor(self.graph.input), self.graph.input, kind, "input")
        writes = {"x": x}
        if target is not None:
            shape, dtype = target
            writes["target"] = self.per_sample("target", shape, dtype, "input", "input")
        self.launch("load", "load", None, {}, writes)

    def forward(self, node: Node, training: bool) -> None:
        module = OPS[node.op]
        kind = "external" if node.output in self.external else "activation"
        y = self.per_tensor(self.tensor(node.output), node.output, kind, node.layer)
        inputs = {role: self.tensor(t) for role, t in zip(module.OP.inputs, node.inputs, strict=True)}
        if module.OP.view and not self.external & {node.output, *node.inputs}:
            self.rename(y, inputs["x"])
            return
        reads, writes = {**inputs, **node.params}, {"y": y}
        if training:
            for aux in module.OP.aux:
                shape = aux.shape(node.attrs, self.graph.shapes(node)[0], self.graph.tensors[node.output].shape)
                declare = self.per_sample if aux.batched else self.declare
                writes[aux.name] = declare(f"{node.name}:{aux.name}", shape, aux.dtype, "auxiliary", node.layer)
        self.inplace[y] = [inputs[role] for role in module.OP.inplace]
        self.launch(f"{node.name}.forward", "forward", node, reads, writes)

    def loss(self) -> None:
        out = self.graph.outputs[0]
        z = self.tensor(out)
        dz = self.per_tensor(f"d:{z}", out, "gradient", "loss")
        self.inplace[dz] = [z]
        self.gradient[out] = dz
        self.launch("loss", "loss", None, {"z": z, "target": "target"}, {"dz": dz})

    def backward(self, node: Node, update: str) -> None:
        module, dy = OPS[node.op], self.gradient.get(node.output)
        if dy is None:
            return  # nothing behind this node reaches the loss
        if module.OP.view:
            self.pass_on(node.inputs[0], dy, node)
            return
        named = {
            **{role: self.tensor(t) for role, t in zip(module.OP.inputs, node.inputs, strict=True)},
            **node.params,
            "y": self.tensor(node.output),
            **{aux.name: f"{node.name}:{aux.name}" for aux in module.OP.aux},
        }
        reads = {"dy": dy} | {need: named[need] for need in backward_needs(node.op, node.attrs) if need in named}
        writes, adds, passed = self.input_gradients(node, dy)
        for role, name in node.params.items():
            param = self.graph.params[name]
            if param.trainable:
                if update == "immediate":
                    self.declare(f"d:{name}", param.shape, "f32", "gradient", node.layer)
                writes[role] = f"d:{name}"
        if writes:
            self.launch(f"{node.name}.backward", "backward", node, reads, writes, adds)
        for t, of in passed:
            self.pass_on(t, of, node)
        if update == "immediate":
            for name in node.params.values():
                if self.graph.params[name].trainable:
                    reads = {f"d:{name}": f"d:{name}", name: name}
                    self.launch(f"{name}.update", "update", None, reads, {}, group=name)

    def input_gradients(self, node: Node, dy: str) -> tuple[dict[str, str], dict[str, str], list[tuple[int, str]]]:
        """Roles of the node's inputs to the values their gradients go to; which of these add to an older one; and the
        tensors whose gradient is that of another value, once the launch has run."""
        module, writes, adds, passed = OPS[node.op], {}, {}, []
        first: str | None = None
        for role, t in zip(module.OP.inputs, node.inputs, strict=True):
            if t not in self.wants:
                continue
            if node.op == "add":  # both inputs have the same gradient
                if first is None and node.attrs.activation == "none":
                    first = dy
                if first is not None:
                    passed.append((t, first))
                    continue
            older = self.gradient.get(t)
            name = f"d:{self.tensor(t)}" + ("+" * (older.count("+") + 1) if older else "")
            self.per_tensor(name, t, "gradient", node.layer)
            self.inplace[name] = ([older] if older else []) + ([dy] if module.OP.backward_inplace else [])
            if older:
                adds[role] = older
            writes[role] = name
            self.gradient[t] = name
            first = name if not older else None
        return writes, adds, passed

    def pass_on(self, t: int, of: str, node: Node) -> None:
        """The gradient of tensor t is `of` itself, or is added to what t has already."""
        if t not in self.wants:
            return
        older = self.gradient.get(t)
        name = f"d:{self.tensor(t)}" + ("+" * (older.count("+") + 1) if older else "")
        self.per_tensor(name, t, "gradient", node.layer)
        self.gradient[t] = name
        if older is None:
            self.rename(name, of)
            return
        self.inplace[name] = [older]
        self.launch(f"{node.name}.sum", "sum", node, {"a": older, "b": of}, {"y": name})

    # ---- buffers

    def finish(self, training: bool, update: str) -> Plan:
        storages, home = self.share()
        last = self.last_reads()
        buffers, persistent = self.persistent_buffers(storages)
        moving = [s for s in storages if s.kind not in FIXED]
        lifetimes = [(s.bytes, s.first, max(last.get(m, s.first) for m in s.members)) for s in moving]
        offsets, transient, bound = place(lifetimes, self.alignment)
        for s, (size, first, until), offset in zip(moving, lifetimes, offsets, strict=True):
            buffers[id(s)] = Buffer(s.name, s.kind, s.owner, size, first, max(first, until), persistent + offset)
        index = {id(s): i for i, s in enumerate(storages)}
        values = {
            name: Value(name, shape, dtype, index[id(home[name])], name in self.batched)
            for name, (shape, dtype, _, _) in self.shape.items()
        }
        return Plan(
            self.graph,
            self.batch,
            training,
            update,
            tuple(self.launches),
            values,
            tuple(buffers[id(s)] for s in storages),
            persistent,
            persistent + transient,
            persistent + bound,
            tuple(self.renames),
        )

    def last_reads(self) -> dict[str, int]:
        """The launch that last reads each value; what the net puts out is kept to the end."""
        last: dict[str, int] = {}
        for i, launch in enumerate(self.launches):
            for name in (*launch.reads.values(), *launch.adds.values()):
                last[name] = i
        if not any(launch.kind == "loss" for launch in self.launches):
            for t in self.graph.outputs:
                last[self.tensor(t)] = len(self.launches) - 1
        for at, new, of in reversed(self.renames):
            last[of] = max(last.get(of, -1), last.get(new, -1), at - 1)
        return last

    def share(self) -> tuple[list[_Storage], dict[str, _Storage]]:
        """Give every value a storage: its own, the one it renames, or one it may overwrite."""
        last, home, storages = self.last_reads(), {}, []

        def own(name: str, at: int) -> None:
            shape, dtype, kind, owner = self.shape[name]
            storage = _Storage(name, kind, owner, prod(shape) * ITEM[dtype], [name], at)
            storages.append(storage)
            home[name] = storage

        for name, (_, _, kind, _) in self.shape.items():
            if kind in FIXED:
                own(name, 0)
        renames = iter([*self.renames, (len(self.launches) + 1, "", "")])
        pending = next(renames)
        for i, launch in enumerate((*self.launches, None)):
            while pending[0] <= i:
                home[pending[1]] = home[pending[2]]
                home[pending[1]].members.append(pending[1])
                pending = next(renames)
            for name in launch.writes.values() if launch else ():
                if name in home:
                    continue
                if (target := self.overwritable(name, i, home, last)) is not None:
                    home[name] = target
                    target.members.append(name)
                else:
                    own(name, i)
        return storages, home

    def overwritable(self, name: str, at: int, home: dict, last: dict[str, int]) -> _Storage | None:
        """The storage of the first candidate that nothing reads after this launch, if the sizes are equal."""
        for candidate in self.inplace.get(name, ()):
            storage = home[candidate]
            size = prod(self.shape[name][0]) * ITEM[self.shape[name][1]]
            dead = all(last.get(m, -1) <= at for m in storage.members)
            if storage.kind not in FIXED and storage.bytes == size and dead:
                return storage
        return None

    def persistent_buffers(self, storages: list[_Storage]) -> tuple[dict[int, Buffer], int]:
        """Each kind is one run of tensors: all weights (or all gradients) are one vector, gaps of zeros included."""
        out, at, end = {}, 0, len(self.launches)
        for kind in PERSISTENT:
            for s in (s for s in storages if s.kind == kind):
                out[id(s)] = Buffer(s.name, kind, s.owner, s.bytes, 0, end, at)
                at = align(at + s.bytes, VECTOR)
            at = align(at, ALIGN) if any(s.kind == kind for s in storages) else at
        for s in (s for s in storages if s.kind == "external"):
            out[id(s)] = Buffer(s.name, s.kind, s.owner, s.bytes, 0, end, 0)
        return out, at


def _needs_gradient(graph: Graph) -> set[int]:
    """The tensors a gradient has to reach: those that some trained parameter lies before."""
    reached: set[int] = set()
    for n in graph.nodes:
        if any(t in reached for t in n.inputs) or any(graph.params[p].trainable for p in n.params.values()):
            reached.add(n.output)
    return reached
