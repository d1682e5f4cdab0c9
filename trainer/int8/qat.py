"""Training with the device's whole numbers (quantisation-aware training), from the weights of a float run.

Forward, every layer calculates what the device will: the batchnorms are folded into the layers before them, the
weights of this step become int8, and each operator's integers (ops.py) give the layer's output, kept as the float32 it
stands for. Backward, rounding counts as if it were not there (Bengio et al., 2013): the float operators' derivatives at
the rounded inputs and weights, and nothing where a value was held at an end of int8. Scales of activations are taken
from data once, before the first step; those of weights follow the weights.

A checkpoint holds the weights as the blueprint names them, batchnorms unfolded, so that it is a checkpoint like any
other; beside them, under qat/, exactly what was trained, and in its meta the scales, from which edge-export --int8
makes the same integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checkpoint
from ..backends.numpy import NumpyBackend
from ..base import check_array
from ..blueprint import Blueprint, start_rate
from ..errors import UserError
from ..fuse import for_training, without_training_only
from ..graph import Graph, Node
from ..ops import OPS
from ..plan import Launch, Plan
from ..trainer import Trainer
from . import ops
from .scheme import HI, LO, Numbers, Quant

SAMPLES = 512  # of the training set, from which the scales of activations are taken
RATE, EPOCHS = 0.02, 3  # of the learning rate of a run from the start; where nothing else is asked for
EXACT = ("maxpool2d", "flatten", "reshape", "transpose", "slice")  # float operators give the same here
FOLDED = "qat/"  # before a weight's name in a checkpoint


@dataclass(frozen=True)
class Start:
    """What a run begins with: a float run's checkpoint; or its own, with the scales it had."""

    saved: checkpoint.Checkpoint
    quants: dict[str, Any] | None = None


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
            spans = {t: q.range for t, q in self.quants.items()}
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


class QatTrainer(Trainer):
    """A trainer whose net is the folded one. samples: of the training set, uint8 pictures or float32, from which the
    scales are taken where `start` has none."""

    def __init__(self, blueprint: Blueprint, start: Start, samples: np.ndarray, **common: Any):
        self._origin, self._kept_quants = start.saved, start.quants
        self._samples = samples[np.linspace(0, len(samples) - 1, min(SAMPLES, len(samples))).astype(int)]
        super().__init__(blueprint, **common)
        for name, w in self._start.items():
            self.array(name)[...] = w
        self.start_average()

    def set_up(self, blueprint: Any, seed: int, classes: bool | None, aids: Any = None) -> None:
        from litenet.exporter import fold
        from litenet.exporter.int8 import graphs

        super().set_up(blueprint, seed, classes, aids)
        found, where = self._origin.weights, self._origin.where
        whole = {n: check_array(found, n, p.shape, where).astype(np.float32) for n, p in self.full.params.items()}
        self._whole = whole
        graph = graphs.separated(for_training(without_training_only(self.full), self.loss.name))
        graph, self._start = fold.fold_batchnorm(graph, whole)
        left = [n for n in graph.nodes if n.op == "batchnorm"]
        if left:
            raise UserError(
                f"{self.blueprint.where}: --qat cannot train {left[0].name} (batchnorm): it follows no layer it could "
                "be folded into.\n  Put it right behind a convolution or a linear layer."
            )
        self.graph = self.plain = graph
        self._without = frozenset(n.name for n in graphs.without_form(self.graph))

    def make_backend(self, plans: list[Plan], poison: bool) -> NumpyBackend:
        return QatBackend(plans, poison, Rounded(self.graph, self._quants(), self._without))

    def _quants(self) -> dict[int, Quant]:
        """The scales: those kept, else from the samples."""
        from litenet.exporter.int8 import search

        if self._kept_quants is not None:
            return self._by_tensor(self._kept_quants)
        x = np.empty((len(self._samples), *self.graph.input_shape), np.float32)
        _into(x, self._samples, *self._scale(self._samples.shape[-1]))
        return search.quants_of(self.graph, self._start, x, self._without)

    def _by_tensor(self, named: Mapping[str, Any]) -> dict[int, Quant]:
        used = {self.graph.tensors[t].name: t for t in (self.graph.input, *(n.output for n in self.graph.nodes))}
        return {used[name]: Quant(float(scale), int(zero)) for name, (scale, zero) in named.items() if name in used}

    @property
    def int8(self) -> dict[str, Any]:
        """For a checkpoint's meta: scale and zero point of every tensor by name, and the layers that are float."""
        assert isinstance(self.backend, QatBackend)
        rounded, tensors = self.backend.rounded, self.graph.tensors
        used = [self.graph.input, *(n.output for n in self.graph.nodes)]
        quants = {tensors[t].name: [rounded.quants[t].scale, rounded.quants[t].zero] for t in used}
        return {"quants": quants, "float": sorted(rounded.floats), "from": self._origin.where}

    def load(self, plan: Plan, x: np.ndarray) -> None:
        """The input, as the device rounds it."""
        super().load(plan, x)
        assert isinstance(self.backend, QatBackend)
        into = self.backend.array(plan, plan.graph.tensors[plan.graph.input].name, len(x))
        q = self.backend.rounded.quants[plan.graph.input]
        into[...] = ops.dequantize(ops.quantize(Numbers(), into, q), q)

    # ---- what a checkpoint holds

    def state_arrays(self) -> dict[str, np.ndarray]:
        arrays = super().state_arrays()
        trained = {key.split("/", 1)[1]: a for key, a in arrays.items() if key.startswith("weights/")}
        if self.aids.ema:
            trained |= {key.split("/", 1)[1]: a for key, a in arrays.items() if key.startswith("average/")}
        kept = {key: a for key, a in arrays.items() if not key.startswith(("weights/", "average/"))}
        return kept | {f"weights/{n}": a for n, a in self._unfolded(trained).items()} | {
            FOLDED + key.replace("/", ":"): a for key, a in arrays.items() if key.startswith(("weights/", "average/"))
        }  # fmt: skip

    def load_arrays(self, arrays: dict[str, np.ndarray], where: str, optimizer: bool = True) -> None:
        own = {key.removeprefix(FOLDED).replace(":", "/"): a for key, a in arrays.items() if key.startswith(FOLDED)}
        rest = {key: a for key, a in arrays.items() if not key.startswith(("weights/", FOLDED))}
        super().load_arrays(rest | own, where, optimizer)

    def _unfolded(self, trained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The trained weights as the blueprint's: a folded layer's scale divided out again, its bias in the batchnorm's
        shift."""
        from litenet.exporter.fold import batchnorm_affine

        out = dict(self._whole)
        made = {n.output: n for n in self.full.nodes}
        here = {n.params["weight"]: n for n in self.graph.nodes if "weight" in n.params}
        for n in self.full.nodes:
            if n.op == "batchnorm":
                before = made[n.inputs[0]]
                scale, _ = batchnorm_affine(n, self._whole)
                name, folded = before.params["weight"], here[before.params["weight"]]
                w = trained[name].astype(np.float64)
                safe = np.where(scale == 0, 1.0, scale)
                last = before.op == "depthwise_conv2d"
                out[name] = (w / (safe if last else safe.reshape(-1, *[1] * (w.ndim - 1)))).astype(np.float32)
                old = self._whole[before.params["bias"]].astype(np.float64) if "bias" in before.params else 0.0
                mean = self._whole[n.params["running_mean"]].astype(np.float64)
                shift = trained[folded.params["bias"]].astype(np.float64) - (old - mean) * scale
                out[n.params["beta"]] = shift.astype(np.float32)
        done = {made[n.inputs[0]].name for n in self.full.nodes if n.op == "batchnorm"}
        for n in self.graph.nodes:
            if n.name not in done:
                out |= {name: trained[name] for name in n.params.values()}
        return out


def _into(out: np.ndarray, samples: np.ndarray, mean: Any, std: Any) -> None:
    from ..data.batches import to_input

    if samples.dtype == np.uint8:
        pictures = samples if samples.ndim == 4 else samples[..., None]
        to_input(pictures, mean, std, out=out.reshape(pictures.shape))
    else:
        np.copyto(out, samples.reshape(out.shape))


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
