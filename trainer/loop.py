"""Epochs and steps: order, accumulation, clipping, schedule, evaluation, early stopping, checkpoints.

The loop owns no arrays. All that it knows besides the trainer is a Progress, which a checkpoint holds: a resumed run
takes up the very next batch, and ends with the bits of an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from .balance import balanced_order
from .data.batches import iterate
from .data.dataset import Dataset
from .errors import UserError
from .settings import Settings
from .trainer import Trainer

if TYPE_CHECKING:
    from .debug_nan import Watch
    from .device_trainer import DeviceTrainer


ALARM = 10.0  # a norm of all gradients that says: they explode


@dataclass
class Progress:
    """Where a run stands. batch counts the micro-batches of this epoch already done."""

    epoch: int = 0
    batch: int = 0
    updates: int = 0
    micro_step: int = 0
    best: float = inf  # the smallest watched figure: the loss, or the accuracy with a minus
    best_epoch: int = -1
    mark: float = inf  # the watched figure when the patience was last renewed
    stale: int = 0  # epochs since the best
    seen: int = 0  # samples of this epoch
    loss_sum: float = 0.0
    correct: int = 0
    norm_sum: float = 0.0
    norm_max: float = 0.0
    norms: int = 0
    seconds: float = 0.0
    spent: float = 0.0  # with a time limit: as seconds, with evaluating and saving
    closing: float = 0.0  # and of it the longest end of an epoch
    alarms: int = 0  # updates of this epoch whose gradients were above ALARM
    history: list[dict[str, Any]] = field(default_factory=list)

    def start_epoch(self) -> None:
        self.batch = self.seen = self.correct = self.norms = self.alarms = 0
        self.loss_sum = self.norm_sum = self.norm_max = 0.0

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return values | {k: None for k in ("best", "mark") if not isfinite(values[k])}  # JSON knows no infinity

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        return cls(**values | {k: inf for k in ("best", "mark") if values[k] is None})


@dataclass
class Events:
    """What a caller may hook into; every one may be left out."""

    step: Callable[[Progress, dict[str, float]], None] = lambda progress, metrics: None
    epoch: Callable[[Progress, dict[str, Any]], None] = lambda progress, row: None
    save: Callable[[str], None] = lambda which: None  # "best" or "last"
    stop: Callable[[], bool] = lambda: False


def fit(
    trainer: Trainer | DeviceTrainer,
    train: Dataset,
    validation: Dataset | None,
    settings: Settings,
    progress: Progress,
    events: Events,
    save_every: int = 0,
    watch: Watch | None = None,
) -> str:
    """Train until the epochs are done ("done"), patience ran out ("early") or events.stop says so ("stopped").

    Raises UserError when loss or gradients are no longer finite; the checkpoints on disk are from before. A watch of
    the trainer looks for more, and says more.
    """
    steps = watch or trainer
    size, group = trainer.batch_size, settings.accumulation
    if len(train.x) < size:
        raise UserError(
            f"The training set has {len(train.x)} samples, fewer than one batch of {size}.\n"
            f"  Use --batch {len(train.x)}."
        )
    micro_batches = len(train.x) // size
    updates = -(-micro_batches // group)
    schedule = settings.make_schedule(updates)
    held_out = 0 if validation is None else len(validation.x)
    while not finished(settings, progress):
        started, sent, done, ends = time.perf_counter(), progress.batch, progress.updates, False
        clock = Clock(settings, progress, settings.epochs * updates, held_out)
        trainer.epoch = progress.epoch
        order = balanced_order(train.y, settings.seed, progress.epoch) if settings.sampling == "balanced" else None
        for index in iterate(train, size, settings.seed, progress.epoch, progress.batch, order=order):
            ends = sent == micro_batches - 1 or clock.is_up(sent - progress.batch, size)
            last = sent % group == group - 1 or ends
            trainer.optimizer.lr = schedule.lr(clock.step(done))
            if ends and settings.layer_statistics:
                trainer.keep_weights()
            steps.run_batch(train, index, sent % group == 0, 1 + sent % group if last else 0, settings)
            sent, done = sent + 1, done + last
            save = last and save_every > 0 and done % save_every == 0
            _collect(steps, progress, events, save or ends)
            if save:
                events.save("last")
            if last and events.stop():
                _collect(steps, progress, events, True)
                progress.seconds += time.perf_counter() - started
                clock.stop()
                events.save("last")
                return "stopped"
            if ends:
                break
        trained = time.perf_counter()
        progress.seconds += trained - started
        rate = trainer.optimizer.lr if settings.time_limit else schedule.lr(progress.updates - 1)
        row = _end_epoch(trainer, validation, progress, rate)
        if settings.layer_statistics:
            row["layers"] = trainer.layer_statistics(train)
        better = _note_best(settings.early_stopping, progress, row)
        progress.history.append(row)
        progress.epoch += 1
        progress.start_epoch()
        events.epoch(progress, row)
        if better:
            events.save("best")
        clock.stop(trained)
        events.save("last")
        if events.stop() and not finished(settings, progress):
            return "stopped"
    return "early" if out_of_patience(settings, progress) else "done"


class Clock:
    """How far a run is, in updates of its schedule: those done; with a time limit the schedule's share of it."""

    def __init__(self, settings: Settings, progress: Progress, updates: int, held_out: int):
        self.limit, self.progress, self.updates, self.held_out = settings.time_limit, progress, updates, held_out
        self.started = time.perf_counter()

    @property
    def spent(self) -> float:
        return self.progress.spent + time.perf_counter() - self.started

    def stop(self, trained: float | None = None) -> None:
        """Note what was spent. trained: when the last update was done."""
        if self.limit is None:
            return
        now = time.perf_counter()
        self.progress.spent += now - self.started
        self.progress.closing = max(self.progress.closing, now - trained if trained else 0.0)

    def step(self, done: int) -> int:
        """The schedule's step for the next update."""
        if self.limit is None:
            return done
        return min(int(self.updates * self.spent / self.limit), self.updates - 1)

    def is_up(self, batches: int, size: int) -> bool:
        """Whether the next batch must be the last, so that there is time to evaluate and save. batches: done since the
        clock was made. What the first evaluation will take is guessed: a third of what training takes for as many."""
        if self.limit is None:
            return False
        closing = self.progress.closing
        if not closing and batches:
            closing = (time.perf_counter() - self.started) / (batches * size) * self.held_out / 3
        return self.spent + 1.1 * closing >= self.limit


def finished(settings: Settings, progress: Progress) -> bool:
    """Whether nothing is left to do: all epochs, or all the time there was, or patience."""
    if settings.time_limit is not None:
        done = bool(progress.history) and progress.spent + 1.1 * progress.closing >= settings.time_limit
    else:
        done = progress.epoch >= settings.epochs
    return done or out_of_patience(settings, progress)


def out_of_patience(settings: Settings, progress: Progress) -> bool:
    """Whether early stopping ends the run here."""
    return settings.early_stopping is not None and progress.stale >= settings.early_stopping["patience"]


def _collect(
    steps: Trainer | DeviceTrainer | Watch, progress: Progress, events: Events, wait: bool
) -> None:
    """Count the steps that are finished; with `wait`, all of them."""
    for metrics in steps.collect(wait):
        _count(progress, metrics)
        _check_finite(progress, metrics)
        events.step(progress, metrics)
    progress.micro_step = steps.micro_step


def _check_finite(progress: Progress, metrics: dict[str, float]) -> None:
    for key, name in (("loss", "loss"), ("grad_norm", "norm of the gradients")):
        if not isfinite(metrics.get(key, 0.0)):
            raise UserError(
                f"The {name} became {metrics[key]} in epoch {progress.epoch + 1}, batch {progress.batch}.\n"
                "  Lower the learning rate, or add --clip-norm 1; --debug-nan tells more. What was saved before is "
                "kept."
            )


def _count(progress: Progress, metrics: dict[str, float]) -> None:
    progress.batch += 1
    progress.updates += int(metrics["updated"])
    progress.seen += int(metrics["samples"])
    progress.loss_sum += metrics["loss"] * metrics["samples"]
    progress.correct += int(metrics.get("correct", 0))
    if "grad_norm" in metrics:
        progress.norms += 1
        progress.norm_sum += metrics["grad_norm"]
        progress.norm_max = max(progress.norm_max, metrics["grad_norm"])
        progress.alarms += metrics["grad_norm"] > ALARM


def _note_best(rules: dict[str, Any] | None, progress: Progress, row: dict[str, Any]) -> bool:
    """Whether this epoch is the best so far, and whether it counts against the patience of early stopping."""
    accuracy = row["validation_accuracy" if row["validation_loss"] is not None else "train_accuracy"]
    watch_accuracy = rules is not None and rules["monitor"] == "accuracy" and accuracy is not None
    watched = -accuracy if watch_accuracy else row["selection_loss"]
    better = watched < progress.best
    real = watched < progress.mark - (rules["min_delta"] if rules else 0.0)
    progress.stale = 0 if real else progress.stale + 1
    if real:
        progress.mark = watched
    if better:
        progress.best, progress.best_epoch = watched, progress.epoch
    return better


def alarm_text(row: dict[str, Any], clipped: bool = False) -> str:
    """What an epoch's row says about gradients that explode: empty if none did. clipped: by their norm."""
    if not row["alarms"]:
        return ""
    known = [layer for layer in row.get("layers", ()) if layer["gradient"]]
    worst = max(known, key=lambda layer: layer["gradient"])["name"] if known else None
    return (
        f"gradients above {ALARM:g} in {row['alarms']} updates of epoch {row['epoch']} "
        f"({row['grad_norm_max']:.3g} at most"
        + (f"; largest in {worst}" if worst else "")
        + ("), clipped" if clipped else ")")
        + f": train with {'' if clipped else '--clip-norm 1, '}a lower --lr, or --warmup 1"
    )


def _end_epoch(
    trainer: Trainer | DeviceTrainer, validation: Dataset | None, progress: Progress, lr: float
) -> dict[str, Any]:
    """The row of metrics of the epoch just done. selection_loss is what "best" means."""
    row: dict[str, Any] = {
        "epoch": progress.epoch + 1,
        "updates": progress.updates,
        "learning_rate": lr,
        "train_loss": progress.loss_sum / progress.seen,
        "train_accuracy": progress.correct / progress.seen if trainer.classes else None,
        "grad_norm_mean": progress.norm_sum / max(progress.norms, 1),
        "grad_norm_max": progress.norm_max,
        "alarms": progress.alarms,
        "validation_loss": None,
        "validation_accuracy": None,
        "seconds": round(progress.seconds, 3),
    }
    if validation is not None:
        found = trainer.evaluate(validation.x, validation.y)
        row["validation_loss"], row["validation_accuracy"] = found.loss, found.accuracy
    row["selection_loss"] = row["train_loss"] if validation is None else row["validation_loss"]
    return row
