"""How a run fits a card: bytes for the arena and for the data, and the scheme of its step, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from . import blueprint as blueprints
from .backends.feed import DEPTH, set_bytes, staging_bytes
from .base import BaseTrainer
from .budget import Scheme, fit
from .data.dataset import Dataset
from .device_plan import DevicePlanner
from .errors import UserError
from .fuse import for_kernels
from .kernels.choose import Choice
from .memory import bytes_text
from .settings import Settings

SPARE = 0.95  # share of the free memory that a run may take: drivers and displays want some later


@dataclass(frozen=True)
class Verdict:
    """arena, room: bytes that the arena, and the data beside it, may take."""

    scheme: Scheme
    arena: int
    room: int


@dataclass(frozen=True)
class _Unmeasured:
    """A device that cannot measure: the expected best variants are counted with."""

    sms: int


def verdict(
    device: Any,
    blueprint: blueprints.Blueprint,
    settings: Settings,
    sets: Sequence[Dataset],
    classes: bool,
    budget: int | None,
    storage: str = "f32",
) -> Verdict:
    """The cheapest way to train on `device` within `budget` bytes, and within what is free. UserError if there is none.

    sets: training data first; they are kept on the device where that costs nothing else, else sent batch by batch.
    """
    base = BaseTrainer()
    base.set_up(blueprint, settings.seed, classes, settings.aids)
    base.graph = for_kernels(base.graph)
    limit = int(SPARE * device.free_bytes())
    if budget is not None:
        limit = min(limit, budget)
    x, sample = sets[0].x, prod(base.graph.input_shape)
    channels = x.shape[-1] if x.ndim == 4 else 1
    staging = staging_bytes(settings.batch_size, sample, base.target)
    held = staging + sum(set_bytes(len(s.x), sample, s.x.dtype, base.target) for s in sets)
    ring = staging + DEPTH * set_bytes(settings.batch_size, sample, x.dtype, base.target)
    one_by_one = settings.update == "immediate" and storage == "f32"
    problem: UserError | None = None
    fastest, least = None, dict[str, int]()  # scratch memory as it is best, or none
    for split, limits in ((s, k) for s in (False, True) for k in (fastest, least)):
        found: list[Verdict] = []
        for room in (r for r in (held, ring) if r < limit):
            choice = Choice(_Unmeasured(device.sms))
            maker = DevicePlanner(base, device, choice, channels, storage, limits).maker(one_by_one)
            try:
                scheme = fit(maker, settings.batch_size, settings.accumulation, limit - room, blueprint.where, split)
            except UserError as error:
                problem = error
                continue
            found.append(Verdict(scheme, limit - room, room))
        if found:
            return min(found, key=lambda v: v.scheme.seconds)
    raise problem or UserError(
        f"{blueprint.where}: a batch of {settings.batch_size} pictures alone does not fit {bytes_text(limit)}.\n"
        "  Use a smaller --batch or more --memory."
    )
