"""Whole nets trained by the CUDA kernels, run on the CPU through the shim, beside the NumPy backend."""

from types import SimpleNamespace

import numpy as np
import pytest
from closeness import assert_close
from nets import EVERYTHING, SMALL, net
from shim_device import ShimDevice

from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

MLP = [
    {"type": "linear", "out_features": 13, "activation": "relu"},
    {"type": "linear", "out_features": 3},
]


def pictures(n=14, shape=(8, 8, 2), classes=3):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, *shape), np.uint8)
    return Dataset(x, (x.reshape(n, -1).sum(1) % classes).astype(np.int64))


def both(layers, shape=(2, 8, 8), **more):
    blueprint = net(layers, shape, **more)
    mean, std = (120.0,) * 2, (70.0,) * 2
    return (
        Trainer(blueprint, 4, 3, mean, std),
        DeviceTrainer(ShimDevice(), blueprint, 4, 3, mean, std),
    )


CASES = [
    pytest.param(MLP, {"optimizer": "sgd"}, {}, id="mlp, sgd"),
    pytest.param(SMALL, {"optimizer": "momentum"}, {"clip_norm": 0.5}, id="cnn, momentum, clip by norm"),
    pytest.param(SMALL, {"optimizer": "adam", "loss": "logit_margin"}, {"accumulation": 2}, id="cnn, adam, 2 at once"),
    pytest.param(SMALL, {"optimizer": "adamw"}, {"clip_value": 0.01}, id="cnn, adamw, clip by value"),
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


def test_forward_and_backward_hand_out_what_the_numpy_trainer_does():
    numpy_trainer, device_trainer = both(SMALL)
    x, y = pictures(3).x, np.array([0, 1, 2])
    results = []
    for trainer in (numpy_trainer, device_trainer):
        activations = trainer.forward(x)
        gradients = trainer.backward(trainer.criterion(activations["output"], y), activations)
        results.append((activations, gradients))
    (a, g), (b, h) = results
    assert a.keys() == b.keys()
    for name in a:
        assert_close(b[name], a[name], 1e-5, 1e-5)
    assert g.names() == h.names()
    assert_close(np.asarray(h), np.asarray(g), 1e-5, 1e-4)
    assert g.activations.keys() == h.activations.keys()
    for name in g.activations:
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
    assert held == 3  # the arena, the pictures, their classes
    fit(trainer, data, data, settings, Progress(), Events())
    assert len(trainer.device.held) == held
