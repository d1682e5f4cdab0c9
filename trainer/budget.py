"""A training step that fits a number of bytes: what is computed again, when weights are updated, how a batch is split.

Three things save memory, and each has a price:
    computing tensors again   in the backward pass instead of keeping them (plan.py, `recompute`): time, no bit changes
    updating at once          each weight as soon as its gradient is there: more launches, no bit changes; not with
                              clipping by the norm or with accumulation, which need all gradients together
    splitting the batch       into micro-batches whose gradients add up: other sums, other batch statistics
The first scheme that fits is taken, in order of its price on a common card (BANDWIDTH, ARITHMETIC, LAUNCH below).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from .errors import UserError
from .graph import Graph, Node
from .memory import bytes_text
from .ops import OPS
from .plan import ITEM, Plan
from .plan_draft import Draft

BANDWIDTH, ARITHMETIC, LAUNCH = 200e9, 4e12, 4e-6  # bytes and operations a second, seconds: near a GTX 1060
ROUNDS = 8  # passes over the candidates, at most


@dataclass(frozen=True)
class Scheme:
    """How a step is carried out. recompute: names of tensors. seconds: of a step, more than without any saving."""

    batch: int
    accumulation: int
    update: str
    recompute: frozenset[str] = frozenset()
    seconds: float = 0.0
    share: float = 0.0  # of the step's arithmetic that is done twice

    def text(self, wanted: int) -> str:
        """What a user is told: empty when nothing is saved."""
        parts = []
        if self.batch != wanted:
            parts.append(f"{wanted // self.batch} micro-batches of {self.batch} make an update of {wanted}")
        if self.recompute:
            parts.append(f"{len(self.recompute)} tensors are computed again, {100 * self.share:.0f} % more arithmetic")
        if self.update == "immediate":
            parts.append("each weight is updated as soon as its gradient is there")
        return "; ".join(parts)


@dataclass(frozen=True)
class Maker:
    """Makes the drafts and plans of one net: (batch, update, recompute) -> Draft or Plan."""

    graph: Graph
    draft: Callable[[int, str, Iterable[str]], Draft]
    plan: Callable[[int, str, Iterable[str]], Plan]
    one_by_one: bool  # whether weights may be updated at once


def fit(maker: Maker, batch: int, accumulation: int, budget: int, where: str, split: bool = True) -> Scheme:
    """The cheapest scheme whose arena fits `budget` bytes. UserError names what stands in the way. split: whether a
    batch may be split."""
    for parts in (k for k in range(1, batch + 1 if split else 2) if batch % k == 0):
        found = []
        for update in ("end", *(["immediate"] if maker.one_by_one and parts == 1 else [])):
            tensors = _tensors_to_fit(maker, batch // parts, update, budget)
            if tensors is not None:
                found.append(_scheme(maker, batch // parts, accumulation * parts, update, tensors))
        if found:
            return min(found, key=lambda s: s.seconds)
    raise UserError(_refusal(maker, budget, where))


def _tensors_to_fit(maker: Maker, batch: int, update: str, budget: int) -> frozenset[str] | None:
    """The tensors to compute again so that the arena fits, or None. Placing may cost a little more than the bound:
    then less is aimed at."""
    aim = budget
    for _ in range(4):
        tensors = _search(maker, batch, update, aim)
        if tensors is None:
            return None
        arena = maker.plan(batch, update, tensors).arena_bytes
        if arena <= budget:
            return tensors
        aim -= arena - budget
    return None


def _search(maker: Maker, batch: int, update: str, budget: int) -> frozenset[str] | None:
    """Greedy: of the tensors whose loss lowers what is over the budget, those of the least price for a byte."""
    chosen: list[str] = []

    def over(tensors: Iterable[str]) -> int:
        persistent, live = live_bytes(maker.draft(batch, update, tensors))
        return int(np.maximum(live + persistent - budget, 0).sum())

    excess = over(())
    candidates = candidates_of(maker.graph)
    for _ in range(ROUNDS):
        before = excess
        for name in candidates:
            if excess == 0:
                break
            if name not in chosen and (less := over([*chosen, name])) < excess:
                chosen.append(name)
                excess = less
        if excess in (0, before):
            break
    if excess:
        return None
    for name in chosen[::-1]:  # what a later choice has made needless
        rest = [n for n in chosen if n != name]
        if over(rest) == 0:
            chosen = rest
    return frozenset(chosen)


def live_bytes(draft: Draft) -> tuple[int, np.ndarray]:
    """(persistent bytes, transient bytes alive during each launch), int64."""
    persistent, lives = draft.outline()
    steps = np.zeros(len(draft.launches) + 1, np.int64)
    for size, first, last in lives:
        size = -(-size // draft.alignment) * draft.alignment
        steps[first] += size
        steps[last + 1] -= size
    return persistent, np.cumsum(steps)[:-1]


def candidates_of(graph: Graph) -> list[str]:
    """Tensors that can be computed again, cheapest for a byte first; what the net puts out is no use."""
    nodes = [n for n in graph.nodes if n.output not in graph.outputs and not OPS[n.op].OP.view]
    nodes.sort(key=lambda n: price(graph, n) / _bytes(graph, n.output))
    return [graph.tensors[n.output].name for n in nodes]


def price(graph: Graph, node: Node) -> float:
    """Seconds that one sample's forward of a node takes on a common card, its launch not counted."""
    moved = sum(_bytes(graph, t) for t in (*node.inputs, node.output))
    return max(moved / BANDWIDTH, 2 * macs(graph, node) / ARITHMETIC)


def macs(graph: Graph, node: Node) -> int:
    """Multiply-accumulates of one sample."""
    return int(OPS[node.op].macs(node.attrs, graph.shapes(node)[0], graph.tensors[node.output].shape))


def _bytes(graph: Graph, t: int) -> int:
    return ITEM["f32"] * prod(graph.tensors[t].shape)


def _scheme(maker: Maker, batch: int, accumulation: int, update: str, tensors: frozenset[str]) -> Scheme:
    graph = maker.graph
    again = [n for n in graph.nodes if graph.tensors[n.output].name in tensors]
    seconds = sum(batch * price(graph, n) + LAUNCH for n in again)
    if update == "immediate":
        seconds += LAUNCH * len(graph.trainable)
    whole = 3 * sum(macs(graph, n) for n in graph.nodes)
    share = sum(macs(graph, n) for n in again) / max(whole, 1)
    return Scheme(batch, accumulation, update, tensors, seconds, share)


def _refusal(maker: Maker, budget: int, where: str) -> str:
    """What needs the most when a single sample does not fit even with everything computed again."""
    update = "immediate" if maker.one_by_one else "end"
    plan = maker.plan(1, update, candidates_of(maker.graph))
    largest = max((b for b in plan.buffers if b.kind != "external"), key=lambda b: b.bytes)
    need = plan.arena_bytes
    if plan.persistent_bytes > budget:
        return (
            f"{where}: the weights and what belongs to them need {bytes_text(plan.persistent_bytes)}, more than "
            f"{bytes_text(budget)}; {largest.name} of {largest.owner} is the largest, {bytes_text(largest.bytes)}.\n"
            "  Make that layer smaller, use an optimizer with less state (sgd), or raise --memory."
        )
    return (
        f"{where}: not even one sample at a time fits {bytes_text(budget)}: it needs {bytes_text(need)}, and "
        f"{largest.name} of {largest.owner} alone {bytes_text(largest.bytes)}.\n"
        f"  Use a smaller input_shape or fewer channels in {largest.owner}, or --memory {bytes_text(need)} and more."
    )
