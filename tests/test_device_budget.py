"""Runs on a card of a given size: what is decided before they start, and what they then take, to the byte."""

import json

import numpy as np
import pytest
from nets import EVERYTHING, RESIDUAL, SMALL, net
from shim_device import ShimDevice

from litenet.trainer import checkpoint, session
from litenet.trainer.backends import cuda
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_budget import SPARE, verdict
from litenet.trainer.device_plan import CAPS, scratch_limits
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.errors import UserError
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.machine import Machine
from litenet.trainer.settings import settings_for


class Card(ShimDevice):
    """A device with so much memory."""

    name, capability, table, size = "a card", (7, 5), None, 1 << 30

    def __init__(self, size=None):
        super().__init__()
        self.size = size or self.size
        self.allocations = self.allocated = 0

    def allocate(self, size):
        self.allocations += 1
        self.allocated += size
        assert self.allocated <= self.size, "out of memory"
        return super().allocate(size)

    def free_bytes(self):
        return self.size - self.allocated


def pictures(n=24, shape=(8, 8, 2)):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, *shape), np.uint8)
    return Dataset(x, (x.reshape(n, -1).sum(1) % 3).astype(np.int64))


def decided(layers, card, batch=8, budget=None, storage="f32", **options):
    blueprint, data = net(layers, (2, 8, 8), optimizer="momentum", learning_rate=0.01), pictures()
    settings = settings_for(blueprint, {"epochs": 1, "batch_size": batch, **options})
    return blueprint, data, settings, verdict(card, blueprint, settings, [data], True, budget, storage)


def trained(card, blueprint, data, settings, found, storage="f32"):
    scheme = found.scheme
    trainer = DeviceTrainer(
        card, blueprint, seed=3, mean=(120.0,) * 2, std=(70.0,) * 2, scheme=scheme, storage=storage,
        arena=found.arena, room=found.room,
    )  # fmt: skip
    split = settings_for(blueprint, {"epochs": 1, "batch_size": scheme.batch, "accumulation": scheme.accumulation})
    trainer.prepare(split, [data])
    taken = card.allocated
    assert fit(trainer, data, data, split, Progress(), Events()) == "done"
    assert card.allocated == taken == trainer.backend.bytes + trainer.feed.bytes
    return trainer


@pytest.mark.parametrize("layers", [SMALL, EVERYTHING, RESIDUAL], ids=["small", "everything", "residual"])
def test_a_large_card_changes_nothing(layers):
    blueprint, data, settings, found = decided(layers, Card())
    assert (found.scheme.batch, found.scheme.update, found.scheme.recompute) == (8, "end", frozenset())
    trainer = trained(Card(), blueprint, data, settings, found)
    assert trainer.feed.held(data.x)


@pytest.mark.parametrize("layers", [EVERYTHING, RESIDUAL], ids=["everything", "residual"])
@pytest.mark.parametrize("share", [0.9, 0.75, 0.6])
def test_what_was_decided_is_what_is_taken(layers, share):
    whole = trained(Card(), *decided(layers, Card(), batch=24))
    budget = int(share * whole.device.allocated)
    blueprint, data, settings, found = decided(layers, Card(), batch=24, budget=budget)
    trainer = trained(Card(), blueprint, data, settings, found)
    assert trainer.device.allocated <= budget
    assert trainer.backend.bytes <= found.arena
    assert trainer.feed.bytes <= found.room


@pytest.mark.parametrize("bytes_", [0, 3 << 20, 40 << 20, 200 << 20, 10 << 30])
def test_launches_get_as_much_scratch_memory_as_can_be_placed(bytes_):
    room = {f"launch{i}": (i * i) << 20 for i in range(12)}
    tried = []

    def fits(limits):
        tried.append(limits)
        return sum(limits.values()) <= bytes_

    found = scratch_limits(fits, room)
    assert all(0 <= found[name] <= room[name] for name in room)
    assert fits(found) or not any(found.values())
    assert found == scratch_limits(fits, room), "equal questions have equal answers"
    if bytes_ >= sum(room.values()):
        assert found == room
    elif bytes_ >= 40 << 20:  # a bound for all alone would leave more of it unused
        capped = [sum(min(size, cap) for size in room.values()) for cap in CAPS]
        assert sum(found.values()) > max(total for total in capped if total <= bytes_)


def test_a_card_without_budget_is_filled_up_to_its_spare():
    whole = trained(Card(), *decided(SMALL, Card(), batch=24))
    size = int(0.9 * whole.device.allocated / SPARE)
    blueprint, data, settings, found = decided(SMALL, Card(size), batch=24)
    assert found.arena + found.room <= SPARE * size
    trained(Card(size), blueprint, data, settings, found)


def test_what_does_not_fit_is_refused_before_anything_is_allocated():
    card = Card()
    with pytest.raises(UserError, match=r"net\.json: .*(sample|weights|pictures)"):
        decided(EVERYTHING, card, budget=30_000)
    assert card.allocations == 0


def test_half_precision_takes_less():
    full, half = (
        trained(Card(), *decided(SMALL, Card(), batch=24, storage=storage), storage) for storage in ("f32", "f16")
    )
    moving = [trainer.plan.arena_bytes - trainer.plan.persistent_bytes for trainer in (full, half)]
    assert moving[1] < 0.6 * moving[0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pictures(30)
    np.savez("pictures.npz", x_train=data.x, y_train=data.y, x_test=data.x[:6], y_test=data.y[:6], layout="NHWC")
    monkeypatch.setattr(cuda, "CudaDevice", Card)
    return tmp_path


def test_a_run_on_a_small_card_says_its_price_and_resumes_to_the_bit(here):
    blueprint = net(EVERYTHING, (2, 8, 8), optimizer="momentum", learning_rate=0.01)
    given = {"epochs": 2, "batch_size": 12, "validation_split": 0.2}
    plain = session.start(blueprint, "pictures.npz", given, here / "plain", Machine("cuda"))
    taken = plain.trainer.device.allocated
    small = Machine("cuda", memory=int(0.8 * taken))
    run = session.start(blueprint, "pictures.npz", given, here / "run", small)
    assert any(note.startswith("to fit: ") for note in run.notes)
    assert run.trainer.device.allocated <= small.memory
    assert run.run(Events(stop=lambda: run.progress.epoch == 1)) == "stopped"
    log = (here / "run" / "log.txt").read_text()
    assert f"arena {run.trainer.backend.bytes:,} bytes" in log
    assert "memory: 0 allocations since the start, 0 bytes less are free" in log
    meta = checkpoint.load(here / "run" / "last.npz").meta["machine"]
    assert meta["device"] == "cuda" and meta["storage"] == "f32" and meta["scheme"]["batch"] == run.trainer.plan.batch
    again = session.resume(here / "run", {}, machine=small)
    assert again.trainer.scheme == run.trainer.scheme
    again.run(Events())
    once = session.start(blueprint, "pictures.npz", given, here / "once", small)
    once.run(Events())
    for name, array in once.trainer.state_arrays().items():
        assert array.tobytes() == again.trainer.state_arrays()[name].tobytes(), name
    tested = once.test_best()
    assert tested is not None and tested.accuracy is not None


def test_half_precision_is_refused_where_the_card_is_slow_at_it(here, monkeypatch):
    monkeypatch.setattr(Card, "capability", (6, 1))
    blueprint = net(SMALL, (2, 8, 8))
    with pytest.raises(UserError, match="compute capability 6.1; half precision pays from 7.0 on"):
        session.start(blueprint, "pictures.npz", {}, here / "run", Machine("cuda", fp16=True))
    with pytest.raises(UserError, match="--fp16 needs --device cuda"):
        session.start(blueprint, "pictures.npz", {}, here / "run", Machine(fp16=True))
    assert not (here / "run").exists()


def test_the_cpu_keeps_to_a_budget_as_well(here):
    blueprint = net(EVERYTHING, (2, 8, 8), optimizer="momentum", learning_rate=0.01)
    given = {"epochs": 1, "batch_size": 12, "clip_norm": 1.0}
    whole = session.start(blueprint, "pictures.npz", given, here / "whole").trainer.backend.bytes
    run = session.start(blueprint, "pictures.npz", given, here / "run", Machine(memory=int(0.8 * whole)))
    assert run.trainer.backend.bytes <= 0.8 * whole
    assert any(note.startswith("to fit: ") for note in run.notes)
    assert run.run(Events()) == "done"
    assert json.loads((here / "run" / "config.json").read_text())["settings"]["batch_size"] == run.trainer.plan.batch


def test_a_checkpoint_that_remembers_no_machine_still_resumes(here):
    blueprint = net(SMALL, (2, 8, 8))
    run = session.start(blueprint, "pictures.npz", {"epochs": 1, "batch_size": 4}, here / "run")
    run.run(Events())
    saved = checkpoint.load(here / "run" / "last.npz")
    del saved.meta["machine"]
    checkpoint.save(here / "run" / "last.npz", saved.arrays, saved.meta)
    again = session.resume(here / "run", {"epochs": 2})
    assert again.run(Events()) == "done"
