"""Plans of a net for a device: what the step needs in the arena besides the net, and the plans of a scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .backends.device import options, workspace
from .backends.lanes import LANES
from .base import BaseTrainer
from .budget import Maker, live_bytes
from .kernels import calls_gemm, calls_moments, calls_step
from .kernels.choose import Choice, within
from .kernels.tiles import COUNTERS
from .layer_stats import measured
from .ops import Shape
from .plan import ALIGN, Needs, Plan, draft_training, plan_inference
from .plan_draft import Draft

HISTORY = 256  # steps between two readings of the losses
EVERYWHERE = np.array([0, 1 << 29], np.int32)  # "bounds" of a tensor that decays as a whole


class DevicePlanner:
    """Plans for one net (that of `base`, set up) on one device. channels: of the pictures' mean and std. limits: bytes
    of scratch memory by launch, 0 where nothing is said; None: whatever is fastest."""

    def __init__(
        self,
        base: BaseTrainer,
        device: Any,
        choice: Choice,
        channels: int,
        storage: str = "f32",
        limits: dict[str, int] | None = None,
    ):
        self.base, self.device, self.choice, self.channels, self.storage = base, device, choice, channels, storage
        self._scratch = workspace(choice, storage == "f16", limits)

    def maker(self, one_by_one: bool) -> Maker:
        return Maker(self.base.graph, self.draft, self.plan, one_by_one)

    def draft(self, batch: int, update: str, recompute: Iterable[str]) -> Draft:
        b = self.base
        return draft_training(
            b.graph, batch, b.states, update, b.target, self._needs(batch, update), self.storage, recompute
        )

    def plan(self, batch: int, update: str, recompute: Iterable[str]) -> Plan:
        return self.draft(batch, update, recompute).finish(True, update)

    def room(self, batch: int, update: str, recompute: Iterable[str], arena: int) -> dict[str, int]:
        """By launch that can do with less scratch memory, the bytes that an arena of that size leaves beside what lives
        then, scratch memory not counted."""
        b = self.base
        needs = Needs(self.control(batch, update), None, calls_moments.floats)
        draft = draft_training(
            b.graph, batch, b.states, update, b.target, needs, self.storage, recompute
        )
        persistent, live = live_bytes(draft)
        return {
            launch.name: arena - persistent - int(n)
            for launch, n in zip(draft.launches, live, strict=True)
            if launch.node is not None and launch.node.op in calls_gemm.PARTS
        }

    def options(self, plan: Plan) -> dict[str, list[list[tuple[float, int]]]]:
        """Of the matrix products of a training plan, what each could be done by: (microseconds, scratch memory)."""
        return options(self.choice, plan.graph, plan.batch, plan.launches, self.storage == "f16")

    def eval_plan(self, batch: int, update: str) -> Plan:
        """The forward pass and the loss, with the persistent layout of the training plan."""
        b, needs = self.base, self._needs(batch, update)
        return plan_inference(
            b.evaluated, batch, b.states, update == "end", needs, self.storage, b.target
        )

    def stats_plan(self, batch: int, update: str) -> Plan:
        """The forward pass with every layer by itself, so that each can be measured."""
        b, needs = self.base, self._needs(batch, update)
        return plan_inference(b.measured, batch, b.states, update == "end", needs, self.storage)

    def sums(self, batch: int, update: str) -> tuple[dict[str, int], int]:
        """Where in "layer_sums" the sums of each thing start, and the bytes of all: of a tensor by its name, of a
        weight's last step by `u:` and of its gradient by `d:` and its name."""
        graph, places, at = self.base.measured, dict[str, int](), 0
        shapes = {t.name: t.shape for t in graph.tensors}
        for name in measured(graph):
            places[name] = at
            at += 24 * calls_step.sum_parts(batch * prod(shapes[name][:-1])) * shapes[name][-1]
        for p in graph.trainable:
            for prefix in ("u:", "d:") if update == "end" else ("u:",):
                places[prefix + p.name] = at
                at += 16 * calls_step.square_blocks(prod(p.shape))
        return places, at

    def _needs(self, batch: int, update: str) -> Needs:
        return Needs(self.control(batch, update), self._scratch, calls_moments.floats)

    def control(self, batch: int, update: str) -> dict[str, tuple[Shape, str]]:
        """The values a step needs besides the net's own. step and order stand together: one copy sends both."""
        settings = self.base.loss.settings
        width = calls_step.loss_blocks(batch, self.base.graph.output_shape, self.base.classes)
        control: dict[str, tuple[Shape, str]] = {
            "step": ((calls_step.STEP.itemsize // 4,), "i32"),
            "order": ((batch,), "i32"),
            "partials": ((HISTORY, 8 * self.partials(update)), "u8"),
            "history": ((HISTORY, width, len(calls_step.HISTORY_ROW)), "f32"),
            "bounds": ((max(len(self.bounds()), 1),), "i32"),
            "everywhere": ((len(EVERYWHERE),), "i32"),
            "counters": ((LANES, COUNTERS), "i32"),
            "mean": ((self.channels,), "f32"),
            "std": ((self.channels,), "f32"),
        }
        if self.base.scales:
            control["scales"] = ((2 * self.base.scales,), "i32")
        if self.rated:
            groups = len(self.rates(update)[1])
            control |= {"rate_starts": ((groups,), "i32"), "rate_factors": ((groups,), "f32")}
        if self.base.aids.statistics:
            control |= {"before": ((self._length(),), "f32"), "layer_sums": ((self.sums(batch, update)[1],), "u8")}
        if self.storage == "f16":
            control["scaling"] = ((calls_step.SCALING.itemsize // 4,), "i32")
        if settings.get("class_weights") is not None:
            control["class_weights"] = ((self.base.graph.output_shape[-1],), "f32")
        return control

    def partials(self, update: str) -> int:
        """Sums of squares that the updates of a step leave."""
        return sum(self.partials_of(update).values())

    def partials_of(self, update: str) -> dict[str, int]:
        """The same by update: of every parameter, or ("") of all at once."""
        params, sms = self.base.graph.trainable, self.device.sms
        if update == "immediate":
            return {p.name: calls_step.partial_count(prod(p.shape), sms) for p in params}
        return {"": calls_step.partial_count(self._length(), sms)}

    def _length(self) -> int:
        """Elements of the run of all weights, gaps between tensors included, none after the last."""
        sizes = [prod(p.shape) for p in self.base.graph.trainable]
        return sum(-(-n // 4) * 4 for n in sizes[:-1]) + sizes[-1]

    @property
    def rated(self) -> bool:
        """Whether any layer has a learning rate of its own."""
        return any(p.rate != 1 for p in self.base.graph.trainable)

    def rates(self, update: str) -> tuple[np.ndarray, np.ndarray]:
        """(starts, factors) of the groups of equal rates in the run of all weights; where tensors are updated one by
        one, of every tensor."""
        params = self.base.graph.trainable
        if update == "immediate":
            return np.zeros(len(params), np.int32), np.array([p.rate for p in params], np.float32)
        return calls_step.rate_groups(zip(self._starts(), (p.rate for p in params), strict=True))

    def bounds(self) -> np.ndarray:
        """Where in the run of all weights decay begins and ends."""
        params = self.base.graph.trainable
        tensors = [(at, prod(p.shape), p.decay) for at, p in zip(self._starts(), params, strict=True)]
        return calls_step.decay_bounds(tensors)

    def _starts(self) -> list[int]:
        """Where each tensor starts in the run of all weights, in elements."""
        at, starts = 0, list[int]()
        for p in self.base.graph.trainable:
            starts.append(at)
            at += -(-prod(p.shape) // 4) * 4
        return starts


THRIFT = 0.02  # of the time of a step's matrix products, for which the arena may shrink


def thrifty_limits(
    options: Mapping[str, Sequence[Sequence[tuple[float, int]]]], room: Mapping[str, int], most: int
) -> dict[str, int] | None:
    """Bytes of scratch memory by launch that let the arena shrink from `most` bytes as far as THRIFT pays for, or None
    where that is nothing or times are not known. options: by launch and part, (microseconds, scratch memory) of the
    variants, fastest first. room: by launch, what an arena of `most` bytes leaves it."""

    def time(shrunk: int) -> float:
        total = 0.0
        for name, parts in options.items():
            _, places = within([[size for _, size in part] for part in parts], room[name] - shrunk)
            total += sum(math.inf if at is None else part[at][0] for part, at in zip(parts, places, strict=True))
        return total

    allowed = (1 + THRIFT) * sum(part[0][0] for parts in options.values() for part in parts)
    low, high = 0, most  # shrinking by `low` is paid for, by `high` is not
    while high - low > ALIGN:
        middle = (low + high) // 2
        low, high = (middle, high) if time(middle) <= allowed else (low, middle)
    return {name: size - low for name, size in room.items()} if low else None


CAPS = (64 << 20, 16 << 20, 4 << 20, 1 << 20, 0)  # bytes of scratch memory for every launch, tried in this order
SHARES = (12 << 20, 1 << 62)  # then for as many launches as possible
TRIES = 60  # plans that are made to find out, each a tenth of a second for a large net


def scratch_limits(fits: Callable[[dict[str, int]], bool], room: dict[str, int]) -> dict[str, int]:
    """Bytes of scratch memory by launch: as many for as many launches as a plan can place. fits(limits): whether one
    can. room: what there is at most; blocks that do not fit between each other may leave less.

    First the largest bound that all launches can have together. Then launches get more, all at once, or, where that
    does not fit, each half of them, and so on: in a fixed order, so that equal questions have equal answers."""
    limits = dict.fromkeys(room, 0)
    for cap in CAPS:
        limits = {name: min(size, cap) for name, size in room.items()}
        if fits(limits):
            break
    left = TRIES
    for share in SHARES:
        groups = [[name for name, size in room.items() if limits[name] < min(size, share)]]
        while groups and left:
            group = groups.pop(0)
            more = limits | {name: min(room[name], share) for name in group}
            left -= 1
            if group and fits(more):
                limits = more
            elif len(group) > 1:
                half = len(group) // 2
                groups += [group[:half], group[half:]]
    return limits
