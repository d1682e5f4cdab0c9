"""Whole nets trained by the CUDA kernels, run on the CPU through the shim, beside the NumPy backend."""

from types import SimpleNamespace

import numpy as np
import pytest
from closeness import assert_close
from nets import EVERYTHING, POOL, RESIDUAL, SMALL, net
from shim_device import ShimDevice

from litenet.trainer.budget import Scheme, candidates_of
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

MLP = [
    {"type": "linear", "out_features": 13, "activation": "relu"},
    {"type": "linear", "out_features": 3},
]

POOLED = [
    {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "activation": "relu"},
    POOL,
    {"type": "conv2d", "out_channels": 9, "kernel_size": 3, "padding": 1, "activation": "leaky_relu"},
    POOL,
    {"type": "dropout", "rate": 0.2},
    {"type": "flatten"},
    {"type": "linear", "out_features": 3},
]


def pictures(n=14, shape=(8, 8, 2), classes=3):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, *shape), np.uint8)
    return Dataset(x, (x.reshape(n, -1).sum(1) % classes).astype(np.int64))


def both(layers, shape=(2, 8, 8), fused=True, **more):
    blueprint = net(layers, shape, **more)
    mean, std = (120.0,) * 2, (70.0,) * 2
    return (
        Trainer(blueprint, 4, 3, mean, std),
        DeviceTrainer(ShimDevice(), blueprint, 4, 3, mean, std, fused=fused),
    )


CASES = [
    pytest.param(MLP, {"optimizer": "sgd"}, {}, id="mlp, sgd"),
    pytest.param(SMALL, {"optimizer": "momentum"}, {"clip_norm": 0.5}, id="cnn, momentum, clip by norm"),
    pytest.param(SMALL, {"optimizer": "adam", "loss": "logit_margin"}, {"accumulation": 2}, id="cnn, adam, 2 at once"),
    pytest.param(SMALL, {"optimizer": "adamw"}, {"clip_value": 0.01}, id="cnn, adamw, clip by value"),
    pytest.param(POOLED, {"optimizer": "momentum"}, {"accumulation": 2}, id="pools behind convolutions, dropout"),
    # no adam here: the gradient of a bias before a batchnorm is rounding noise, which adam would scale up
    pytest.param(EVERYTHING, {"optimizer": "nesterov"}, {}, id="every operator, nesterov"),
]


@pytest.mark.parametrize(("layers", "wishes", "options"), CASES)
def test_a_run_ends_with_the_weights_of_the_numpy_backend(layers, wishes, options):
    shape = (128,) if layers is MLP else (2, 8, 8)
    data = pictures()
    results = []
    for trainer in both(layers, shape, learning_rate=0.01, **wishes):
        settings = settings_for(trainer.blueprint, {"epochs": 2, "batch_size": 4, "schedule": "cosine", **options})
        progress = Progress()
        assert fit(trainer, data, data, settings, progress, Events()) == "done"
        results.append((trainer.state_arrays(), progress.history))
    (want, rows), (got, device_rows) = results
    assert got.keys() == want.keys()
    for name in want:
        assert_close(got[name], want[name], 3e-5, 1e-4)
    for row, device_row in zip(rows, device_rows, strict=True):
        for key in ("train_loss", "validation_loss", "grad_norm_mean", "grad_norm_max", "learning_rate"):
            assert device_row[key] == pytest.approx(row[key], rel=2e-4, abs=1e-6), key
        assert device_row["train_accuracy"] == row["train_accuracy"]
        assert device_row["updates"] == row["updates"]


def test_the_step_taken_apart_gives_the_bits_of_the_replayed_one():
    blueprint = net(SMALL, (2, 8, 8), optimizer="momentum", learning_rate=0.1)
    data = pictures(4)
    whole, apart = (DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2) for _ in range(2))
    settings = settings_for(blueprint, {"epochs": 1, "batch_size": 4})
    for _ in range(3):
        whole.run_batch(data, np.arange(4), True, 1, settings)
        activations = apart.forward(data.x)
        loss = apart.criterion(activations["output"], data.y)
        gradients = apart.backward(loss, activations)
        weights = apart.model.weights
        apart.optimizer.update(weights, gradients)
        assert weights.tobytes() == apart.model.weights.tobytes()
    rows = whole.collect(True)
    assert whole.collect(True) == []
    assert [row["updated"] for row in rows] == [True] * 3
    for name, array in whole.state_arrays().items():
        assert_close(apart.state_arrays()[name], array, 1e-6, 1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_forward_and_backward_hand_out_what_the_numpy_trainer_does(fused):
    """All of it, or, where a convolution and its pool are one, all but what lies between."""
    numpy_trainer, device_trainer = both(SMALL, fused=fused)
    x, y = pictures(3).x, np.array([0, 1, 2])
    results = []
    for trainer in (numpy_trainer, device_trainer):
        activations = trainer.forward(x)
        gradients = trainer.backward(trainer.criterion(activations["output"], y), activations)
        results.append((activations, gradients))
    (a, g), (b, h) = results
    between = {"layer_0"} if fused else set()
    assert b.keys() == a.keys() - between
    for name in b:
        assert_close(b[name], a[name], 1e-5, 1e-5)
    assert g.names() == h.names()
    assert_close(np.asarray(h), np.asarray(g), 1e-5, 1e-4)
    assert h.activations.keys() == g.activations.keys() - between
    for name in h.activations:
        assert_close(h.activations[name], g.activations[name], 1e-6, 1e-4)
    batch = SimpleNamespace(x=x, y=y)
    assert device_trainer.step(batch)["loss"] == pytest.approx(numpy_trainer.step(batch)["loss"], rel=1e-5)


def test_equal_runs_give_equal_bits_also_after_a_stop():
    blueprint = net(EVERYTHING, (2, 8, 8), optimizer="adam", learning_rate=0.01)
    data = pictures(12)
    settings = settings_for(blueprint, {"epochs": 2, "batch_size": 4})

    def fresh():
        return DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2)

    first, progress = fresh(), Progress()
    fit(first, data, None, settings, progress, Events())
    stopped, half = fresh(), Progress()
    stop = Events(stop=lambda: half.batch >= 2 or half.updates >= 2)
    assert fit(stopped, data, None, settings, half, stop) == "stopped"
    resumed = fresh()
    resumed.load_arrays(stopped.state_arrays(), "memory")
    resumed.optimizer.t, resumed.micro_step = stopped.optimizer.t, stopped.micro_step
    again = Progress.from_dict(half.as_dict())
    fit(resumed, data, None, settings, again, Events())
    for name, array in first.state_arrays().items():
        assert array.tobytes() == resumed.state_arrays()[name].tobytes(), name


def test_nothing_is_allocated_once_training_runs():
    trainer = both(SMALL)[1]
    data, settings = pictures(12), settings_for(trainer.blueprint, {"epochs": 1, "batch_size": 4})
    trainer.run_batch(data, np.arange(4), True, 1, settings)
    held = len(trainer.device.held)
    assert held == 3  # the arena, one batch from the host, the data
    fit(trainer, data, data, settings, Progress(), Events())
    assert len(trainer.device.held) == held


LEAN = [
    pytest.param(SMALL, {}, {}, id="all kept"),
    pytest.param(EVERYTHING, {"optimizer": "nesterov"}, {"update": "immediate"}, id="every operator, updated at once"),
    pytest.param(SMALL, {"optimizer": "adam"}, {"update": "immediate", "recompute": True}, id="both"),
    pytest.param(EVERYTHING, {"optimizer": "momentum"}, {"recompute": True}, id="every operator, computed again"),
    pytest.param(RESIDUAL, {"optimizer": "momentum"}, {"recompute": True}, id="residual, computed again"),
]


@pytest.mark.parametrize(("layers", "wishes", "how"), LEAN)
def test_saving_memory_changes_no_bit(layers, wishes, how):
    blueprint = net(layers, (2, 8, 8), learning_rate=0.01, **wishes)
    data, settings = pictures(12), settings_for(blueprint, {"epochs": 2, "batch_size": 4})
    plain = DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2)
    names = frozenset(candidates_of(plain.graph) if how.get("recompute") else ())
    scheme = Scheme(4, 1, how.get("update", "end"), names)
    lean = DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, scheme=scheme)
    assert any(launch.kind == "again" for launch in lean.plan.launches) == bool(names)
    ends = []
    for trainer in (plain, lean):
        progress = Progress()
        fit(trainer, data, data, settings, progress, Events())
        ends.append((trainer.state_arrays(), progress.history))
    for name, array in ends[0][0].items():
        assert array.tobytes() == ends[1][0][name].tobytes(), name
    for row, other in zip(ends[0][1], ends[1][1], strict=True):
        assert row["train_loss"] == other["train_loss"]
        assert row["validation_loss"] == other["validation_loss"]
        assert other["grad_norm_mean"] == pytest.approx(row["grad_norm_mean"], rel=1e-6)


def test_a_set_that_does_not_fit_is_sent_batch_by_batch_with_equal_bits():
    blueprint = net(SMALL, (2, 8, 8), optimizer="momentum", learning_rate=0.01)
    data, settings = pictures(40), settings_for(blueprint, {"epochs": 2, "batch_size": 4})
    ends = []
    for room in (None, 6000):
        trainer = DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, room=room)
        trainer.prepare(settings, [data])
        assert trainer.feed.held(data.x) is (room is None)
        held = len(trainer.device.held)
        progress = Progress()
        fit(trainer, data, data, settings, progress, Events())
        assert len(trainer.device.held) == held
        ends.append((trainer.state_arrays(), progress.history))
    for name, array in ends[0][0].items():
        assert array.tobytes() == ends[1][0][name].tobytes(), name
    for row, other in zip(ends[0][1], ends[1][1], strict=True):
        assert other["validation_loss"] == pytest.approx(row["validation_loss"], rel=1e-6)
        assert other["validation_accuracy"] == row["validation_accuracy"]


def test_a_step_on_a_batch_of_ones_own_is_the_step_of_the_loop():
    blueprint = net(SMALL, (2, 8, 8), optimizer="momentum", learning_rate=0.1)
    data, settings = pictures(4), settings_for(blueprint, {"epochs": 1, "batch_size": 4})
    own, looped = (DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2) for _ in range(2))
    for _ in range(2):
        looped.run_batch(data, np.arange(4), True, 1, settings)
        metrics = own.step(SimpleNamespace(x=data.x, y=data.y))
        row = looped.collect(True)[0]
        assert metrics == {key: row[key] for key in ("loss", "grad_norm", "correct")}
    for name, array in looped.state_arrays().items():
        assert array.tobytes() == own.state_arrays()[name].tobytes(), name


def test_half_precision_trains_nearly_alike_and_resumes_to_the_bit():
    blueprint = net(SMALL, (2, 8, 8), optimizer="momentum", learning_rate=0.02)
    data, settings = pictures(16), settings_for(blueprint, {"epochs": 3, "batch_size": 4})

    def made(storage):
        return DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, storage=storage)

    full, half, progress = made("f32"), made("f16"), Progress()
    assert half.plan.arena_bytes < full.plan.arena_bytes
    fit(full, data, data, settings, Progress(), Events())
    fit(half, data, data, settings, progress, Events())
    weights, halved = full.state_arrays(), half.state_arrays()
    for name, array in weights.items():
        if name.startswith("weights/"):
            assert_close(halved[name], array, 0.02, 0.02)
    stopped, there = made("f16"), Progress()
    assert fit(stopped, data, data, settings, there, Events(stop=lambda: there.epoch == 1)) == "stopped"
    resumed = made("f16")
    resumed.load_arrays(stopped.state_arrays(), "memory")
    resumed.optimizer.t, resumed.micro_step = stopped.optimizer.t, stopped.micro_step
    fit(resumed, data, data, settings, Progress.from_dict(there.as_dict()), Events())
    for name, array in halved.items():
        assert array.tobytes() == resumed.state_arrays()[name].tobytes(), name
