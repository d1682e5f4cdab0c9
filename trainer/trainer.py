"""The trainer: one net, its optimiser and a backend, one step at a time.

    trainer = Trainer("mnist_mlp.json", batch_size=256)
    for batch in loader:
        print(trainer.step(batch))             # {"loss": 2.29, "grad_norm": 1.7, "correct": 31}

and the same step taken apart, with everything it computes in the open:

    activations = trainer.forward(batch.x)     # {"layer_0": array, ..., "output": array}
    loss = trainer.criterion(activations["output"], batch.y)
    gradients = trainer.backward(loss, activations)
    gradients += 0.001 * trainer.model.weights # any change to them, by name or as one vector
    trainer.optimizer.update(trainer.model.weights, gradients)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import blueprint as blueprints
from . import layer_stats
from .aids import AVERAGE, Aids, decay_at
from .backends.numpy import NumpyBackend
from .base import BaseTrainer, answers, check_sample
from .data.augment import Augmentation, augment
from .data.batches import to_input
from .data.mix import draw_mix
from .graph import Graph
from .init import fill
from .optimizers import Optimizer
from .plan import Launch, Plan, plan_inference, plan_training
from .vectors import NamedVector, places_of


def quiet() -> np.errstate:
    """NumPy without warnings: the loop says what became infinite, and where."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


class BoundOptimizer:
    """The optimiser with its state in the arena. Replace `update` to try another rule (Trainer's update="end")."""

    def __init__(
        self, rule: Optimizer, graph: Graph, states: dict[str, NamedVector], lr: float, after: Callable[[], None]
    ):
        """after: called when every tensor has been updated."""
        self.rule, self.states, self.lr, self.t, self.after = rule, states, lr, 0, after
        self._decay = {p.name: p.decay for p in graph.trainable}
        self._rate = {p.name: p.rate for p in graph.trainable}

    def update(self, weights: NamedVector, gradients: NamedVector) -> None:
        """One update of every tensor, in place."""
        self.t += 1
        for name in weights.names():
            self.update_one(name, weights[name], gradients[name])
        self.after()

    def update_one(self, name: str, w: np.ndarray, g: np.ndarray) -> None:
        """Update one tensor with step number self.t."""
        state = {key: vector[name] for key, vector in self.states.items()}
        self.rule.apply(w, g, state, self.lr * self._rate[name], self.t, self._decay[name])


class Trainer(BaseTrainer):
    """A net in training. All arrays of the step live in one arena, at offsets fixed before the first step."""

    def __init__(
        self,
        blueprint: blueprints.Blueprint | str | Path,
        batch_size: int = 64,
        seed: int = 0,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        update: str = "end",
        poison: bool = False,
        learning_rate: float | None = None,
        classes: bool | None = None,
        recompute: Iterable[str] = (),
        aids: Aids | None = None,
    ):
        """mean, std: per channel in pixel units; uint8 batches become (pixel - mean) / std. classes: whether batch.y
        holds class numbers; by default as the loss expects (mse and bce take both). update, recompute: see plan.py.
        aids: see aids.py."""
        self.set_up(blueprint, seed, classes, aids)
        self.update_mode, self.mean, self.std = update, mean, std
        states = self.states
        self.plan = plan_training(self.graph, batch_size, states, update, self.target, recompute=recompute)
        self.eval_plan = plan_inference(self.evaluated, batch_size, states, update == "end")
        self.backend = self.make_backend([self.plan, self.eval_plan], poison)
        self.model = SimpleNamespace(
            graph=self.full, weights=NamedVector(self.backend.flat(self.plan, "weights"), places_of(self.plan))
        )
        rate = learning_rate or blueprints.start_rate(self.blueprint)
        self.optimizer = BoundOptimizer(self.rule, self.graph, self._states(self.rule), rate, self.average)
        self._finished: list[dict[str, float]] = []
        self._before: dict[str, np.ndarray] = {}  # weights before an update that is looked at
        self._squares: dict[str, float] = {}  # and the squared norms of its gradients
        for index, p in enumerate(self.graph.params.values()):
            self.array(p.name)[...] = fill(p.shape, p.init, p.fans, seed, index)
        self.start_average()

    def make_backend(self, plans: list[Plan], poison: bool) -> NumpyBackend:
        """What runs the plans; a trainer that calculates otherwise has another."""
        return NumpyBackend(plans, poison)

    def _states(self, rule: Optimizer) -> dict[str, NamedVector]:
        """The optimiser's arrays: the arena's run of them cut into one vector for each state."""
        if not rule.states:
            return {}
        flat, start = self.backend.flat(self.plan, "optimizer"), self.plan.view(f"{rule.states[0]}:{self._first}")[0]
        out = {}
        for state in rule.states:
            places = {
                p.name: ((self.plan.view(f"{state}:{p.name}")[0] - start) // 4, p.shape) for p in self.graph.trainable
            }
            out[state] = NamedVector(flat, places)
        return out

    @property
    def _first(self) -> str:
        return self.graph.trainable[0].name

    def array(self, name: str) -> np.ndarray:
        """A parameter, or running statistic, as a view of the arena."""
        return self.backend.array(self.plan, name)

    @property
    def gradients(self) -> NamedVector:
        """All parameter gradients, as the last backward left them (update="end" only)."""
        return NamedVector(self.backend.flat(self.plan, "gradients"), places_of(self.plan, "d:"))

    def average(self) -> None:
        """Let the average of the weights, if one is kept, follow them (aids.py)."""
        for name in self._averaged():
            average = self.array(f"{AVERAGE}:{name}")
            rest = average.dtype.type(1 - decay_at(self.aids.ema or 0.0, self.optimizer.t))
            average += rest * (self.array(name) - average)

    # ---- one step

    def step(self, batch: Any) -> dict[str, float]:
        """Forward, loss, backward, update on one batch (.x, .y). Returns loss, grad_norm, correct."""
        metrics = self.micro(batch.x, batch.y)
        if self.update_mode == "end":
            metrics["grad_norm"] = self.grad_norm()
            self.optimizer.update(self.model.weights, self.gradients)
        return metrics

    @quiet()
    def micro(self, x: np.ndarray, y: np.ndarray, accumulate: bool = False, share: float = 1.0) -> dict[str, float]:
        """Forward, loss and backward of one (micro-)batch; with accumulate, gradients add to the earlier ones.
        share: of each sample's own label, where x is mixed with itself in opposite order (data/mix.py).

        With update="immediate" each tensor is updated as soon as its gradient is complete.
        """
        rows, squares, metrics = len(x), {}, {}
        self._kept = 0
        immediate = self.update_mode == "immediate"
        if immediate:
            self.optimizer.t += 1
        for index, launch in enumerate(self.plan.launches):
            if self.observer is not None:
                self.observer.before(launch)
            if launch.kind == "load":
                self.load(self.plan, x)
                self.backend.array(self.plan, "target", rows)[...] = answers(self.loss, self.target, y, rows)
            elif launch.kind == "loss":
                metrics = self._loss(launch, rows, share)
            elif launch.kind in ("forward", "again", "sum", "backward"):
                self.backend.run(self.plan, launch, rows, self.seed, self.micro_step, accumulate)
            elif launch.kind == "update" and launch.group:
                g = self.backend.array(self.plan, f"d:{launch.group}")
                squares[launch.group] = sum_of_squares(g)
                self.optimizer.update_one(launch.group, self.array(launch.group), g)
            elif launch.kind == "average" and immediate:
                self.optimizer.after()
            if self.observer is not None:
                self.observer.after(launch, metrics.get("loss", 0.0))
            self.backend.after(self.plan, index)
        self.micro_step += 1
        if immediate:
            self._squares = squares
            metrics["grad_norm"] = float(np.sqrt(sum(squares[p.name] for p in self.graph.trainable)))
        return metrics

    @quiet()
    def run_batch(self, data: Any, index: np.ndarray, first: bool, group: int, settings: Any) -> None:
        """One micro-batch of data[index], for the loop. first: the first of an update's. group: how many make the
        update that follows, 0 for none. `collect` has the figures."""
        x, spec = data.x[index], settings.make_augmentation()
        if spec is not None:
            scale = self._scale(x.shape[-1]) if x.dtype == np.uint8 else (None, None)
            x = augment(x, spec, self.seed, self.micro_step, index, self.epoch, *scale)
        mixed = {"share": self._share(spec, x)} if spec is not None and spec.mixes else {}
        metrics = self.micro(x, data.y[index], accumulate=not first, **mixed)
        metrics |= {"samples": len(index), "updated": group > 0}
        if group and self.update_mode == "end":
            gradients = self.gradients
            if group > 1:
                gradients *= gradients.dtype.type(1 / group)
            if self._before:
                self._squares = {p.name: sum_of_squares(gradients[p.name]) for p in self.graph.trainable}
            if settings.clip_value:
                gradients.clip(-settings.clip_value, settings.clip_value, out=gradients)
            metrics["grad_norm"] = norm = self.grad_norm()
            if settings.clip_norm and norm > settings.clip_norm:
                gradients *= gradients.dtype.type(settings.clip_norm / norm)
            self.optimizer.update(self.model.weights, gradients)
        self._finished.append(metrics)

    def _share(self, spec: Augmentation, x: np.ndarray) -> float:
        return draw_mix(spec, self.seed, self.micro_step, *x.shape[1:3]).share

    def keep_weights(self) -> None:
        self._before = {p.name: self.array(p.name).copy() for p in self.graph.trainable}

    @quiet()
    def layer_statistics(self, data: Any) -> list[dict[str, Any]]:
        plan, outputs = self.eval_plan, dict[str, layer_stats.Outputs]()
        names = layer_stats.measured(plan.graph)
        for index in layer_stats.probe(len(data.x), plan.batch):
            for launch in plan.launches:
                if launch.kind == "load":
                    self.load(plan, data.x[index])
                else:
                    self.run(plan, launch, len(index))
                for name in names.keys() & set(launch.writes.values()):
                    found = layer_stats.of_array(self.backend.array(plan, name, len(index)))
                    outputs[name] = outputs[name] + found if name in outputs else found
        kept, self._before = self._before, {}
        weights = {name: sum_of_squares(w) for name, w in kept.items()}
        updates = {name: sum_of_squares(self.array(name) - w) for name, w in kept.items()}
        return layer_stats.rows(plan.graph, outputs, self._squares, weights, updates)

    def collect(self, wait: bool) -> list[dict[str, float]]:
        """The figures of the steps since the last call. A device may keep them back until it is asked to wait."""
        finished, self._finished = self._finished, []
        return finished

    def grad_norm(self) -> float:
        """The Euclidean norm of all gradients together, summed in float64, tensor by tensor."""
        gradients = self.gradients
        return float(np.sqrt(sum(sum_of_squares(gradients[p.name]) for p in self.graph.trainable)))

    def _scale(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, for bytes."""
        return self.mean or (0.0,) * channels, self.std or (255.0,) * channels

    def _loss(self, launch: Launch, rows: int, share: float) -> dict[str, float]:
        z = self.backend.array(self.plan, launch.reads["z"], rows)
        t = self.backend.array(self.plan, launch.reads["target"], rows)
        loss, dz = self.loss(z, t) if share == 1 else self.loss(z, t, share)
        predicted = self.loss.predictions(z, t)
        metrics = {"loss": loss}
        if predicted is not None:
            metrics["correct"] = int((predicted == t.reshape(predicted.shape)).sum())
        np.copyto(self.backend.array(self.plan, launch.writes["dz"], rows), dz)
        return metrics

    # ---- what the step taken apart is made of

    def load(self, plan: Plan, x: np.ndarray) -> None:
        check_sample(plan.graph, x, plan.batch)
        into = self.backend.array(plan, plan.graph.tensors[plan.graph.input].name, len(x))
        if x.dtype == np.uint8:
            x = x if x.ndim == 4 else x[..., None]
            to_input(x, *self._scale(x.shape[-1]), out=into.reshape(x.shape))
        else:
            np.copyto(into, x.reshape(into.shape))

    def run(self, plan: Plan, launch: Launch, rows: int) -> None:
        self.backend.run(plan, launch, rows, self.seed, self.micro_step)

    def read(self, plan: Plan, name: str, rows: int | None = None) -> np.ndarray:
        return self.backend.array(plan, name, rows).copy()

    def write(self, plan: Plan, name: str, array: np.ndarray) -> None:
        np.copyto(self.backend.array(plan, name, len(array) if plan.values[name].batched else None), array)

    def after(self, plan: Plan, index: int) -> None:
        self.backend.after(plan, index)

    def flat_gradients(self) -> np.ndarray:
        return np.array(self.gradients)


def sum_of_squares(g: np.ndarray) -> float:
    """sum g^2 in float64."""
    flat = g.ravel().astype(np.float64)
    return float(flat @ flat)
