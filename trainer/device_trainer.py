"""Training on a device: the Trainer's interface over kernels, a whole step as one replayed graph.

The data set lies on the device as bytes where it fits, and each batch is gathered, changed by augmentation and
normalised there (backends/feed.py). Per step the host sends one small block (step counter, learning rate, the samples'
numbers) and replays a graph; losses and norms are read back a few hundred steps at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from struct import pack_into
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import blueprint as blueprints
from . import device_stats
from .aids import Aids
from .backends.device import TRAINED, Bound, Device, DeviceBackend, Source, kernels, supports
from .backends.feed import Feed, set_bytes
from .backends.numpy import DTYPES
from .base import BaseTrainer, Evaluation, Loss, Observer
from .budget import Scheme
from .data.augment import Augmentation
from .data.dataset import Dataset
from .data.mix import UNMIXED, Mix, draw_mix
from .device_plan import EVERYWHERE, HISTORY, DevicePlanner, scratch_limits, thrifty_limits
from .errors import UserError
from .fuse import for_kernels, without_training_only
from .init import fill
from .kernels import calls_step
from .kernels.calls_step import STEP, STEP_FORMAT
from .kernels.choose import Choice
from .memory import bytes_text
from .plan import Launch, Plan, draft_training, plan_inference
from .settings import Settings
from .vectors import NamedVector, places_of


@dataclass(frozen=True)
class Piece:
    """One launch of a plan as kernel calls with addresses."""

    name: str
    kind: str
    launch: Launch | None
    bound: list[Bound]


@dataclass(frozen=True)
class Work:
    """What a step does, and so which graph is replayed."""

    source: Source
    rows: int
    accumulate: bool = False  # gradients add to those of the micro-batches before
    update: bool = True
    clip_value: float = 0.0
    clip_norm: float = 0.0
    augment: Augmentation | None = None

    def __hash__(self) -> int:
        """Of what tells most steps apart: a step looks its graph up, and has no time to read every field."""
        return hash((self.source.set, self.rows, self.accumulate, self.update))


CHANNELS = 4  # of bytes whose mean and standard deviation are not given


class DeviceTrainer(BaseTrainer):
    """A net in training on a device. What it gives out are host arrays, copies all of them."""

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
        scheme: Scheme | None = None,
        storage: str = "f32",
        choice: Choice | None = None,
        arena: int | None = None,
        room: int | None = None,
        fused: bool = True,
        aids: Aids | None = None,
    ):
        """As Trainer; mean and std are per channel, for uint8 samples. scheme: how the step is carried out (its batch
        counts, not batch_size). storage: f32 or f16, of activations. choice: the variants of kernels, measured where
        they are not known yet. arena, room: bytes that the arena, and the data beside it, may take; by default what is
        free. fused: whether a convolution is joined with its pool, and a batchnorm with its residual: faster, but what
        lies between cannot be looked at. aids: see aids.py."""
        self.device, self.room = device, room
        self.set_up(blueprint, seed, classes, aids)
        self.graph = for_kernels(self.graph) if fused else self.graph
        if (missing := supports(self.graph)) is not None:
            raise UserError(
                f"{self.blueprint.where}: {missing} has no CUDA kernel; these have: {', '.join(TRAINED)}.\n"
                "  Train this net with --device cpu."
            )
        self.scheme = scheme or Scheme(batch_size, 1, "end")
        self.update_mode, batch = self.scheme.update, self.scheme.batch
        self.choice = choice or Choice(device, getattr(device, "table", None))
        self.channels, self.storage = len(mean) if mean else CHANNELS, storage
        plans = self._plans(arena)
        self.choice.save()
        self.backend = DeviceBackend(device, self.choice, plans, self.loss, self.rule, self.classes)
        self.feed = Feed(device, batch, self.graph.input_shape, self.target, np.dtype(DTYPES[self.target[1]]))
        rate = learning_rate or blueprints.start_rate(self.blueprint)
        self.optimizer = SimpleNamespace(rule=self.rule, lr=rate, t=0, update=self._update)
        self._graphs: dict[tuple, Callable[[], None]] = {}
        self._works: dict[tuple, tuple[Settings, Work]] = {}  # by what a step is asked for
        self._block = np.zeros(STEP.itemsize // 4 + batch, np.int32)  # what is sent before each step
        self._step_at = self.backend.address(self.plan, "step")
        self._pending: list[tuple[int, bool]] = []  # steps whose figures have not been read: (samples, updated)
        self._finished: list[dict[str, float]] = []
        self.last: dict[str, Any] = {}  # of the last step: its group, the loss scale, its sums of squares
        self._fill(mean, std)

    def _plans(self, arena: int | None) -> list[Plan]:
        """The plans of training and evaluation, with the fastest kernels whose scratch memory leaves the arena in its
        bounds: where most is alive little is left for it."""
        s = self.scheme
        self._compile()
        plans, need = self._planned(None)
        if arena is None or need <= arena:
            return self._thrifty(plans, need)
        room = self.planner.room(s.batch, s.update, s.recompute, arena)
        plans, need = self._planned(scratch_limits(lambda limits: self._planned(limits)[1] <= arena, room))
        if need <= arena:
            return plans
        raise UserError(
            f"{self.blueprint.where}: batch {s.batch} needs {bytes_text(need)} on {self.device.name}, and may take "
            f"{bytes_text(arena)}.\n  Use a smaller --batch or more --memory."
        )

    def _thrifty(self, plans: list[Plan], need: int) -> list[Plan]:
        """The plans with a smaller arena, where that costs next to no time."""
        s = self.scheme
        if self.scales:
            return plans
        room = self.planner.room(s.batch, s.update, s.recompute, need)
        limits = thrifty_limits(self.planner.options(self.plan), room, need)
        if limits is None:
            return plans
        fewer, less = self._planned(limits)
        return fewer if less < need else self._planned(None)[0]

    def _planned(self, limits: dict[str, int] | None) -> tuple[list[Plan], int]:
        """(the plans, the larger one's arena). limits: of scratch memory, by launch."""
        s = self.scheme
        self.planner = DevicePlanner(self, self.device, self.choice, self.channels, self.storage, limits)
        self.plan = self.planner.plan(s.batch, s.update, s.recompute)
        self.eval_plan = self.planner.eval_plan(s.batch, s.update)
        plans = [self.plan, self.eval_plan]
        if self.aids.statistics:
            self.stats_plan = self.planner.stats_plan(s.batch, s.update)
            plans.append(self.stats_plan)
        return plans, max(plan.arena_bytes for plan in plans)

    def _compile(self) -> None:
        """All kernels that may be measured or used, at once: one by one, a first plan takes several times as long."""
        compile_together = getattr(self.device, "compile", None)
        if compile_together is None:
            return
        s, half = self.scheme, self.storage == "f16"
        states, target = self.states, self.target
        train = draft_training(self.graph, s.batch, states, s.update, target, None, self.storage, s.recompute)
        found = kernels(self.choice, self.graph, s.batch, train.launches, True, half)
        for evaluated in (self.graph, *([self.plain] if self.aids.statistics else [])):
            evaluated = without_training_only(evaluated)
            forward = plan_inference(evaluated, s.batch, storage=self.storage).launches
            found |= kernels(self.choice, evaluated, s.batch, forward, False, half)
        compile_together(found)

    def _fill(self, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
        """The first contents of what lasts."""
        for index, p in enumerate(self.graph.params.values()):
            self.write(self.plan, p.name, fill(p.shape, p.init, p.fans, self.seed, index))
        values: dict[str, Any] = {"mean": mean or [0.0] * CHANNELS, "std": std or [255.0] * CHANNELS}
        values["everywhere"] = EVERYWHERE
        values |= {"bounds": self.planner.bounds(), "class_weights": self.loss.settings.get("class_weights")}
        values["scaling"] = calls_step.scaling().view(np.int32)
        values["rate_starts"], values["rate_factors"] = self.planner.rates(self.update_mode)
        for name, array in values.items():
            if array is not None and name in self.plan.values:
                self.write(self.plan, name, np.asarray(array))
        self.start_average()

    @property
    def model(self) -> SimpleNamespace:
        """model.weights: all weights as one named vector, a copy; set_weights puts one back."""
        weights = NamedVector(self.backend.read_run(self.plan), places_of(self.plan))
        return SimpleNamespace(graph=self.full, weights=weights)

    def set_weights(self, weights: np.ndarray) -> None:
        """Put a vector such as model.weights back on the device."""
        self.backend.write_run(self.plan, weights)

    def prepare(self, settings: Settings, sets: Sequence[Dataset]) -> None:
        """Everything that takes memory, before the first step: the sets on the device as far as they fit, in this
        order, and the graphs of a training step. After this nothing is allocated."""
        for data in sets:
            if self.fits(data.x):
                self.feed.hold(data.x, data.y)
        train = sets[0]
        source = self.feed.hold(train.x, train.y) if self.fits(train.x) else self.feed.ring(train.x).slots[0]
        group = settings.accumulation
        for first, last in {(True, True)} if group == 1 else {(True, False), (False, False), (False, True)}:
            work = self.work(source, self.plan.batch, first, last, settings)
            self._graph(("train", work), partial(self.pieces, work))
        self.feed.closed = True

    def work(self, source: Source, rows: int, first: bool, last: bool, settings: Settings) -> Work:
        key = (source.set, source.slot, rows, first, last)
        made, known = self._works.get(key, (None, None))
        if known is None or made is not settings or known.source is not source:
            clip = (settings.clip_value or 0.0, settings.clip_norm or 0.0)
            known = Work(source, rows, not first, last, *clip, settings.make_augmentation())
            self._works[key] = settings, known
        return known

    # ---- one step

    def run_batch(self, data: Dataset, index: np.ndarray, first: bool, group: int, settings: Settings) -> None:
        """One micro-batch of data[index]; group: how many make the update that follows it, 0 for none."""
        if len(self._pending) == HISTORY:
            self._read_history()
        source = self.source(data.x, data.y, index)
        self._step(self.work(source, len(index), first, bool(group), settings), index, group)

    def step(self, batch: Any) -> dict[str, float]:
        """Forward, loss, backward, update on one batch (.x, .y). Returns loss, grad_norm, correct."""
        self.collect(True)
        x = np.asarray(batch.x)
        self._step(Work(self.feed.single(x, np.asarray(batch.y)), len(x)), np.arange(len(x)), 1)
        done = self.collect(True)[0]
        return {key: done[key] for key in ("loss", "grad_norm", "correct") if key in done}

    def _step(self, work: Work, index: np.ndarray, group: int) -> None:
        self.optimizer.t += bool(group)
        self._kept, self.last["group"] = 0, group
        self.send_step(index, group, len(self._pending), self._mix(work))
        if self.observer is None:
            self.replay(("train", work), lambda: self.pieces(work))
        else:
            self._run_observed(work, self.observer)
        self.feed.sent(work.source)
        self.micro_step += 1
        self._pending.append((work.rows, bool(group)))

    def _run_observed(self, work: Work, observer: Observer) -> None:
        """The same kernels one by one."""
        for piece in self.pieces(work):
            if piece.launch is not None:
                observer.before(piece.launch)
            self.backend.run(piece.bound)
            if piece.launch is not None:
                rows = calls_step.figures(self.backend.read(self.plan, "history"))
                observer.after(piece.launch, float(rows[len(self._pending), 0]))

    def source(self, x: np.ndarray, y: np.ndarray, index: np.ndarray) -> Source:
        """Where the batch is gathered from: the set on the device if it is there or fits, else a ring."""
        return self.feed.hold(x, y) if self.fits(x) else self.feed.send(x, y, index)

    def fits(self, x: np.ndarray) -> bool:
        """Whether a set lies on the device, or may."""
        if self.feed.held(x) or self.feed.closed:
            return self.feed.held(x)
        need = set_bytes(len(x), self.feed.sample, x.dtype, self.target)
        if self.room is not None:
            return self.feed.bytes + need <= self.room
        free = getattr(self.device, "free_bytes", None)
        return free is None or need <= 0.9 * free()

    def _mix(self, work: Work) -> Mix:
        """How the batch is mixed with itself: drawn here, for the kernels that load it and take its loss."""
        spec, shape = work.augment, work.source.shape
        return UNMIXED if spec is None else draw_mix(spec, self.seed, self.micro_step, *shape[:2])

    def send_step(self, index: np.ndarray, group: int, cursor: int, mix: Mix = UNMIXED) -> None:
        """The step's counters and the samples' numbers, in one copy."""
        seed, micro, size = self.seed, self.micro_step, STEP.itemsize // 4
        block = self._block
        pack_into(
            STEP_FORMAT, block.data, 0, seed & 0xFFFFFFFF, seed >> 32, micro & 0xFFFFFFFF, micro >> 32, cursor,
            max(self.optimizer.t, 1), self.optimizer.lr, 1 / max(group, 1), mix.share, mix.blend, mix.top, mix.left,
            mix.height, mix.width, 0, self.epoch,
        )  # fmt: skip
        block[size : size + len(index)] = index  # order stands right behind step
        self.device.upload(self._step_at, block[: size + len(index)])

    def replay(self, key: tuple, pieces: Callable[[], list[Piece]]) -> None:
        self._graph(key, pieces)()

    def _graph(self, key: tuple, pieces: Callable[[], list[Piece]]) -> Callable[[], None]:
        if key not in self._graphs:
            self._graphs[key] = self.device.capture([call for piece in pieces() for call in piece.bound])
        return self._graphs[key]

    def pieces(self, work: Work) -> list[Piece]:
        """Every kernel call of a training step, in order."""
        plan, backend, out, updates = self.plan, self.backend, list[Piece](), 0
        partials = self.planner.partials_of(self.update_mode)
        decays = {p.name: p.decay for p in self.graph.trainable}
        for launch in plan.launches:
            bound: list[Bound] = []
            if launch.kind == "load":
                bound = backend.bind_load(plan, work.source, work.rows, True, work.augment)
            elif launch.kind == "update" and launch.group:
                bound = backend.bind_update_of(plan, launch.group, decays[launch.group], updates)
                updates += partials[launch.group]
            elif launch.kind == "update" and work.update:
                bounds = len(self.planner.bounds())
                bound = backend.bind_update(plan, work.clip_value, work.clip_norm, bounds)
            elif launch.kind == "average" and work.update:
                bound = backend.bind_average(plan, self.aids.ema or 0.0)
            elif launch.kind not in ("clip", "update", "average"):
                mixed = work.augment is not None and work.augment.mixes
                bound = backend.bind(plan, launch, work.rows, work.accumulate, mixed)
            if bound:
                out.append(Piece(launch.name, launch.kind, launch, bound))
        return out

    def collect(self, wait: bool) -> list[dict[str, float]]:
        """The figures of finished steps, oldest first: read when asked to wait, or when the record is full."""
        if self._pending and (wait or len(self._pending) == HISTORY):
            self._read_history()
        finished, self._finished = self._finished, []
        return finished

    def _read_history(self) -> None:
        count = len(self._pending)
        rows = calls_step.figures(self.backend.read(self.plan, "history")[:count]).tolist()
        partials = self.backend.read(self.plan, "partials")[:count].view(np.float64)
        norms = calls_step.norms(partials).tolist()
        self.last |= {"partials": partials[-1], "scale": rows[-1][2]}
        for (size, updated), (loss, correct, scale, _), norm in zip(self._pending, rows, norms, strict=True):
            row = {"loss": loss, "samples": size, "updated": updated}
            row |= {"correct": int(correct)} if self.classes else {}
            skipped = not isfinite(norm) and scale > 1  # half precision: too high a loss scale, which is halved now
            self._finished.append(row | ({"grad_norm": norm} if updated and not skipped else {}))
        self._pending.clear()

    # ---- what the step taken apart is made of

    def backward(self, loss: Loss, activations: dict[str, np.ndarray] | None = None) -> NamedVector:
        """As the base's. Stored in half precision, gradients run through the net times the loss scale."""
        scale = self.loss_scale
        if scale != 1.0:
            loss = Loss(float(loss), loss.gradient * np.float32(scale))
        gradients = super().backward(loss, activations)
        if scale != 1.0:
            gradients /= np.float32(scale)
            gradients.activations = {k: v / np.float32(scale) for k, v in gradients.activations.items()}
        return gradients

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before it is differentiated: 1 for float32."""
        if "scaling" not in self.plan.values:
            return 1.0
        return float(self.backend.read(self.plan, "scaling").view(calls_step.SCALING)["scale"][0])

    def _lasting(self, optimizer: bool) -> dict[str, str]:
        scaled = optimizer and "scaling" in self.plan.values
        return super()._lasting(optimizer) | ({"optimizer/scaling": "scaling"} if scaled else {})

    def load(self, plan: Plan, x: np.ndarray) -> None:
        self.send_step(np.arange(len(x)), 0, 0)
        self.backend.run(self.backend.bind_load(plan, self.feed.single(x, None), len(x), False))

    def run(self, plan: Plan, launch: Launch, rows: int) -> None:
        self.backend.run(self.backend.bind(plan, launch, rows))

    def read(self, plan: Plan, name: str, rows: int | None = None) -> np.ndarray:
        array = self.backend.read(plan, name, rows)
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def write(self, plan: Plan, name: str, array: np.ndarray) -> None:
        self.backend.write(plan, name, array)

    def flat_gradients(self) -> np.ndarray:
        return self.backend.read_run(self.plan, "d:")

    def _update(self, weights: NamedVector, gradients: NamedVector) -> None:
        """One update on the device with these gradients; `weights` then holds the new ones."""
        if self.update_mode != "end":
            raise UserError('optimizer.update() needs a trainer made with update="end".')
        if self._pending:
            self._read_history()
        self.optimizer.t += 1
        self.send_step(np.arange(self.plan.batch), 1, 0)
        self.backend.write_run(self.plan, np.asarray(gradients) * np.float32(self.loss_scale), "d:")
        self.backend.run(self.backend.bind_update(self.plan, 0.0, 0.0, len(self.planner.bounds())))
        if self.aids.ema:
            self.backend.run(self.backend.bind_average(self.plan, self.aids.ema))
        weights[...] = self.backend.read_run(self.plan)

    # ---- using the net as it is

    def infer(self, x: np.ndarray) -> np.ndarray:
        """As the base's, in one graph."""
        plan, rows, self._kept = self.eval_plan, len(x), 0
        source = self.feed.single(x, None)

        def pieces() -> list[Piece]:
            bound = backend.bind_load(plan, source, rows, False)
            forward = (backend.bind(plan, launch, rows) for launch in plan.launches if launch.kind == "forward")
            return [Piece("infer", "forward", None, [*bound, *(call for calls in forward for call in calls)])]

        backend = self.backend
        self.replay(("infer", source, rows), pieces)
        return self.read(plan, plan.graph.tensors[plan.graph.outputs[0]].name, rows)

    def evaluate(self, x: np.ndarray, y: np.ndarray, scores: bool = False) -> Evaluation:
        """As the base's; of a set that lies on the device in one graph a batch, loss and all, without predictions,
        unless its scores are asked for."""
        if scores or not self.fits(x):
            return super().evaluate(x, y, scores)
        if self._pending:
            self._read_history()
        self._kept = 0
        source, size, total, correct = self.feed.hold(x, y), self.plan.batch, 0.0, 0
        starts = range(0, len(x), size)
        for at, start in enumerate(starts):
            index = np.arange(start, min(start + size, len(x)))
            self.send_step(index, 0, at % HISTORY)
            self.replay(("evaluate", source, len(index)), partial(self._evaluation, source, len(index)))
            if at % HISTORY == HISTORY - 1 or at == len(starts) - 1:
                first = at - at % HISTORY
                rows = calls_step.figures(self.backend.read(self.plan, "history")[: at + 1 - first]).tolist()
                for place, row in enumerate(rows, first):
                    total += row[0] * min(size, len(x) - place * size)
                    correct += int(row[1])
        return Evaluation(total / len(x), correct / len(x) if self.classes else None, None)

    # ---- what layers are like (layer_stats.py)

    def keep_weights(self) -> None:
        address, count = self.backend.run_of(self.plan)
        self.device.copy(address, self.backend.address(self.plan, "before"), 4 * count)

    def layer_statistics(self, data: Dataset) -> list[dict[str, Any]]:
        """One graph a batch (device_stats.py); what it left is read."""
        if self._pending:
            self._read_history()
        self._kept = 0
        return device_stats.layer_statistics(self, data)

    def _evaluation(self, source: Source, rows: int) -> list[Piece]:
        """Every kernel call of an evaluation step."""
        plan, backend, out = self.eval_plan, self.backend, list[Piece]()
        for launch in plan.launches:
            load = launch.kind == "load"
            bound = backend.bind_load(plan, source, rows, True) if load else backend.bind(plan, launch, rows)
            out.append(Piece(launch.name, launch.kind, launch, bound))
        return out
