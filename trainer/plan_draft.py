"""A plan in the making: launches over values first, then which values share a buffer, then where each stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from .aids import AVERAGE, as_at_inference
from .arena import Lifetime, align, place
from .graph import Graph, Node
from .ops import OPS, Shape, backward_needs, parameters
from .plan_parts import ALIGN, FIXED, ITEM, PERSISTENT, VECTOR, Buffer, Launch, Needs, Plan, Value


@dataclass
class Storage:
    """A buffer while the plan is made."""

    name: str
    kind: str
    owner: str
    bytes: int
    members: list[str]
    first: int


class Draft:
    """Emits launches over values first; finish() decides which values share a buffer and where each stands."""

    def __init__(
        self,
        graph: Graph,
        batch: int,
        alignment: int = ALIGN,
        external: bool = False,
        needs: Needs | None = None,
        training: bool = False,
        storage: str = "f32",
        recompute: Iterable[str] = (),
        types: Mapping[int, str] | None = None,
    ):
        self.graph, self.batch, self.alignment, self.storage = graph, batch, alignment, storage
        self.types = types or {}  # of tensors that are stored otherwise
        self.needs, self.training = needs or Needs(), training
        self.external = {graph.input, *graph.outputs} if external else set()
        self.launches: list[Launch] = []
        self.shape: dict[str, tuple[Shape, str, str, str]] = {}  # value -> shape, dtype, kind, owner
        self.batched: set[str] = set()
        self.renames: list[tuple[int, str, str]] = []  # (after this many launches, new value, of value)
        self.inplace: dict[str, list[str]] = {}  # value -> values it may overwrite, best first
        self.gradient: dict[int, str] = {}  # tensor -> value that holds its gradient so far
        self.wants = graph.needs_gradient() if training else set[int]()
        self.recompute = frozenset(recompute)
        self.computed_again: dict[int, str] = {}  # tensor of `recompute` -> value that holds it in the backward pass
        self.producer = {node.output: node for node in graph.nodes}

    # ---- launches over values

    def persistent(self, states: Iterable[str], gradients: bool) -> None:
        for name, (shape, dtype) in self.needs.control.items():
            self.declare(name, shape, dtype, "control", "step")
        params = sorted(self.graph.params.values(), key=lambda p: p.frozen)  # statistics are one run
        for p in params:
            self.declare(p.name, p.shape, "f32", "weights" if p.trainable else "state", p.layer)
        for state in states:
            for p in [*self.graph.trainable, *(self.graph.statistics if state == AVERAGE else [])]:
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
        """Declare a value shaped as the graph's tensor t, with the batch, stored as activations are."""
        return self.per_sample(name, self.graph.tensors[t].shape, self.types.get(t, self.storage), kind, owner)

    def launch(
        self, name: str, kind: str, node: Node | None, reads: dict, writes: dict, adds: dict | None = None, group="",
        still: bool = False,
    ) -> None:  # fmt: skip
        launch = Launch(name, kind, node, reads, writes, adds or {}, group, still)
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
        still = training and as_at_inference(self.graph, node, self.wants)
        if training and not still:
            for aux in module.OP.aux:
                shape = aux.shape(node.attrs, self.graph.shapes(node)[0], self.graph.tensors[node.output].shape)
                declare = self.per_sample if aux.batched else self.declare
                writes[aux.name] = declare(f"{node.name}:{aux.name}", shape, aux.dtype, "auxiliary", node.layer)
            if node.moments == "out":
                *size, C = self.graph.tensors[node.output].shape
                floats = self.needs.moments(self.batch * prod(size), C)
                writes["moments"] = self.declare(f"{y}:moments", (floats,), "f32", "auxiliary", node.layer)
            elif node.moments == "in":
                reads["moments"] = f"{inputs['x']}:moments"
        self.inplace[y] = [inputs[role] for role in module.OP.inplace]
        self.launch(f"{node.name}.forward", "forward", node, reads, writes, still=still)

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
        tensors = {**dict(zip(module.OP.inputs, node.inputs, strict=True)), "y": node.output}
        named = {**node.params, **self.kept(node)}
        reads = {"dy": dy}
        for need in backward_needs(node.op, node.attrs):
            if need in tensors:
                reads[need] = self.held(tensors[need])
            elif need in named:
                reads[need] = named[need]
        if node.scales:  # nothing comes back from where y was held at an end of int8
            reads["y"] = self.held(node.output)
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

    def kept(self, node: Node) -> dict[str, str]:
        """What forward_train leaves besides the output."""
        return {aux.name: f"{node.name}:{aux.name}" for aux in OPS[node.op].OP.aux}

    def held(self, t: int) -> str:
        """The value that holds tensor t in the backward pass: kept since the forward pass, or computed again here."""
        if self.tensor(t) not in self.recompute or t not in self.producer:
            return self.tensor(t)
        if t not in self.computed_again:
            node = self.producer[t]
            module, name = OPS[node.op], f"{self.tensor(t)}~"
            self.per_tensor(name, t, "activation", node.layer)
            inputs = {role: self.held(i) for role, i in zip(module.OP.inputs, node.inputs, strict=True)}
            if module.OP.view:
                self.rename(name, inputs["x"])
            else:
                reads, still = {**inputs, **node.params}, as_at_inference(self.graph, node, self.wants)
                if hasattr(module, "forward_again") and not still:
                    named = {**reads, **self.kept(node)}
                    reads = {role: named[role] for role in parameters(module.forward_again) if role in named}
                self.launch(f"{node.name}.again", "again", node, reads, {"y": name}, still=still)
            self.computed_again[t] = name
        return self.computed_again[t]

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
        buffers, persistent = self.persistent_buffers(storages)
        moving = [s for s in storages if s.kind not in FIXED]
        lifetimes = self.lives(moving)
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
            self.storage,
            self.recompute,
        )

    def outline(self) -> tuple[int, list[Lifetime]]:
        """(persistent bytes, lifetime of each transient buffer), before anything has a place."""
        storages, _ = self.share()
        return self.persistent_buffers(storages)[1], self.lives([s for s in storages if s.kind not in FIXED])

    def lives(self, storages: list[Storage]) -> list[Lifetime]:
        last = self.last_reads()
        return [(s.bytes, s.first, max(last.get(m, s.first) for m in s.members)) for s in storages]

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

    def share(self) -> tuple[list[Storage], dict[str, Storage]]:
        """Give every value a storage: its own, the one it renames, or one it may overwrite."""
        last, home, storages = self.last_reads(), {}, []

        def own(name: str, at: int) -> None:
            shape, dtype, kind, owner = self.shape[name]
            storage = Storage(name, kind, owner, prod(shape) * ITEM[dtype], [name], at)
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

    def overwritable(self, name: str, at: int, home: dict, last: dict[str, int]) -> Storage | None:
        """The storage of the first candidate that nothing reads after this launch, if the sizes are equal."""
        for candidate in self.inplace.get(name, ()):
            storage = home[candidate]
            size = prod(self.shape[name][0]) * ITEM[self.shape[name][1]]
            dead = all(last.get(m, -1) <= at for m in storage.members)
            if storage.kind not in FIXED and storage.bytes == size and dead:
                return storage
        return None

    def persistent_buffers(self, storages: list[Storage]) -> tuple[dict[int, Buffer], int]:
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
