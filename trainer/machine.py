"""Which machine trains, within how many bytes, and the trainer that results: the CPU's, or a card's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from . import blueprint as blueprints
from .backends.cards import HALF_FROM
from .base import BaseTrainer
from .budget import Scheme, fit
from .data.dataset import Dataset
from .errors import UserError
from .planning import cpu_maker
from .settings import Settings
from .trainer import Trainer

if TYPE_CHECKING:
    from .backends.cuda import CudaDevice
    from .device_trainer import DeviceTrainer
    from .int8.qat import Start


@dataclass(frozen=True)
class Machine:
    """What a user asks for. memory: bytes the run may take. fp16: activations stored in half precision. qat: train with
    the device's whole numbers, from this."""

    device: str = "cpu"
    memory: int | None = None
    fp16: bool = False
    qat: Start | None = None


@dataclass(frozen=True)
class Fitted:
    """A trainer, the settings it runs with (a batch may have been split), and what a checkpoint has to remember."""

    trainer: Trainer | DeviceTrainer
    settings: Settings
    remembered: dict[str, Any]
    notes: list[str]


def fitted(
    machine: Machine,
    blueprint: blueprints.Blueprint,
    settings: Settings,
    sets: Sequence[Dataset],
    common: dict[str, Any],
    saved: dict[str, Any] | None = None,
) -> Fitted:
    """The trainer of a run. sets: training data first. common: what both trainers take. saved: what an earlier part of
    the run remembered; its scheme and kernels are taken up, so that the bits go on as they were."""
    if machine.qat is not None:
        return _whole_numbers(machine, machine.qat, blueprint, settings, sets, common, saved)
    if machine.device == "cuda":
        return _on_card(machine, blueprint, settings, sets, common, saved)
    if machine.fp16:
        raise UserError(
            "--fp16 needs --device cuda: on the CPU it would save memory alone and cost time.\n"
            "  Leave it out; --memory SIZE saves memory here."
        )
    scheme = _scheme_of(saved)
    if scheme is None and machine.memory is not None:
        base = BaseTrainer()
        base.set_up(blueprint, settings.seed, common["classes"], settings.aids)
        maker = cpu_maker(base, settings)
        scheme = fit(maker, settings.batch_size, settings.accumulation, machine.memory, blueprint.where)
    if scheme is None:
        scheme = Scheme(settings.batch_size, settings.accumulation, settings.update)
    settings, notes = _with(scheme, settings)
    trainer = Trainer(
        blueprint, update=scheme.update, recompute=scheme.recompute, **common | {"batch_size": scheme.batch}
    )
    if machine.memory is not None:
        notes.append(f"the arena takes {trainer.backend.bytes:,} of {machine.memory:,} bytes; NumPy's own come on top")
    return Fitted(trainer, settings, {"device": "cpu", "scheme": _remember(scheme)}, notes)


def _whole_numbers(
    machine: Machine, start: Start, blueprint: blueprints.Blueprint, settings: Settings, sets: Sequence[Dataset],
    common: dict[str, Any], saved: dict[str, Any] | None,
) -> Fitted:  # fmt: skip
    from .int8.qat import QatTrainer

    if machine.fp16 or machine.memory is not None:
        raise UserError("--qat trains without --fp16 and --memory.\n  Leave these out.")
    notes = ["forward in the device's int8; " + ("its scales as before" if start.quants else "scales from the data")]
    if machine.device != "cuda":
        trainer = QatTrainer(blueprint, start, sets[0].x, update=settings.update, **common)
        return Fitted(trainer, settings, {"device": "cpu"}, notes)
    from .backends.cuda import CudaDevice
    from .device_budget import SPARE
    from .int8.qat_device import DeviceQatTrainer
    from .kernels.choose import Choice

    device, variants = CudaDevice(), saved["variants"] if saved and saved.get("device") == "cuda" else None
    scheme = Scheme(settings.batch_size, settings.accumulation, settings.update)
    choice, limit = Choice(device, device.table, variants), int(SPARE * device.free_bytes())
    on_card = DeviceQatTrainer(
        device, blueprint, start, sets[0].x, scheme=scheme, choice=choice, arena=limit, room=limit, **common
    )
    return _prepared(on_card, scheme, "f32", settings, sets, notes)


def _on_card(
    machine: Machine,
    blueprint: blueprints.Blueprint,
    settings: Settings,
    sets: Sequence[Dataset],
    common: dict[str, Any],
    saved: dict[str, Any] | None,
) -> Fitted:
    from .backends.cuda import CudaDevice
    from .device_budget import SPARE, Verdict, verdict
    from .device_trainer import DeviceTrainer
    from .kernels.choose import Choice

    device, saved = CudaDevice(), saved if saved and saved.get("device") == "cuda" else None
    storage = saved["storage"] if saved else "f16" if machine.fp16 else "f32"
    if storage == "f16":
        check_half(device)
    scheme = _scheme_of(saved)
    if scheme is None:
        found = verdict(device, blueprint, settings, sets, common["classes"], machine.memory, storage)
    else:
        limit = min(machine.memory or 1 << 62, int(SPARE * device.free_bytes()))
        found = Verdict(scheme, limit, limit)
    settings, notes = _with(found.scheme, settings)
    choice = Choice(device, device.table, saved["variants"] if saved else None)
    trainer = DeviceTrainer(
        device, blueprint, scheme=found.scheme, storage=storage, choice=choice, arena=found.arena, room=found.room,
        **common,
    )  # fmt: skip
    return _prepared(trainer, found.scheme, storage, settings, sets, notes)


def _prepared(
    trainer: DeviceTrainer, scheme: Scheme, storage: str, settings: Settings, sets: Sequence[Dataset], notes: list[str]
) -> Fitted:
    """A card's trainer with everything allocated, and what is told and remembered of it."""
    trainer.prepare(settings, sets)
    device: Any = trainer.device
    notes.append(
        f"on {device.name}: arena {trainer.backend.bytes:,} bytes, data {trainer.feed.bytes:,} bytes, "
        f"{device.allocations} allocations, all made"
    )
    if not trainer.feed.held(sets[0].x):
        notes.append("the data stay with the host and are sent ahead, batch by batch")
    variants = trainer.choice.used
    remembered = {"device": "cuda", "storage": storage, "scheme": _remember(scheme), "variants": variants}
    return Fitted(trainer, settings, remembered, notes)


def check_half(device: CudaDevice) -> None:
    """--fp16 is offered where the card's half precision is fast."""
    capability = device.capability
    if capability < HALF_FROM:
        raise UserError(
            f"--fp16: {device.name} has compute capability {capability[0]}.{capability[1]}; half precision pays from "
            f"{HALF_FROM[0]}.{HALF_FROM[1]} on.\n  Train without --fp16; --memory SIZE saves memory on every card."
        )


def _with(scheme: Scheme, settings: Settings) -> tuple[Settings, list[str]]:
    text = scheme.text(settings.batch_size)
    notes = [f"to fit: {text}"] if text and (scheme.recompute or scheme.batch != settings.batch_size) else []
    if scheme.batch != settings.batch_size:
        notes.append("batch normalisation, if any, then sees the smaller batches")
    return replace(settings, batch_size=scheme.batch, accumulation=scheme.accumulation), notes


def _remember(scheme: Scheme) -> dict[str, Any]:
    return asdict(scheme) | {"recompute": sorted(scheme.recompute)}


def _scheme_of(saved: dict[str, Any] | None) -> Scheme | None:
    if not saved or not saved.get("scheme"):
        return None
    return Scheme(**saved["scheme"] | {"recompute": frozenset(saved["scheme"]["recompute"])})

