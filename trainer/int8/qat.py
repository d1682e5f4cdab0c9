"""Training with the device's whole numbers (quantisation-aware training), from the weights of a float run.

Forward, every layer calculates what the device will: the batchnorms are folded into the layers before them, the
weights of this step become int8, and each operator's integers (ops.py) give the layer's output, kept as the float32 it
stands for. Backward, rounding counts as if it were not there (Bengio et al., 2013): the float operators' derivatives at
the rounded inputs and weights, and nothing where a value was held at an end of int8. Scales of activations are taken
from data once, before the first step; those of weights follow the weights.
What is trained, and what a checkpoint holds, is in folded.py; on a card the same runs as kernels (qat_device.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import checkpoint
from ..backends.numpy import NumpyBackend
from ..blueprint import Blueprint, start_rate
from ..graph import Graph, Node
from ..ops import OPS
from ..plan import Launch, Plan
from ..trainer import Trainer
from . import ops
from .folded import FOLDED, Folded, Start
from .scheme import HI, LO, Numbers, Quant

RATE, EPOCHS = 0.02, 3  # of the learning rate of a run from the start; where nothing else is asked for
EXACT = ("maxpool2d", "flatten", "reshape", "transpose", "slice")  # float operators give the same here


def defaults(blueprint: Blueprint, given: dict[str, Any]) -> dict[str, Any]:
    """Settings where the user gave none: a few epochs at a small rate that falls to nothing."""
    own = {"epochs": EPOCHS, "learning_rate": RATE * start_rate(blueprint), "schedule": "cosine", "warmup": 0.0}
    return given | {key: value for key, value in own.items() if given.get(key) is None}


class Rounded:
    """What stays the same over a run: the folded graph, the scales, which nodes are float; and the integers of each
    node for the weights it is given."""

    def __init__(self, graph: Graph, quants: dict[int, Quant], floats: frozenset[str]):
        self.graph, self.quants, self.floats = graph, quants, floats

    def arrays(self, node: Node, weights: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Numbers]:
        """A node's int8 arrays and the numbers of its record. Scales grow where the weights have outgrown them."""
        from litenet.exporter.int8 import lower, ranges

        own = {name: np.asarray(weights[name]) for name in node.params.values()}
        if lower.least_scale(self.graph, node, own, self.quants) > self.quants[node.output].scale:
            every = {name: np.asarray(weights[name]) for name in self.graph.params}
            unused = dict.fromkeys(range(len(self.graph.tensors)), (0.0, 0.0))  # a checkpoint has no scales of them
            spans = unused | {t: q.range for t, q in self.quants.items()}
            self.quants = ranges.assign(self.graph, every, spans, self.floats, self.quants)
        return lower.Lowering(self.graph, own, self.quants, self.floats, {}).whole(node)


class QatBackend(NumpyBackend):
    """Runs plans of the folded graph with the device's integers."""

    def __init__(self, plans: Iterable[Plan], poison: bool, rounded: Rounded):
        super().__init__(plans, poison)
        self.rounded = rounded
        self._inside: dict[str, np.ndarray] = {}  # by node: where its output was not held at an end of int8
        self._weights: dict[str, dict[str, np.ndarray]] = {}  # by node: the weights that it had, as float32

    def forward(self, plan: Plan, launch: Launch, rows: int, seed: int = 0, step: int = 0) -> None:
        node, rounded = launch.node, self.rounded
        assert node is not None
        if node.name in rounded.floats or node.op in EXACT:
            super().forward(plan, launch, rows, seed, step)
            return
        env = self._read(plan, launch, rows)
        arrays, numbers = rounded.arrays(node, _ByName(self, plan))
        quants = [rounded.quants[t] for t in node.inputs]
        inputs = [ops.quantize(Numbers(), env[r], q) for r, q in zip(OPS[node.op].OP.inputs, quants, strict=False)]
        qy = rounded.quants[node.output]
        if node.op == "linear":
            shape = plan.graph.tensors[node.output].shape
            inputs = [inputs[0].reshape(rows, *shape[:-1], -1)]
        y = ops.forward(node.op, node.attrs, numbers, inputs, list(quants), qy, arrays)
        if plan.training:
            self._inside[node.name] = (y > LO) & (y < HI)
            self._weights[node.name] = self._as_float(node, arrays, quants, qy)
        self._write(plan, launch.writes["y"], ops.dequantize(y, qy), rows)

    def _as_float(self, node: Node, arrays: dict[str, np.ndarray], quants: list[Quant], qy: Quant) -> dict[str, Any]:
        """The int8 weights as the float32 they stand for: int8 times s(w) = M s(y) / (2^31 s(x))."""
        if "weight" not in arrays:
            return {}
        scale = arrays["multiplier"] * (qy.scale / quants[0].scale / (1 << 31))
        last = node.op in ("depthwise_conv2d", "embed_projection")
        w = arrays["weight"].astype(np.float32)
        return {"weight": w * (scale if last else scale.reshape(-1, *[1] * (w.ndim - 1))).astype(np.float32)}

    def _read(self, plan: Plan, launch: Launch, rows: int) -> dict[str, Any]:
        env = super()._read(plan, launch, rows)
        node = launch.node
        if launch.kind == "backward" and node is not None and node.name in self._inside:
            env["dy"] = env["dy"] * self._inside[node.name].reshape(env["dy"].shape)
            env |= {role: w for role, w in self._weights[node.name].items() if role in env}
            for role, t in zip(OPS[node.op].OP.inputs, node.inputs, strict=False):
                if role in env:  # where a float layer gives x, the device rounds it first
                    q = self.rounded.quants[t]
                    env[role] = ops.dequantize(ops.quantize(Numbers(), env[role], q), q)
        return env


class _ByName(Mapping[str, np.ndarray]):
    """Parameters of a plan by name."""

    def __init__(self, backend: NumpyBackend, plan: Plan):
        self.backend, self.plan = backend, plan

    def __getitem__(self, name: str) -> np.ndarray:
        return self.backend.array(self.plan, name)

    def __iter__(self):
        return iter(self.plan.graph.params)

    def __len__(self) -> int:
        return len(self.plan.graph.params)


class QatTrainer(Folded, Trainer):
    """A trainer whose net is the folded one."""

    def __init__(self, blueprint: Blueprint, start: Start, samples: np.ndarray, **common: Any):
        self.begin(start, samples)
        super().__init__(blueprint, **common)
        for name, w in self._start.items():
            self.array(name)[...] = w
        self.start_average()

    def make_backend(self, plans: list[Plan], poison: bool) -> NumpyBackend:
        quants = self.first_quants(self.mean, self.std)
        return QatBackend(plans, poison, Rounded(self.graph, quants, self._without))

    def quants(self) -> dict[int, Quant]:
        assert isinstance(self.backend, QatBackend)
        return self.backend.rounded.quants

    def load(self, plan: Plan, x: np.ndarray) -> None:
        """The input, as the device rounds it."""
        super().load(plan, x)
        assert isinstance(self.backend, QatBackend)
        into = self.backend.array(plan, plan.graph.tensors[plan.graph.input].name, len(x))
        q = self.backend.rounded.quants[plan.graph.input]
        into[...] = ops.dequantize(ops.quantize(Numbers(), into, q), q)


def trained(saved: checkpoint.Checkpoint) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """(exactly what was trained, by the folded graph's names; the meta's scales), or None of a float run."""
    found = saved.meta.get("int8")
    if not found:
        return None
    names = ("weights:", "average:")  # averages stand instead of what they are of
    weights = {
        key.removeprefix(FOLDED + kind): a for kind in names for key, a in saved.arrays.items()
        if key.startswith(FOLDED + kind)
    }  # fmt: skip
    return weights, found
