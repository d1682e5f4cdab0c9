"""Which samples a run learns from, and how much each class counts: weights, equal draws, a share of the data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from . import blueprint as blueprints
from . import rng
from .blueprint import Blueprint
from .data.dataset import Dataset
from .errors import UserError

AUTO = "auto"


def class_weights(y: np.ndarray, classes: int) -> list[float]:
    """n / (C n_c), so that every class weighs the same in a sum over the samples y; 1 for a class that has none."""
    counts = np.bincount(y, minlength=classes)
    return [round(len(y) / (classes * int(n)), 6) if n else 1.0 for n in counts]


def weighted(blueprint: Blueprint, given: str | list[float] | None, train: Dataset, outputs: int) -> Blueprint:
    """The blueprint with class weights as numbers. given: what overrules its own, numbers or "auto"."""
    loss = blueprint.loss
    wanted = given if given is not None else loss.fields.get("class_weights")
    if given is not None and loss.type != "cross_entropy":
        raise UserError(
            f"{blueprint.where}: --class-weights goes with the loss cross_entropy, but this net has {loss.type}.\n"
            "  Use --sampling balanced, which goes with every loss."
        )
    if wanted is None or (wanted != AUTO and given is None):
        return blueprint
    if wanted == AUTO:
        if not train.classes:
            raise UserError(
                f"{blueprint.where}: class_weights is auto, but {train.name} has no classes.\n  Leave it out."
            )
        wanted = class_weights(train.y, outputs)
    return _with(blueprint, wanted)


def unweighted(blueprint: Blueprint, outputs: int) -> Blueprint:
    """The blueprint with every class weighing 1 where the data would have to decide: for those who only plan."""
    return _with(blueprint, [1.0] * outputs) if blueprint.loss.fields.get("class_weights") == AUTO else blueprint


def _with(blueprint: Blueprint, weights: str | list[float]) -> Blueprint:
    loss = blueprint.loss
    resolved = blueprint.resolved | {"loss": {"type": loss.type, **loss.fields, "class_weights": weights}}
    found = blueprints.parse(json.dumps(resolved), blueprint.where)
    return replace(blueprint, loss=found.loss, resolved=found.resolved)


def share(train: Dataset, fraction: float, seed: int) -> Dataset:
    """A fraction of the samples, of each class as much, at least one: chosen by the seed, in their order."""
    if fraction >= 1:
        return train
    group = train.y if train.classes else np.zeros(train.count, np.int64)
    chosen = []
    for k in np.unique(group):
        members = np.flatnonzero(group == k)
        keep = max(1, int(fraction * len(members) + 0.5))
        chosen.append(members[rng.permutation(seed, rng.PART, int(k), len(members))[:keep]])
    return train.take(np.sort(np.concatenate(chosen)))


def balanced_order(y: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """int64 (len(y),): as many draws from each class as from any other, to within one, in random order.

    A class that is drawn more often than it has samples shows each of them before any comes again.
    """
    present = np.unique(y)
    each, more = divmod(len(y), len(present))
    extra = set(rng.permutation(seed, rng.DRAW, epoch << 32, len(present))[:more].tolist())
    drawn = []
    for place, k in enumerate(present):
        members = np.flatnonzero(y == k)
        wanted = each + (place in extra)
        first = (epoch << 32) + 1 + (int(k) << 12)
        rounds = range(-(-wanted // len(members)))
        order = [rng.permutation(seed, rng.DRAW, first + r, len(members)) for r in rounds]
        drawn.append(members[np.concatenate(order)[:wanted]] if wanted else members[:0])
    return np.concatenate(drawn)[rng.permutation(seed, rng.SHUFFLE, epoch, len(y))]


def check_sampling(settings: Any, train: Dataset, where: str) -> None:
    """Balanced sampling needs classes."""
    if settings.sampling == "balanced" and not train.classes:
        raise UserError(f'{where}: sampling is balanced, but {train.name} has no classes.\n  Write "sampling": "each".')
