"""What every backend's trainer shares: the step taken apart, with everything it computes in the open.

A trainer of a backend (trainer.py: NumPy; device_trainer.py: kernels) plans with `set_up`, owns the arena, and says how
a batch gets in, how one launch runs, and how values are read and written.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import blueprint as blueprints
from .aids import AVERAGE, Aids, apply, averaged
from .errors import UserError
from .fuse import for_training, without_training_only
from .graph import Graph, build
from .losses import make_loss
from .optimizers import make_optimizer
from .plan import Launch, Plan
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
    """Mean loss and, for classification, accuracy and the predicted classes; the net's outputs if asked for."""

    loss: float
    accuracy: float | None
    predictions: np.ndarray | None
    scores: np.ndarray | None = None


class Observer(Protocol):
    """Sees a step launch by launch. loss: the batch's, once the loss has been launched."""

    def before(self, launch: Launch) -> None: ...
    def after(self, launch: Launch, loss: float) -> None: ...


class BaseTrainer:
    """A net in training, whatever runs it. update_mode "end": all gradients are there before the first update."""

    plan: Plan
    eval_plan: Plan
    update_mode: str
    observer: Observer | None = None  # of every step, while it is set
    scales = 0  # of int8 tensors, that a card keeps

    def set_up(
        self, blueprint: blueprints.Blueprint | str | Path, seed: int, classes: bool | None, aids: Aids | None = None
    ) -> None:
        """Everything about the net that does not depend on the backend. aids: by default the blueprint's."""
        if not isinstance(blueprint, blueprints.Blueprint):
            blueprint = blueprints.load(blueprint)
        self.blueprint, self.seed = blueprint, seed
        self.aids = aids or Aids.of(blueprints.train_settings(blueprint))
        self.full = apply(self.aids, build(blueprint), blueprint.where)  # as the blueprint has it, nothing fused
        self.loss = make_loss(blueprint.loss)
        self.graph = for_training(self.full, self.loss.name)
        self.plain = self.graph  # with every layer that a backend may join with another
        self.classes = self.loss.classification if classes is None else classes
        check_loss(blueprint, self.graph, self.loss, self.classes)
        self.rule = make_optimizer(blueprint.optimizer)
        self.target = target_of(self.graph, self.classes)
        self.micro_step = 0  # forward passes so far: the counter of dropout's and augmentation's random numbers
        self.epoch = 0  # set by the loop: the alternate flip depends on it
        self._kept = 0  # samples of a forward() whose values still lie in the arena

    @property
    def states(self) -> tuple[str, ...]:
        """The arrays that each weight has beside itself, by the prefix of their names."""
        return (*self.rule.states, *([AVERAGE] if self.aids.ema else []))

    @property
    def evaluated(self) -> Graph:
        """The net that is evaluated and exported."""
        return self._averages(without_training_only(self.graph))

    @property
    def measured(self) -> Graph:
        """The same with no layer joined with another that has an output of its own."""
        return self._averages(without_training_only(self.plain))

    def _averages(self, graph: Graph) -> Graph:
        return averaged(graph) if self.aids.ema else graph

    @property
    def batch_size(self) -> int:
        return self.plan.batch

    # ---- what a backend provides

    def load(self, plan: Plan, x: np.ndarray) -> None:
        """Put a host batch into the net's input, normalised where it is uint8."""
        raise NotImplementedError

    def run(self, plan: Plan, launch: Launch, rows: int) -> None:
        """Run one launch that is an operator's: forward, again, sum or backward."""
        raise NotImplementedError

    def read(self, plan: Plan, name: str, rows: int | None = None) -> np.ndarray:
        """A value, of a batched one the first `rows` samples: a copy on the host."""
        raise NotImplementedError

    def write(self, plan: Plan, name: str, array: np.ndarray) -> None:
        """Put a host array into a value (its front, where it is smaller)."""
        raise NotImplementedError

    def after(self, plan: Plan, index: int) -> None:
        """Launch `index` of a plan is done."""

    def flat_gradients(self) -> np.ndarray:
        """All gradients as one vector, gaps included: a copy."""
        raise NotImplementedError

    # ---- the step taken apart

    def forward(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Run the forward launches one at a time. Copies of every layer's output by name, and "output".

        A layer that is fused with the one after it has no output of its own, nor has a last softmax that the loss
        includes. Nothing is augmented.
        """
        x, seen = np.asarray(x), dict[str, np.ndarray]()
        check_sample(self.graph, x, self.plan.batch)
        for index, launch in enumerate(self.plan.launches):
            if launch.kind == "loss":
                break
            if launch.kind == "load":
                self.load(self.plan, x)
            else:
                self.run(self.plan, launch, len(x))
            self._copy_new(index, len(x), seen)
            self.after(self.plan, index)
        self._kept = len(x)
        out = self._by_layer(seen)
        out["output"] = seen[self.graph.tensors[self.graph.outputs[0]].name]
        return out

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
        for index, launch in enumerate(self.plan.launches[start:], start):
            if launch.kind == "loss":
                self.write(self.plan, launch.writes["dz"], loss.gradient)
            elif launch.kind in ("backward", "again", "sum"):
                self.run(self.plan, launch, rows)
            if launch.kind != "again":
                self._copy_new(index, rows, seen)
            self.after(self.plan, index)
        self.micro_step += 1
        gradients = NamedVector(self.flat_gradients(), places_of(self.plan, "d:"))
        gradients.activations = self._by_layer({name[2:].rstrip("+"): array for name, array in seen.items()})
        return gradients

    def _copy_new(self, index: int, rows: int, seen: dict[str, np.ndarray]) -> None:
        """Copy what launch `index` has put out for each sample, and what is only another name of it (a flatten)."""
        renamed = (new for at, new, _ in self.plan.renames if at == index + 1)
        for name in (*self.plan.launches[index].writes.values(), *renamed):
            if self.plan.values[name].batched:
                seen[name] = self.read(self.plan, name, rows)

    def _by_layer(self, seen: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays by tensor as arrays by blueprint layer."""
        names = {layer: self.graph.tensors[t].name for layer, t in self.graph.layers.items()}
        return {layer: seen[name] for layer, name in names.items() if name in seen}

    # ---- using the net as it is

    def infer(self, x: np.ndarray) -> np.ndarray:
        """The net's output for up to batch_size samples, as at inference (no dropout, running statistics, the weights'
        average where one is kept): a copy. Of a net that ends in a softmax which the loss includes, the logits."""
        plan, self._kept = self.eval_plan, 0
        check_sample(self.graph, x, plan.batch)
        for index, launch in enumerate(plan.launches):
            if launch.kind == "load":
                self.load(plan, x)
            elif launch.kind == "forward":
                self.run(plan, launch, len(x))
            self.after(plan, index)
        return self.read(plan, plan.graph.tensors[plan.graph.outputs[0]].name, len(x))

    def infer_layer(self, x: np.ndarray, layer: str) -> np.ndarray:
        """What a layer puts out, as at inference, for up to batch_size samples: a copy."""
        plan, self._kept = self.eval_plan, 0
        check_sample(self.graph, x, plan.batch)
        name = plan.graph.tensors[plan.graph.layers[layer]].name
        for index, launch in enumerate(plan.launches):
            if launch.kind == "load":
                self.load(plan, x)
            elif launch.kind == "forward":
                self.run(plan, launch, len(x))
            if name in launch.writes.values():
                return self.read(plan, name, len(x))
            self.after(plan, index)
        raise UserError(f"{self.blueprint.where}: {layer} has no output of its own.\n  Name another layer.")

    def evaluate(self, x: np.ndarray, y: np.ndarray, scores: bool = False) -> Evaluation:
        """Loss and accuracy over a whole set, batch by batch. scores: also return every output."""
        total, correct, predictions, outputs = 0.0, 0, [], []
        for start in range(0, len(x), self.batch_size):
            z = self.infer(x[start : start + self.batch_size])
            t = answers(self.loss, self.target, y[start : start + self.batch_size], len(z))
            total += self.loss(z, t)[0] * len(t)
            if scores:
                outputs.append(z)
            predicted = self.loss.predictions(z, t)
            if predicted is not None:
                predictions.append(predicted)
                correct += int((predicted == t.reshape(predicted.shape)).sum())
        found = np.concatenate(predictions) if predictions else None
        kept = np.concatenate(outputs) if outputs else None
        return Evaluation(total / len(x), correct / len(x) if predictions else None, found, kept)

    # ---- what layers are like (layer_stats.py)

    def keep_weights(self) -> None:
        """Right before the last update of an epoch, which layer_statistics will look at."""
        raise NotImplementedError

    def layer_statistics(self, data: Any) -> list[dict[str, Any]]:
        """Every layer measured, on samples of the training set `data`, after the update that keep_weights preceded."""
        raise NotImplementedError

    # ---- what a checkpoint holds

    def _lasting(self, optimizer: bool) -> dict[str, str]:
        """Name in a checkpoint -> value of the plan."""
        names = {f"weights/{name}": name for name in self.graph.params}
        if optimizer:
            for state in self.rule.states:
                names |= {f"optimizer/{state}/{p.name}": f"{state}:{p.name}" for p in self.graph.trainable}
            names |= {f"average/{name}": f"{AVERAGE}:{name}" for name in self._averaged()}
        return names

    def _averaged(self) -> list[str]:
        """What an average is kept of."""
        return [p.name for p in (*self.graph.trainable, *self.graph.statistics)] if self.aids.ema else []

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Everything a resume needs, as copies: weights/NAME (with statistics), optimizer/STATE/NAME and, of an average
        of the weights, average/NAME."""
        return {key: self.read(self.plan, name) for key, name in self._lasting(True).items()}

    def load_arrays(self, arrays: dict[str, np.ndarray], where: str, optimizer: bool = True) -> None:
        """The inverse of state_arrays; a missing or misshapen array is named. Without `optimizer` only the weights,
        from which their average, if any, starts anew."""
        for key, name in self._lasting(optimizer).items():
            self.write(self.plan, name, check_array(arrays, key, self.plan.view(name)[1], where))
        if not optimizer:
            self.start_average()

    def start_average(self) -> None:
        """Let the average of the weights begin where they are."""
        for name in self._averaged():
            self.write(self.plan, f"{AVERAGE}:{name}", self.read(self.plan, name))


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
