"""What `edge-train plan` says: the memory of a step without training, and what fits a budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import blueprint as blueprints
from .balance import unweighted
from .base import BaseTrainer
from .budget import Maker, fit
from .errors import UserError
from .graph import build
from .memory import bytes_text, largest_batch, parse_bytes, render, report
from .plan import Plan, draft_training
from .plan_draft import Draft
from .settings import Settings, settings_for


def cpu_maker(base: BaseTrainer, settings: Settings) -> Maker:
    """Plans of a net (that of `base`, set up) for the NumPy backend."""

    def draft(batch: int, update: str, recompute: Any) -> Draft:
        return draft_training(base.graph, batch, base.states, update, base.target, None, "f32", recompute)

    def plan(batch: int, update: str, recompute: Any) -> Plan:
        return draft(batch, update, recompute).finish(True, update)

    return Maker(base.graph, draft, plan, settings.update == "immediate")


def plan_texts(path: str, given: dict[str, Any], memory: str | None) -> Iterator[str]:
    """The report, then, with a budget, what fits it. given: settings of the command line."""
    blueprint = blueprints.load(path)
    blueprint = unweighted(blueprint, build(blueprint).output_shape[-1])
    settings = settings_for(blueprint, given)
    base = BaseTrainer()
    base.set_up(blueprint, settings.seed, None, settings.aids)
    maker = cpu_maker(base, settings)
    plan = maker.plan(settings.batch_size, settings.update, ())
    yield render(plan, report(plan))
    if memory is not None:
        yield ""
        yield from _within(maker, plan, parse_bytes(memory), memory, settings, blueprint.where)


def _within(maker: Maker, plan: Plan, budget: int, said: str, settings: Settings, where: str) -> Iterator[str]:
    def plan_of(batch: int, update: str = settings.update) -> Plan:
        return maker.plan(batch, update, ())

    best = largest_batch(lambda b: plan_of(b).arena_bytes, budget, lambda b: plan_of(b).lower_bound)
    if best == 0:
        raise UserError(
            f"{where}: not even batch 1 fits {bytes_text(budget)}: it needs {bytes_text(plan_of(1).arena_bytes)}.\n"
            "  Use a smaller input_shape or fewer channels."
        )
    yield f"largest batch in {bytes_text(budget)}: {best:,} ({plan_of(best).arena_bytes:,} bytes)"
    if plan.arena_bytes <= budget:
        return
    scheme = fit(maker, plan.batch, settings.accumulation, budget, where)
    yield f"batch {plan.batch} with --memory {said}: {scheme.text(plan.batch)}"
    parts = (k for k in range(2, plan.batch + 1) if plan.batch % k == 0)
    k = next((k for k in parts if plan_of(plan.batch // k, "end").arena_bytes <= budget), None)
    split = f"--batch {plan.batch // (k or 1)} --accumulation {(k or 1) * settings.accumulation} for the same update"
    yield f"batch {plan.batch} does not fit; use {split if k else f'--batch {best}'}"
