"""How to train: the blueprint's own wishes, overruled by the command line. blueprint.TRAIN has ranges and defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import blueprint as blueprints
from .aids import Aids
from .data.augment import Augmentation
from .fields import Options, check
from .schedules import Schedule, amount_to_steps, make_schedule


@dataclass(frozen=True)
class Settings:
    """Everything besides the net and the data that decides the weights. Two equal ones give the same bits."""

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: dict[str, Any]  # {"type": ...}
    warmup: float
    clip_norm: float | None
    clip_value: float | None
    accumulation: int  # micro-batches whose gradients are averaged for one update
    validation_split: float  # share of the training set held out to choose the best epoch
    seed: int
    early_stopping: dict[str, Any] | None  # patience, min_delta, monitor
    augmentation: dict[str, Any] | None = None  # of Augmentation; absent in runs older than it
    ema: float | None = None
    sampling: str = "each"  # or balanced
    fraction: float = 1.0  # of the training samples, what is held out not counted
    time_limit: float | None = None  # seconds
    unknown: float = 0.0  # share of right answers that may be called unknown
    layer_statistics: bool = False
    freeze: list[str] | None = None
    rates: dict[str, float] | None = None
    embedding: dict[str, Any] | None = None  # layer, test_classes, threshold_classes

    @property
    def aids(self) -> Aids:
        """What of it decides what a step computes."""
        return Aids.of(asdict(self))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def update(self) -> str:
        """Whether gradients may be used up one by one (plan.py): not if all are needed at once."""
        one_by_one = self.clip_norm is None and self.clip_value is None and self.accumulation == 1
        return "immediate" if one_by_one else "end"

    def make_augmentation(self) -> Augmentation | None:
        """What happens to each training picture; None where nothing does."""
        spec = Augmentation(**(self.augmentation or {}))
        return None if spec.idle else spec

    def make_schedule(self, updates_an_epoch: int) -> Schedule:
        """The learning rate of every update of the run."""
        total = self.epochs * updates_an_epoch
        options = Options(self.schedule["type"], {k: v for k, v in self.schedule.items() if k != "type"})
        warmup = amount_to_steps(self.warmup, total, updates_an_epoch)
        return make_schedule(options, self.learning_rate, total, warmup, updates_an_epoch)


def option(name: str) -> str:
    """How a setting is spelled on the command line."""
    others = {"batch_size": "--batch", "learning_rate": "--lr", "rates": "--rate", "time_limit": "--time"}
    others |= {"layer_statistics": "--layer-stats"}
    return others.get(name, "--" + name.replace("_", "-"))


def settings_for(blueprint: blueprints.Blueprint, given: dict[str, Any]) -> Settings:
    """Settings from a blueprint and what a user gave on the command line (None: not given)."""
    over: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name == "schedule":
            over[name] = Options(value)
        elif name in ("freeze", "rates"):
            over[name] = blueprints.check_layers(name, value, option(name))
        elif name == "early_stopping":
            rules = {f.name: f.default for f in blueprints.EARLY_STOPPING} | blueprint.train.get(name, {})
            over[name] = rules | {"patience": check(blueprints.EARLY_STOPPING[0], value, option(name))}
        else:
            over[name] = blueprints.check_train(name, value, option(name))
    values = blueprints.train_settings(blueprint, over)
    schedule = values["schedule"] or Options("constant")
    return Settings(**values | {"schedule": {"type": schedule.type, **schedule.fields}})
