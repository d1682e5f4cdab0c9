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

from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import blueprint as blueprints
from .backends.numpy import NumpyBackend
from .data.batches import to_input
from .errors import UserError
from .fuse import for_training, without_training_only
from .graph import Graph, build
from .init import fill
from .losses import make_loss
from .optimizers import Optimizer, make_optimizer
from .plan import Launch, Plan, plan_inference, plan_training
from .vectors import NamedVector, places_of


class Loss(float):
    """The mean loss of a batch, with `gradient`: its derivative by the net's output, (N, ...)."""

    gradient: np.ndarray

    def __new__(cls, value: float, gradient: np.ndarray) -> Loss:
        loss = super().__new__(cls, value)
        loss.gradient = gradient
        return loss


@dataclass
class Evaluation:
    """Mean loss and, for classification, accuracy and the predicted classes."""

    loss: float
    accuracy: float | None
    predictions: np.ndarray | None


class BoundOptimizer:
    """The optimiser with its state in the arena. Replace `update` to try another rule (Trainer's update="end")."""

    def __init__(self, rule: Optimizer, graph: Graph, states: dict[str, NamedVector], lr: float):
        self.rule, self.states, self.lr, self.t = rule, states, lr, 0
        self._decay = {p.name: p.decay for p in graph.trainable}

    def update(self, weights: NamedVector, gradients: NamedVector) -> None:
        """One update of every tensor, in place."""
        self.t += 1
        for name in weights.names():
            self.update_one(name, weights[name], gradients[name])

    def update_one(self, name: str, w: np.ndarray, g: np.ndarray) -> None:
        """Update one tensor with step number self.t."""
        state = {key: vector[name] for key, vector in self.states.items()}
        self.rule.apply(w, g, state, self.lr, self.t, self._decay[name])


class Trainer:
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
    ):
        """mean, std: per channel in pixel units; uint8 batches become (pixel - mean) / std. update: see plan.py.
        classes: whether batch.y holds class numbers; by default as the loss expects (mse and bce take both)."""
        if not isinstance(blueprint, blueprints.Blueprint):
            blueprint = blueprints.load(blueprint)
        self.blueprint, self.seed, self.update_mode = blueprint, seed, update
        self.mean, self.std = mean, std
        full = build(blueprint)
        self.loss = make_loss(blueprint.loss)
        self.graph = for_training(full, self.loss.name)
        self.classes = self.loss.classification if classes is None else classes
        check_loss(blueprint, self.graph, self.loss, self.classes)
        rule = make_optimizer(blueprint.optimizer)
        self.target = target_of(self.graph, self.classes)
        self.plan = plan_training(self.graph, batch_size, rule.states, update, self.target)
        self.eval_plan = plan_inference(without_training_only(self.graph), batch_size, rule.states, update == "end")
        self.backend = NumpyBackend([self.plan, self.eval_plan], poison)
        self.model = SimpleNamespace(
            graph=full, weights=NamedVector(self.backend.flat(self.plan, "weights"), places_of(self.plan))
        )
        rate = learning_rate or blueprints.train_settings(blueprint)["learning_rate"]
        self.optimizer = BoundOptimizer(rule, self.graph, self._states(rule), rate)
        self.micro_step = 0  # forward passes so far: the counter of dropout's random numbers
        self._finished: list[dict[str, float]] = []
        self._kept = 0  # samples of a forward() whose values still lie in the arena
        for index, p in enumerate(self.graph.params.values()):
            self.array(p.name)[...] = fill(p.shape, p.init, p.fans, seed, index)

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

    @property
    def batch_size(self) -> int:
        return self.plan.batch

    def array(self, name: str) -> np.ndarray:
        """A parameter, or running statistic, as a view of the arena."""
        return self.backend.array(self.plan, name)

    @property
    def gradients(self) -> NamedVector:
        """All parameter gradients, as the last backward left them (update="end" only)."""
        return NamedVector(self.backend.flat(self.plan, "gradients"), places_of(self.plan, "d:"))

    # ---- one step

    def step(self, batch: Any) -> dict[str, float]:
        """Forward, loss, backward, update on one batch (.x, .y). Returns loss, grad_norm, correct."""
        metrics = self.micro(batch.x, batch.y)
        if self.update_mode == "end":
            metrics["grad_norm"] = self.grad_norm()
            self.optimizer.update(self.model.weights, self.gradients)
        return metrics

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # the loop says what became infinite, and where
    def micro(self, x: np.ndarray, y: np.ndarray, accumulate: bool = False) -> dict[str, float]:
        """Forward, loss and backward of one (micro-)batch; with accumulate, gradients add to the earlier ones.

        With update="immediate" each tensor is updated as soon as its gradient is complete.
        """
        rows, squares, metrics = len(x), {}, {}
        self._kept = 0
        immediate = self.update_mode == "immediate"
        if immediate:
            self.optimizer.t += 1
        for index, launch in enumerate(self.plan.launches):
            if launch.kind == "load":
                self._load(self.plan, x)
                self.backend.array(self.plan, "target", rows)[...] = answers(self.loss, self.target, y, rows)
            elif launch.kind == "forward":
                self.backend.forward(self.plan, launch, rows, self.seed, self.micro_step)
            elif launch.kind == "loss":
                metrics = self._loss(launch, rows)
            elif launch.kind == "sum":
                self.backend.add(self.plan, launch, rows)
            elif launch.kind == "backward":
                self.backend.backward(self.plan, launch, rows, self.seed, self.micro_step, accumulate)
            elif launch.kind == "update" and launch.group:
                g = self.backend.array(self.plan, f"d:{launch.group}")
                squares[launch.group] = sum_of_squares(g)
                self.optimizer.update_one(launch.group, self.array(launch.group), g)
            self.backend.after(self.plan, index)
        self.micro_step += 1
        if immediate:
            metrics["grad_norm"] = float(np.sqrt(sum(squares[p.name] for p in self.graph.trainable)))
        return metrics

    def run_batch(self, data: Any, index: np.ndarray, first: bool, group: int, settings: Any) -> None:
        """One micro-batch of data[index], for the loop. first: the first of an update's. group: how many make the
        update that follows, 0 for none. `collect` has the figures."""
        metrics = self.micro(data.x[index], data.y[index], accumulate=not first)
        metrics |= {"samples": len(index), "updated": group > 0}
        if group and self.update_mode == "end":
            gradients = self.gradients
            if group > 1:
                gradients *= gradients.dtype.type(1 / group)
            if settings.clip_value:
                gradients.clip(-settings.clip_value, settings.clip_value, out=gradients)
            metrics["grad_norm"] = norm = self.grad_norm()
            if settings.clip_norm and norm > settings.clip_norm:
                gradients *= gradients.dtype.type(settings.clip_norm / norm)
            self.optimizer.update(self.model.weights, gradients)
        self._finished.append(metrics)

    def collect(self, wait: bool) -> list[dict[str, float]]:
        """The figures of the steps since the last call. A device may keep them back until it is asked to wait."""
        finished, self._finished = self._finished, []
        return finished

    def grad_norm(self) -> float:
        """The Euclidean norm of all gradients together, summed in float64, tensor by tensor."""
        gradients = self.gradients
        return float(np.sqrt(sum(sum_of_squares(gradients[p.name]) for p in self.graph.trainable)))

    def _load(self, plan: Plan, x: np.ndarray) -> None:
        check_sample(plan.graph, x, plan.batch)
        into = self.backend.array(plan, plan.graph.tensors[plan.graph.input].name, len(x))
        if x.dtype == np.uint8:
            x = x if x.ndim == 4 else x[..., None]
            channels = x.shape[-1]
            mean, std = self.mean or (0.0,) * channels, self.std or (255.0,) * channels
            to_input(x, mean, std, out=into.reshape(x.shape))
        else:
            np.copyto(into, x.reshape(into.shape))

    def _loss(self, launch: Launch, rows: int) -> dict[str, float]:
        z = self.backend.array(self.plan, launch.reads["z"], rows)
        t = self.backend.array(self.plan, launch.reads["target"], rows)
        loss, dz = self.loss(z, t)
        predicted = self.loss.predictions(z, t)
        metrics = {"loss": loss}
        if predicted is not None:
            metrics["correct"] = int((predicted == t.reshape(predicted.shape)).sum())
        np.copyto(self.backend.array(self.plan, launch.writes["dz"], rows), dz)
        return metrics

    # ---- the step taken apart

    def forward(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Run the forward launches one at a time. Copies of every layer's output by name, and "output".

        A layer that is fused with the activation after it has no output of its own, nor has a last softmax that the
        loss includes.
        """
        x, seen = np.asarray(x), dict[str, np.ndarray]()
        for index, launch in enumerate(self.plan.launches):
            if launch.kind == "loss":
                break
            if launch.kind == "load":
                self._load(self.plan, x)
            else:
                self.backend.forward(self.plan, launch, len(x), self.seed, self.micro_step)
            self._copy_new(index, len(x), seen)
            self.backend.after(self.plan, index)
        self._kept = len(x)
        out = self._by_layer(seen)
        out["output"] = seen[self.graph.tensors[self.graph.outputs[0]].name]
        return out

    def _copy_new(self, index: int, rows: int, seen: dict[str, np.ndarray]) -> None:
        """Copy what launch `index` has put out for each sample, and what is only another name of it (a flatten)."""
        renamed = (new for at, new, _ in self.plan.renames if at == index + 1)
        for name in (*self.plan.launches[index].writes.values(), *renamed):
            if self.plan.values[name].batched:
                seen[name] = self.backend.array(self.plan, name, rows).copy()

    def _by_layer(self, seen: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays by tensor as arrays by blueprint layer."""
        names = {layer: self.graph.tensors[t].name for layer, t in self.graph.layers.items()}
        return {layer: seen[name] for layer, name in names.items() if name in seen}

    def criterion(self, output: np.ndarray, y: np.ndarray) -> Loss:
        """The loss of an output, which carries its own gradient for `backward`."""
        value, gradient = self.loss(np.asarray(output), answers(self.loss, self.target, y, len(output)))
        return Loss(value, gradient)

    def backward(self, loss: Loss, activations: dict[str, np.ndarray] | None = None) -> NamedVector:
        """Run the backward launches after `forward`. Returns a copy of all gradients; .activations holds those of
        the layers' outputs by name. The arena keeps what backward needs: `activations` may be left out."""
        if self.update_mode != "end":
            raise UserError('backward() needs a trainer made with update="end".')
        rows, seen = len(loss.gradient), dict[str, np.ndarray]()
        if self._kept != rows:
            raise UserError(
                "backward() needs a forward() of the same batch right before it: it reads what that left in the arena, "
                "where every other step, infer() and backward() itself write."
            )
        self._kept = 0
        start = next(i for i, launch in enumerate(self.plan.launches) if launch.kind == "loss")
        dz = self.plan.launches[start].writes["dz"]
        np.copyto(self.backend.array(self.plan, dz, rows), loss.gradient)
        self._copy_new(start, rows, seen)
        self.backend.after(self.plan, start)
        for index, launch in enumerate(self.plan.launches[start + 1 :], start + 1):
            if launch.kind == "backward":
                self.backend.backward(self.plan, launch, rows, self.seed, self.micro_step)
            elif launch.kind == "sum":
                self.backend.add(self.plan, launch, rows)
            self._copy_new(index, rows, seen)
            self.backend.after(self.plan, index)
        self.micro_step += 1
        gradients = NamedVector(np.array(self.gradients), self.gradients.places)
        gradients.activations = self._by_layer({name[2:].rstrip("+"): array for name, array in seen.items()})
        return gradients

    # ---- using the net as it is

    def infer(self, x: np.ndarray) -> np.ndarray:
        """The net's output for up to batch_size samples, as at inference (no dropout, running statistics): a copy.
        Of a net that ends in a softmax which the loss includes, the logits."""
        rows, self._kept = len(x), 0
        for index, launch in enumerate(self.eval_plan.launches):
            if launch.kind == "load":
                self._load(self.eval_plan, x)
            else:
                self.backend.forward(self.eval_plan, launch, rows)
            self.backend.after(self.eval_plan, index)
        out = self.eval_plan.graph.tensors[self.eval_plan.graph.outputs[0]].name
        return self.backend.array(self.eval_plan, out, rows).copy()

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> Evaluation:
        """Loss and accuracy over a whole set, batch by batch."""
        return evaluate(self, x, y)

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Everything a resume needs, as copies: weights/NAME (with statistics) and optimizer/STATE/NAME."""
        out = {f"weights/{name}": self.array(name).copy() for name in self.graph.params}
        for state, vector in self.optimizer.states.items():
            out |= {f"optimizer/{state}/{name}": array.copy() for name, array in vector.items()}
        return out

    def load_arrays(self, arrays: dict[str, np.ndarray], where: str, optimizer: bool = True) -> None:
        """The inverse of state_arrays; a missing or misshapen array is named."""
        targets = {f"weights/{name}": self.array(name) for name in self.graph.params}
        if optimizer:
            for state, vector in self.optimizer.states.items():
                targets |= {f"optimizer/{state}/{name}": array for name, array in vector.items()}
        for name, target in targets.items():
            target[...] = check_array(arrays, name, target.shape, where)


def evaluate(trainer: Any, x: np.ndarray, y: np.ndarray) -> Evaluation:
    """What Trainer.evaluate does, for every trainer that can infer."""
    total, correct, predictions = 0.0, 0, []
    for start in range(0, len(x), trainer.batch_size):
        z = trainer.infer(x[start : start + trainer.batch_size])
        t = answers(trainer.loss, trainer.target, y[start : start + trainer.batch_size], len(z))
        total += trainer.loss(z, t)[0] * len(t)
        predicted = trainer.loss.predictions(z, t)
        if predicted is not None:
            predictions.append(predicted)
            correct += int((predicted == t.reshape(predicted.shape)).sum())
    found = np.concatenate(predictions) if predictions else None
    return Evaluation(total / len(x), correct / len(x) if predictions else None, found)


def answers(loss: Any, target: tuple[tuple[int, ...], str], y: np.ndarray, rows: int) -> np.ndarray:
    """y as the loss compares with it: (rows, *target)."""
    y, shape = np.asarray(y), (rows, *target[0])
    if y.size != prod(shape):
        raise UserError(
            f"Answers of shape {y.shape} do not fit {rows} samples: {loss.name} needs {shape}.\n"
            "  Give one class number a sample, or as many values as the net puts out."
        )
    return y.reshape(shape)


def check_sample(graph: Graph, x: np.ndarray, batch: int) -> None:
    """x must hold 1 to `batch` samples that the net's input can read."""
    if not 0 < len(x) <= batch:
        raise UserError(
            f"The batch holds {len(x)} samples, but the net is planned for 1 to {batch}.\n"
            f"  Give fewer at a time, or make the trainer with batch_size={len(x)}."
        )
    if not fits(x.shape[1:], graph.input_shape):
        raise UserError(
            f"A sample of {x.shape[1:]} values does not fit the net's input {graph.input_shape} (height, width, "
            "channels).\n  Give data of that shape, or change input_shape in the blueprint."
        )


def check_array(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...], where: str) -> np.ndarray:
    """arrays[name], which must be there and of that shape."""
    found = arrays.get(name)
    if found is None or found.shape != shape:
        what = "is missing" if found is None else f"has shape {found.shape}"
        raise UserError(
            f"{where}: {name} {what}, but the blueprint needs {shape}.\n"
            "  Use the blueprint this checkpoint was trained with."
        )
    return found


def sum_of_squares(g: np.ndarray) -> float:
    """sum g^2 in float64."""
    flat = g.ravel().astype(np.float64)
    return float(flat @ flat)


def fits(sample: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a sample can be read as the net's input: as many values, and if it is an image too, of that shape."""
    return prod(sample) == prod(shape) and (len(sample) != len(shape) or sample == shape)


def target_of(graph: Graph, classes: bool) -> tuple[tuple[int, ...], str]:
    """(shape without batch, dtype) of what the loss compares the output with: a class number, or values."""
    return ((), "i32") if classes else (graph.output_shape, "f32")


def check_loss(blueprint: blueprints.Blueprint, graph: Graph, loss: Any, classes: bool) -> None:
    """There must be something to train, and the last layer must give what the loss reads: one row of scores where
    the answer is a class."""
    if not graph.trainable:
        raise UserError(f"{blueprint.where}: no layer has weights to train.\n  Add at least one, such as a linear.")
    loss.check_outputs(graph.output_shape[-1], blueprint.where)
    if classes and len(graph.output_shape) != 1:
        raise UserError(
            f"{blueprint.where}: the last layer gives {graph.output_shape}, but {loss.name} needs one row of scores.\n"
            "  End with a flatten or global_avg_pool and a linear layer."
        )
