"""The learning rate as a function of the step: nothing to save, nothing to restore.

Steps count updates, from 0. An amount of training is written as a share of the run when it is below 1 (0.1: a
tenth of it), and in epochs from 1 on (5: five epochs).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from .errors import UserError
from .fields import ANY, Field, Options

AMOUNT = "below 1 as a share of the run, from 1 on in epochs"
FIELDS: dict[str, tuple[Field, ...]] = {
    "constant": (),
    "step": (
        Field("factor", "number", 1e-6, 1, 0.1, doc="what the rate is multiplied by each time"),
        Field("every", "number", 1e-6, 1e6, doc=f"training between two falls, {AMOUNT}"),
        Field("milestones", "numbers", 1e-6, 1e6, counts=ANY, doc=f"when the rate falls, {AMOUNT}"),
    ),
    "cosine": (Field("floor", "number", 0, 1, 0.0, doc="share of the rate that is left at the end"),),
    "one_cycle": (
        Field("pct", "number", 0.01, 0.99, 0.3, doc="share of the run in which the rate rises"),
        Field("div", "number", 1, 1e6, 25.0, doc="the rate starts at its peak divided by this"),
        Field("final_div", "number", 1, 1e9, 1e4, doc="and ends at that start divided by this"),
    ),
}


@dataclass(frozen=True)
class Schedule:
    """lr(step): a straight rise over the warm-up, then the shape, over the steps that are left."""

    name: str
    base_lr: float
    total_steps: int
    warmup_steps: int
    settings: dict[str, Any]
    drops: tuple[int, ...] = ()  # step: the steps at which the rate falls

    def lr(self, step: int) -> float:
        """The rate of one step. Warm-up of W steps: (step + 1) / (W + 1) of the rate that step W has."""
        W = self.warmup_steps
        if step < W:
            return self.base_lr * self._shape(W) * (step + 1) / (W + 1)
        return self.base_lr * self._shape(step)

    def _shape(self, step: int) -> float:
        """The rate relative to base_lr. `done` counts from the end of the warm-up, of `left` steps."""
        s, left = self.settings, max(self.total_steps - self.warmup_steps, 1)
        done = min(step - self.warmup_steps, left)
        if self.name == "step":
            return s["factor"] ** bisect_right(self.drops, step)
        if self.name == "cosine":  # Loshchilov, Hutter, "SGDR" (ICLR 2017), without restarts
            return s["floor"] + (1 - s["floor"]) * _half_cosine(done / left)
        if self.name == "one_cycle":  # Smith, Topin, "Super-convergence" (2018), with cosines for both legs
            at = min(done / max(left - 1, 1), 1.0)  # the last step is the end of the cycle
            low = 1 / s["div"]
            if at < s["pct"]:
                return 1 + (low - 1) * _half_cosine(at / s["pct"])
            end = low / s["final_div"]
            return end + (1 - end) * _half_cosine((at - s["pct"]) / (1 - s["pct"]))
        return 1.0


def make_schedule(
    options: Options | None,
    base_lr: float,
    total_steps: int,
    warmup_steps: int = 0,
    epoch_steps: int = 1,
    where: str = "schedule",
) -> Schedule:
    """The schedule a blueprint names (None: constant). epoch_steps: updates in one epoch."""
    options = options or Options("constant")
    given = dict(options.fields)
    settings = {f.name: f.default for f in FIELDS[options.type]} | given
    drops: tuple[int, ...] = ()
    if options.type == "step":
        if "every" in given and "milestones" in given:
            raise UserError(f"{where} (step): every and milestones are both given.\n  Keep one of the two.")
        if "every" in given:
            every = max(amount_to_steps(given["every"], total_steps, epoch_steps), 1)
            drops = tuple(range(every, total_steps, every))
        else:
            marks = given.get("milestones", [0.5, 0.75])  # the halves of He et al. (CVPR 2016)
            marks = marks if isinstance(marks, list) else [marks]
            drops = tuple(sorted(amount_to_steps(mark, total_steps, epoch_steps) for mark in marks))
    return Schedule(options.type, base_lr, total_steps, warmup_steps, settings, drops)


def amount_to_steps(amount: float, total_steps: int, epoch_steps: int) -> int:
    """An amount of training in steps, rounded: a share of the run below 1, epochs from 1 on."""
    return math.floor(amount * (total_steps if amount < 1 else epoch_steps) + 0.5)


def _half_cosine(p: float) -> float:
    """From 1 at p = 0 to 0 at p = 1."""
    return (1 + math.cos(math.pi * p)) / 2
