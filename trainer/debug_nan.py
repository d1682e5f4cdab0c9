"""edge-train --debug-nan: find the first NaN or infinity of a run, and what made it.

Before each (micro-)step all that lasts is copied: weights, statistics, the optimizer's state, gradients, counters.
After it one check over all of these, and the step's loss and norm, says whether something is not finite. If so, the
copy is put back and the step runs again, launch by launch, with everything a launch reads and writes under view. The
first bad value is reported, the trainer is left as it was before the step, and no checkpoint is written any more.

What is copied and looked at changes no bit of a run that stays finite.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict
from math import isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends.numpy import NumpyBackend, drawing
from .checkpoint import write_atomically
from .data.dataset import CHUNK, Dataset
from .errors import UserError
from .init import fill
from .kernels.calls_step import NOT_FOUND, finite_calls
from .nan_causes import Bad, Case, cause, facts_of, norm_of, sentences
from .optimizers import default_learning_rate
from .plan import Launch, Plan
from .settings import Settings
from .trainer import Trainer, quiet

if TYPE_CHECKING:
    from .device_trainer import DeviceTrainer
    from .loop import Progress

RECENT = 10  # steps whose figures a report shows
FILE = "nan.json"
PARTLY = frozenset({"scratch", "moments"})  # roles of values that kernels leave to each other, not all of them written
NOT_AGAIN = (
    "Run again launch by launch, the same step stayed finite: equal launches gave unequal results.",
    "Likely cause: faulty memory or an overclocked card, or a kernel that is not deterministic.",
    "Run edge-check, and this once more; --device cpu trains without the card.",
)
TOO_LONG = (
    "Every value that the step wrote is finite, but their squares add up to more than a float32 holds.",
    "Likely cause: exploding gradients.",
    "Start a new run with a lower --lr and with --clip-value 1.",
)


class Watch:
    """Runs a trainer's batches for the loop, one at a time. folder: where the report goes, if anywhere."""

    def __init__(self, trainer: Trainer | DeviceTrainer, progress: Progress, folder: Path | None = None):
        """Takes as much memory as all that lasts between steps, at once."""
        self.trainer, self.progress, self.folder = trainer, progress, folder
        self.state = HostState(trainer) if isinstance(trainer, Trainer) else DeviceState(trainer)
        self.recent: deque[dict[str, float]] = deque(maxlen=RECENT)
        self._finished: list[dict[str, float]] = []

    @property
    def micro_step(self) -> int:
        return self.trainer.micro_step

    def run_batch(self, data: Dataset, index: np.ndarray, first: bool, group: int, settings: Settings) -> None:
        """As the trainer's. Raises UserError, the report, where something is not finite afterwards."""
        trainer, state = self.trainer, self.state
        self._finished += trainer.collect(True)
        counters = trainer.micro_step, trainer.optimizer.t
        state.keep()
        trainer.run_batch(data, index, first, group, settings)
        metrics = trainer.collect(True)[0]
        what = self._not_finite(metrics)
        if what is None:
            self._finished.append(metrics)
            self.recent.append(metrics)
            return
        replay = Replay(trainer, len(index))
        try:
            self._back(counters)
            replay.look_at_start()
            trainer.observer = replay
            trainer.run_batch(data, index, first, group, settings)
            replay.look_at_update()
            replay.again = self._not_finite(trainer.collect(True)[0]) is not None
        finally:
            trainer.observer = None
            trainer.collect(True)
            self._back(counters)
        raise UserError(self._report(what, replay, data, index, settings))

    def collect(self, wait: bool) -> list[dict[str, float]]:
        """The figures of the steps since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def _not_finite(self, metrics: dict[str, float]) -> str | None:
        for key, name in (("loss", "loss"), ("grad_norm", "norm of the gradients")):
            if not isfinite(metrics.get(key, 0.0)):
                return f"The {name} became {metrics[key]}"
        return None if self.state.finite() else "Weights, gradients or the optimizer's state became infinite or nan"

    def _back(self, counters: tuple[int, int]) -> None:
        self.state.put_back()
        self.trainer.micro_step, self.trainer.optimizer.t = counters

    def _report(self, what: str, replay: Replay, data: Dataset, index: np.ndarray, settings: Settings) -> str:
        """The message; the rest goes to the folder."""
        trainer, at = self.trainer, self.progress
        where = {"epoch": at.epoch + 1, "batch": at.batch + 1, "update": at.updates + 1}
        place = f"epoch {at.epoch + 1}, batch {at.batch + 1} (update {at.updates + 1}"
        lines = [f"{what} in {place}, learning rate {trainer.optimizer.lr:g})."]
        report: dict[str, Any] = {"what": what, **where, "learning_rate": trainer.optimizer.lr}
        if replay.bad is None:
            lines += TOO_LONG if replay.again else NOT_AGAIN
        else:
            layers = self._layers()
            case = self._case(replay, layers, data, index, settings)
            found = cause(case)
            lines += sentences(case, found)
            report |= {"cause": asdict(found), **asdict(case), "settings": settings.as_dict(), "layers": layers}
        kept = "What was saved before is kept."
        if self.folder is not None:
            report |= {"message": lines, "batch_samples": _numbers(data, index)}
            text = json.dumps(plain(report), indent=2, ensure_ascii=False) + "\n"
            write_atomically(self.folder / FILE, lambda file: file.write(text.encode()))
            kept = f"All that is known: {self.folder / FILE}. {kept}"
        return "\n  ".join([*lines, kept])

    def _case(
        self, replay: Replay, layers: list[dict[str, Any]], data: Dataset, index: np.ndarray, settings: Settings
    ) -> Case:
        trainer, bad = self.trainer, replay.bad
        assert bad is not None
        raw = True
        if bad.batched:
            n = index[bad.index[0]]
            bad = Bad(**vars(bad) | {"number": _numbers(data, [n])[0]})
            values = data.y[n] if bad.role == "target" else data.x[n]
            raw = bool(np.isfinite(values).all())
        start, now = (sqrt(sum(layer[key] ** 2 for layer in layers)) for key in ("start", "now"))
        name = trainer.rule.name
        device = "the CPU" if isinstance(trainer, Trainer) else trainer.device.name
        return Case(
            bad, replay.inputs, raw, *odd_samples(data), self.progress.updates, start, now, trainer.optimizer.lr,
            settings, name, default_learning_rate(name), trainer.plan.storage, device, tuple(self.recent),
        )  # fmt: skip

    def _layers(self) -> list[dict[str, Any]]:
        """The norm of each tensor of weights, when the net was new and before this step."""
        trainer, out = self.trainer, []
        for place, p in enumerate(trainer.graph.params.values()):
            if p.trainable:
                start = norm_of(fill(p.shape, p.init, p.fans, trainer.seed, place))
                out.append({"name": p.name, "start": start, "now": norm_of(trainer.read(trainer.plan, p.name))})
        return out


# ---- the state before a step


def lasting(plan: Plan) -> tuple[int, int]:
    """(first byte, bytes) of the float32 values that last and that a step leaves finite. With activations in half
    precision gradients may be infinite: the update is then skipped, and the loss scale halved."""
    kinds = {"weights", "state", "optimizer"} | ({"gradients"} if plan.storage == "f32" else set())
    kept = [b for b in plan.buffers if b.kind in kinds]
    first = min(b.offset for b in kept)
    return first, max(b.offset + b.bytes for b in kept) - first


class HostState:
    """Of the CPU's trainer."""

    def __init__(self, trainer: Trainer):
        arena, (first, size) = trainer.backend.arena, lasting(trainer.plan)
        self.live = arena[: trainer.plan.persistent_bytes]
        self.bytes = self.live.nbytes
        self.copy = self.live.copy()
        self.values = arena[first : first + size].view(np.float32)

    def keep(self) -> None:
        np.copyto(self.copy, self.live)

    def put_back(self) -> None:
        np.copyto(self.live, self.copy)

    def finite(self) -> bool:
        return bool(np.isfinite(self.values).all())


class DeviceState:
    """Of a device's trainer: the copy lies on the device, and one launch looks at all values."""

    def __init__(self, trainer: DeviceTrainer):
        backend, (first, size) = trainer.backend, lasting(trainer.plan)
        self.backend, self.device, self.bytes = backend, trainer.device, trainer.plan.persistent_bytes
        self.copy = self.device.allocate(self.bytes + 4)
        self.found = self.copy + self.bytes
        addresses = {"values": backend.base + first, "finite": self.found}
        calls = finite_calls(size // 4, "values", sms=self.device.sms)
        self.look = backend.resolve(trainer.plan, calls, {}, addresses=addresses)

    def keep(self) -> None:
        self.device.copy(self.backend.base, self.copy, self.bytes)

    def put_back(self) -> None:
        self.device.copy(self.copy, self.backend.base, self.bytes)

    def finite(self) -> bool:
        found = np.array([NOT_FOUND], np.int32)
        self.device.upload(self.found, found)
        self.backend.run(self.look)
        self.device.download(self.found, found)
        return int(found[0]) == NOT_FOUND


# ---- the step once more, in view


class Replay:
    """Observes a step until a value is bad. Then bad tells which, and inputs what its launch had read. again: whether
    the step ended as it did the first time."""

    def __init__(self, trainer: Trainer | DeviceTrainer, rows: int):
        self.trainer, self.rows = trainer, rows
        self.bad: Bad | None = None
        self.again = False
        self.inputs: dict[str, Any] = {}
        self._read: dict[str, np.ndarray] = {}  # by value, before the launch

    def before(self, launch: Launch) -> None:
        if self.bad is None:
            names = (*launch.reads.values(), *launch.adds.values())
            self._read = {name: self._value(name) for name in names}

    def after(self, launch: Launch, loss: float) -> None:
        if self.bad is not None or launch.kind == "clip":
            return
        if launch.kind == "update":
            self._look_at_group([launch.group] if launch.group else [])
            return
        written = {role: name for role, name in launch.writes.items() if role not in PARTLY}
        if launch.kind == "loss":
            self._look(launch, "loss", "loss", np.float32(loss).reshape(1))
        if launch.kind == "forward":  # statistics, which it rewrites
            params = self.trainer.graph.params
            written |= {r: name for r, name in launch.reads.items() if name in params and not params[name].trainable}
        for role, name in written.items():
            if self.trainer.plan.values[name].dtype in ("f32", "f16"):
                self._look(launch, role, name, self._value(name))

    def look_at_start(self) -> None:
        """Whether anything was bad before the step."""
        for b in self.trainer.plan.buffers:
            if b.kind in ("weights", "state", "optimizer"):
                self._look_at("start", b.owner, "", b.name)

    def look_at_update(self) -> None:
        """What the update of all weights wrote."""
        self._look_at_group([p.name for p in self.trainer.graph.trainable])

    def _look_at_group(self, params: list[str]) -> None:
        """The optimizer's state first: weights follow from it."""
        graph, rule = self.trainer.graph, self.trainer.rule
        for name in params:
            layer = graph.params[name].layer
            for value in (*(f"{state}:{name}" for state in rule.states), name):
                if self._look_at("update", layer, rule.name, value):
                    read = {"gradient": f"d:{name}", "weight": name}
                    self.inputs = {role: facts_of(v, self._read[v]) for role, v in read.items() if v in self._read}

    def _look_at(self, kind: str, layer: str, op: str, name: str) -> bool:
        """Note the first bad value of something that lasts; whether that is news."""
        array = self._value(name)
        index = first_bad(array)
        if self.bad is not None or index is None:
            return False
        self.bad = Bad(kind, layer, op, name, index, float(array[index]), facts_of(name, array), False)
        return True

    def _look(self, launch: Launch, role: str, name: str, array: np.ndarray) -> None:
        """Note the first bad value of what a launch wrote."""
        index = first_bad(array)
        if self.bad is not None or index is None:
            return
        trainer, node = self.trainer, launch.node
        layer, op = (node.layer, node.op) if node else (launch.kind, trainer.loss.name if launch.kind == "loss" else "")
        batched = name in trainer.plan.values and trainer.plan.values[name].batched
        reads = launch.reads | {f"older {role}": older for role, older in launch.adds.items()}
        self.inputs = {r: facts_of(v, self._read[v]) for r, v in reads.items() if r not in PARTLY}
        expected = None
        if node is not None and launch.kind in ("forward", "again", "backward"):
            expected = self._expected(launch, name, index)
        value = float(array[index])
        self.bad = Bad(launch.kind, layer, op, role, index, value, facts_of(name, array), batched, None, expected)

    def _expected(self, launch: Launch, name: str, index: tuple[int, ...]) -> float | None:
        """What the operator's definition gives there."""
        trainer = self.trainer
        definition = Definition(trainer, self._read)
        with quiet():
            definition.run(trainer.plan, launch, self.rows, trainer.seed, trainer.micro_step)
        value = float(definition.arrays[name][index])
        return value if isfinite(value) else None

    def _value(self, name: str) -> np.ndarray:
        return self.trainer.read(self.trainer.plan, name, self.rows)


class Definition(NumpyBackend):
    """The operators' definitions over a few arrays by name, in no arena."""

    def __init__(self, trainer: Trainer | DeviceTrainer, arrays: dict[str, np.ndarray]):
        self.arrays, self._drawing = dict(arrays), drawing(trainer.graph)

    def array(self, plan: Plan, name: str, rows: int | None = None) -> np.ndarray:
        return self.arrays[name]

    def _write(self, plan: Plan, name: str, value: np.ndarray, rows: int) -> None:
        self.arrays[name] = value


def first_bad(array: np.ndarray) -> tuple[int, ...] | None:
    """The least index of a NaN or infinity, in memory order."""
    bad = ~np.isfinite(array)
    return tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape)) if bad.any() else None


def odd_samples(data: Dataset) -> tuple[float, tuple[tuple[int, float], ...]]:
    """(median of what samples reach, numbers and largest magnitudes of the few that reach a thousand times as much)."""
    if data.x.dtype == np.uint8:
        return float(data.x.max()), ()
    rows = data.x.reshape(len(data.x), -1)
    step = max(1, CHUNK // rows.shape[1])
    most = np.concatenate([np.abs(rows[at : at + step]).max(1) for at in range(0, len(rows), step)])
    most[np.isnan(most)] = np.inf
    usual = float(np.median(most.astype(np.float64)))
    odd = np.flatnonzero(most > max(1e3 * usual, 1e4))
    if len(odd) > 0.01 * len(most) + 1:
        return usual, ()
    return usual, tuple(zip(_numbers(data, odd), most[odd].tolist(), strict=True))


def _numbers(data: Dataset, index: Any) -> list[int]:
    """The samples' numbers in the data as they were given, before a share was held out."""
    origin = getattr(data, "origin", None)
    return [int(n if origin is None else origin[n]) for n in index]


def plain(value: Any) -> Any:
    """As JSON can hold it: what is not finite becomes a word."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
