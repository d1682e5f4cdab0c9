"""Training on a device: the Trainer's interface over kernels, a whole step as one replayed graph.

The data set lies on the device as bytes where it fits, and each batch is gathered and normalised there. Per step the
host sends one small block (step counter, learning rate, the samples' numbers) and replays a graph; losses and norms
are read back a few hundred steps at a time.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import blueprint as blueprints
from .backends.device import TRAINED, Device, DeviceBackend, supports, workspace
from .backends.numpy import DTYPES
from .data.dataset import Dataset
from .errors import UserError
from .fuse import for_training, without_training_only
from .graph import build
from .init import fill
from .kernels import calls_step
from .kernels.choose import Choice
from .losses import make_loss
from .optimizers import make_optimizer
from .plan import Needs, Plan, plan_inference, plan_training
from .settings import Settings
from .trainer import Evaluation, Loss, answers, check_loss, check_sample, target_of
from .vectors import NamedVector, places_of

HISTORY = 256  # steps between two readings of the losses


class DeviceTrainer:
    """A net in training on a device. What it gives out are host arrays, copies all of them."""

    update_mode = "end"

    def __init__(
        self,
        device: Device,
        blueprint: blueprints.Blueprint | str | Path,
        batch_size: int = 64,
        seed: int = 0,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        learning_rate: float | None = None,
        classes: bool | None = None,
    ):
        """As Trainer; mean and std are per channel, for uint8 samples."""
        if not isinstance(blueprint, blueprints.Blueprint):
            blueprint = blueprints.load(blueprint)
        self.blueprint, self.seed, self.device = blueprint, seed, device
        full = build(blueprint)
        self.loss = make_loss(blueprint.loss)
        self.graph = for_training(full, self.loss.name)
        self.classes = self.loss.classification if classes is None else classes
        check_loss(blueprint, self.graph, self.loss, self.classes)
        if (missing := supports(self.graph)) is not None:
            raise UserError(
                f"{blueprint.where}: {missing} has no CUDA kernel; these have: {', '.join(TRAINED)}.\n"
                "  Train this net with --device cpu."
            )
        rule = make_optimizer(blueprint.optimizer)
        self.target = target_of(self.graph, self.classes)
        channels = len(mean) if mean else 1
        params = self.graph.trainable
        choice = Choice(device, getattr(device, "table", None))
        needs = Needs(self._control(batch_size, channels, rule), workspace(choice, self.loss, self.classes))
        evaluated = without_training_only(self.graph)
        self.plan = plan_training(self.graph, batch_size, rule.states, "end", self.target, needs)
        self.eval_plan = plan_inference(evaluated, batch_size, rule.states, True, needs)
        choice.save()
        self.backend = DeviceBackend(device, choice, [self.plan, self.eval_plan], self.loss, rule, self.classes)
        rate = learning_rate or blueprints.train_settings(blueprint)["learning_rate"]
        self.optimizer = SimpleNamespace(rule=rule, lr=rate, t=0, update=self._update)
        self.micro_step = 0
        self._graphs: dict[tuple, Any] = {}
        self._resident: tuple[int, str] | None = None  # samples of the set on the device, and their type
        self._set: Dataset | None = None
        self._pending: list[tuple[int, bool]] = []  # steps whose figures have not been read: (samples, updated)
        for index, p in enumerate(self.graph.params.values()):
            self._put(p.name, fill(p.shape, p.init, p.fans, seed, index))
        self._put("mean", np.array(mean or [0.0], np.float32))
        self._put("std", np.array(std or [1.0], np.float32))
        self._put("bounds", self._bounds(places_of(self.plan), {p.name: p.decay for p in params}))
        if self.loss.settings.get("class_weights") is not None:
            self._put("class_weights", np.asarray(self.loss.settings["class_weights"], np.float32))

    # ---- what lies in the arena

    def _control(self, batch: int, channels: int, rule: Any) -> dict[str, tuple[tuple[int, ...], str]]:
        """The values a step needs besides the net's own. step and order stand together: one copy sends both."""
        shape, _ = self.target
        sample = prod(self.graph.input_shape)
        weights = sum(-(-prod(p.shape) // 4) * 4 for p in self.graph.trainable)
        bounds = len(self._bounds_of_order())
        control: dict[str, tuple[tuple[int, ...], str]] = {
            "step": ((calls_step.STEP.itemsize // 4,), "i32"),
            "order": ((batch,), "i32"),
            "loss": ((1,), "f32"),
            "correct": ((1,), "i32"),
            "norm": ((1,), "f32"),
            "partials": ((8 * calls_step.partial_count(weights, self.device.sms),), "u8"),
            "history": ((HISTORY, 4), "f32"),
            "bounds": ((max(bounds, 1),), "i32"),
            "mean": ((channels,), "f32"),
            "std": ((channels,), "f32"),
            "staged": ((batch, sample), "f32"),  # a batch from the host
            "staged_labels": ((batch, max(prod(shape), 1)), "i32"),
        }
        if self.loss.settings.get("class_weights") is not None:
            control["class_weights"] = ((self.graph.output_shape[-1],), "f32")
        return control

    def _bounds_of_order(self) -> np.ndarray:
        """The length of `bounds` depends on the order of the tensors alone, so any places do."""
        places, at = {}, 0
        for p in self.graph.trainable:
            places[p.name] = (at, p.shape)
            at += -(-prod(p.shape) // 4) * 4
        return self._bounds(places, {p.name: p.decay for p in self.graph.trainable})

    @staticmethod
    def _bounds(places: dict[str, tuple[int, tuple[int, ...]]], decay: dict[str, bool]) -> np.ndarray:
        return calls_step.decay_bounds((at, prod(shape), decay[name]) for name, (at, shape) in places.items())

    def _put(self, name: str, array: np.ndarray) -> None:
        self.backend.write(self.plan, name, array)

    @property
    def batch_size(self) -> int:
        return self.plan.batch

    @property
    def model(self) -> SimpleNamespace:
        """model.weights: all weights as one named vector, a copy; set_weights puts one back."""
        weights = NamedVector(self.backend.read_run(self.plan), places_of(self.plan))
        return SimpleNamespace(graph=self.graph, weights=weights)

    def set_weights(self, weights: np.ndarray) -> None:
        """Put a vector such as model.weights back on the device."""
        self.backend.write_run(self.plan, weights)

    # ---- one step

    def attach(self, data: Dataset) -> None:
        """Keep a data set on the device if it fits beside the arena; else its batches are sent one by one."""
        if self._set is data:
            return
        self._set, self._resident = data, None
        size = data.x.nbytes + 4 * len(data.x) * max(prod(self.target[0]), 1)
        free = getattr(self.device, "free_bytes", None)
        if free is not None and size > 0.9 * free():
            return
        x, y = np.ascontiguousarray(data.x), self._labels(data.y)
        at = {"set": self.device.allocate(x.nbytes), "labels": self.device.allocate(y.nbytes)}
        self.device.upload(at["set"], x)
        self.device.upload(at["labels"], y)
        self.backend.external = at
        self._resident = (len(x), "u8" if x.dtype == np.uint8 else "f32")
        self._graphs.clear()

    def _labels(self, y: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(y, DTYPES[self.target[1]])

    def run_batch(self, data: Dataset, index: np.ndarray, first: bool, group: int, settings: Settings) -> None:
        """One micro-batch of data[index]; group: how many make the update that follows it, 0 for none."""
        self.attach(data)
        if group:
            self.optimizer.t += 1
        self._send(index if self._resident else np.arange(len(index)), group)
        if self._resident is None:
            self._stage(data.x[index], data.y[index])
        key = (not first, bool(group), self._resident)
        if key not in self._graphs:
            clip = (settings.clip_value or 0.0, settings.clip_norm or 0.0)
            self._graphs[key] = self.device.capture(self._step(not first, bool(group), clip))
        self._graphs[key]()
        self.micro_step += 1
        self._pending.append((len(index), bool(group)))

    def _send(self, index: np.ndarray, group: int) -> None:
        """The step's counters and the samples' numbers, in one copy."""
        step = np.zeros(1, calls_step.STEP)
        step["seed"] = [[self.seed & 0xFFFFFFFF, self.seed >> 32]]
        step["micro"] = [[self.micro_step & 0xFFFFFFFF, self.micro_step >> 32]]
        step["cursor"], step["t"] = len(self._pending), max(self.optimizer.t, 1)
        step["lr"], step["grad_scale"] = self.optimizer.lr, 1 / max(group, 1)
        block = np.concatenate([step.view(np.int32), index.astype(np.int32)])  # order stands right behind step
        self.device.upload(self.backend.address(self.plan, "step"), block)

    def _stage(self, x: np.ndarray, y: np.ndarray | None) -> None:
        """A batch from the host into the arena."""
        x = np.ascontiguousarray(x if x.dtype == np.uint8 else x.astype(np.float32, copy=False))
        self.device.upload(self.backend.address(self.plan, "staged"), x)
        if y is not None:
            self.device.upload(self.backend.address(self.plan, "staged_labels"), self._labels(y))

    def _staged(self, plan: Plan, dtype: str, rows: int, labelled: bool) -> list:
        """The load of a batch that lies in the staging area."""
        before = self.backend.external
        at = {role: self.backend.address(plan, name) for role, name in (("set", "staged"), ("labels", "staged_labels"))}
        self.backend.external = at if labelled else {"set": at["set"]}
        bound = self.backend.bind_load(plan, dtype, rows, rows, False, labelled)
        self.backend.external = before
        return bound

    def _step(self, accumulate: bool, update: bool, clip: tuple[float, float]) -> list:
        """Every kernel of a step, with addresses, in order."""
        plan, backend, out = self.plan, self.backend, []
        for launch in plan.launches:
            if launch.kind == "load":
                if self._resident is not None:
                    out += backend.bind_load(plan, self._resident[1], plan.batch, self._resident[0], True, True)
                else:
                    assert self._set is not None
                    out += self._staged(plan, "u8" if self._set.x.dtype == np.uint8 else "f32", plan.batch, True)
            elif launch.kind in ("forward", "loss", "sum", "backward"):
                out += backend.bind(plan, launch, plan.batch, accumulate)
        if update:
            out += backend.bind_update(plan, *clip, len(self._bounds_of_order()))
        return out + backend.bind_advance(plan, update, HISTORY)

    def collect(self, wait: bool) -> list[dict[str, float]]:
        """The figures of finished steps, oldest first: read when asked to wait, or when the record is full."""
        if not self._pending or (not wait and len(self._pending) < HISTORY):
            return []
        rows = self.backend.read(self.plan, "history")[: len(self._pending)]
        out = []
        for (size, updated), (loss, correct, norm, _) in zip(self._pending, rows.tolist(), strict=True):
            row = {"loss": loss, "samples": size, "updated": updated}
            row |= {"correct": int(correct)} if self.classes else {}
            out.append(row | ({"grad_norm": norm} if updated else {}))
        self._pending.clear()
        return out

    # ---- the step taken apart

    def step(self, batch: Any) -> dict[str, float]:
        """Forward, loss, backward, update on one batch (.x, .y). Returns loss, grad_norm, correct."""
        activations = self.forward(batch.x)
        loss = self.criterion(activations["output"], batch.y)
        gradients = self.backward(loss, activations)
        metrics = {"loss": float(loss), "grad_norm": float(np.linalg.norm(gradients.astype(np.float64)))}
        predicted = self.loss.predictions(activations["output"], answers(self.loss, self.target, batch.y, len(batch.x)))
        if predicted is not None:
            metrics["correct"] = int((predicted == np.asarray(batch.y).reshape(predicted.shape)).sum())
        self.optimizer.update(self.model.weights, gradients)
        return metrics

    def forward(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Run the forward kernels one launch at a time; copies of every layer's output by name, and "output"."""
        x, seen = np.asarray(x), dict[str, np.ndarray]()
        check_sample(self.graph, x, self.plan.batch)
        self._send(np.arange(len(x)), 0)
        self._stage(x, None)
        for at, launch in enumerate(self.plan.launches):
            if launch.kind == "loss":
                break
            if launch.kind == "load":
                self.backend.run(self._staged(self.plan, "u8" if x.dtype == np.uint8 else "f32", len(x), False))
            else:
                self.backend.run(self.backend.bind(self.plan, launch, len(x)))
            self._copy(at, len(x), seen)
        out = {layer: seen[self.graph.tensors[t].name] for layer, t in self.graph.layers.items()
               if self.graph.tensors[t].name in seen}  # fmt: skip
        return out | {"output": seen[self.graph.tensors[self.graph.outputs[0]].name]}

    def _copy(self, at: int, rows: int, seen: dict[str, np.ndarray]) -> None:
        renamed = (new for after, new, _ in self.plan.renames if after == at + 1)
        for name in (*self.plan.launches[at].writes.values(), *renamed):
            if self.plan.values[name].batched:
                seen[name] = self.backend.read(self.plan, name, rows)

    def criterion(self, output: np.ndarray, y: np.ndarray) -> Loss:
        """The loss of an output, which carries its own gradient for `backward`."""
        value, gradient = self.loss(np.asarray(output), answers(self.loss, self.target, y, len(output)))
        return Loss(value, gradient)

    def backward(self, loss: Loss, activations: dict[str, np.ndarray] | None = None) -> NamedVector:
        """Run the backward kernels after `forward`: all gradients, and those of the layers' outputs in .activations."""
        rows, seen = len(loss.gradient), dict[str, np.ndarray]()
        for at, launch in enumerate(self.plan.launches):
            if launch.kind == "loss":
                self.backend.write(self.plan, launch.writes["dz"], loss.gradient)
            elif launch.kind in ("backward", "sum"):
                self.backend.run(self.backend.bind(self.plan, launch, rows))
            if launch.kind in ("loss", "backward", "sum"):
                self._copy(at, rows, seen)
        self.micro_step += 1
        gradients = NamedVector(self.backend.read_run(self.plan, "d:"), places_of(self.plan, "d:"))
        by_tensor = {name[2:].rstrip("+"): array for name, array in seen.items()}
        names = {layer: self.graph.tensors[t].name for layer, t in self.graph.layers.items()}
        gradients.activations = {layer: by_tensor[name] for layer, name in names.items() if name in by_tensor}
        return gradients

    def _update(self, weights: NamedVector, gradients: NamedVector) -> None:
        """One update on the device with these gradients; `weights` then holds the new ones."""
        self.optimizer.t += 1
        self._send(np.arange(self.plan.batch), 1)
        self.backend.write_run(self.plan, gradients, "d:")
        self.backend.run(self.backend.bind_update(self.plan, 0.0, 0.0, len(self._bounds_of_order())))
        weights[...] = self.backend.read_run(self.plan)

    # ---- using the net as it is

    def infer(self, x: np.ndarray) -> np.ndarray:
        """The net's output for up to batch_size samples, as at inference: a copy."""
        plan, rows = self.eval_plan, len(x)
        check_sample(self.graph, x, plan.batch)
        self._stage(x, None)
        key = ("infer", rows, x.dtype == np.uint8)
        if key not in self._graphs:
            bound = self._staged(plan, "u8" if x.dtype == np.uint8 else "f32", rows, False)
            for launch in plan.launches:
                if launch.kind == "forward":
                    bound += self.backend.bind(plan, launch, rows)
            self._graphs[key] = self.device.capture(bound)
        self._graphs[key]()
        return self.backend.read(plan, plan.graph.tensors[plan.graph.outputs[0]].name, rows)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> Evaluation:
        """Loss and accuracy over a whole set, batch by batch."""
        from .trainer import evaluate

        return evaluate(self, x, y)

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Everything a resume needs: weights/NAME (with statistics) and optimizer/STATE/NAME."""
        out = {f"weights/{name}": self.backend.read(self.plan, name) for name in self.graph.params}
        for state in self.optimizer.rule.states:
            for p in self.graph.trainable:
                out[f"optimizer/{state}/{p.name}"] = self.backend.read(self.plan, f"{state}:{p.name}")
        return out

    def load_arrays(self, arrays: dict[str, np.ndarray], where: str, optimizer: bool = True) -> None:
        """The inverse of state_arrays; a missing or misshapen array is named."""
        from .trainer import check_array

        names = {f"weights/{name}": name for name in self.graph.params}
        if optimizer:
            names |= {f"optimizer/{s}/{p.name}": f"{s}:{p.name}" for s in self.optimizer.rule.states
                      for p in self.graph.trainable}  # fmt: skip
        for key, name in names.items():
            self._put(name, check_array(arrays, key, self.plan.view(name)[1], where))
