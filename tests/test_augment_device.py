"""Augmentation on a device: the kernels, run on the CPU through the shim, train on the pictures the CPU trains on."""

import numpy as np
import pytest
from closeness import assert_close
from nets import SMALL, net
from shim_device import ShimDevice

from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

ALTERNATE = {"flip": "alternate", "translate": 2, "pad_mode": "reflect", "cutout": 3}
CNN, MLP = (SMALL, (2, 8, 8)), ([{"type": "linear", "out_features": 3}], (128,))  # layers, input_shape
WISHES = [
    pytest.param(CNN, {"flip": "both", "translate": 1, "cutout": 2}, {}, "u8", id="bytes"),
    pytest.param(CNN, ALTERNATE, {"accumulation": 2}, "u8", id="bytes, alternate flip, two at once"),
    pytest.param(CNN, ALTERNATE, {}, "f32", id="floats, alternate flip"),
    pytest.param(CNN, {"rotate": 40, "scale": 0.3, "contrast": 0.4, "cutmix": 1.0}, {}, "u8", id="turned and cut in"),
    pytest.param(CNN, {"flip": True, "brightness": 0.2, "mixup": 0.4}, {"accumulation": 2}, "f32", id="blended"),
    pytest.param(MLP, {"mixup": 1, "cutmix": 1}, {}, "u8", id="bytes for a flat input, mixed"),
    pytest.param(MLP, ALTERNATE, {}, "u8", id="bytes for a flat input"),
    pytest.param(MLP, ALTERNATE, {}, "f32", id="floats for a flat input"),
]


def pictures(n=14, dtype="u8"):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, 8, 8, 2), np.uint8)
    y = (x.reshape(n, -1).sum(1) % 3).astype(np.int64)
    return Dataset(x if dtype == "u8" else (x / np.float32(99) - 1), y)


def scale(dtype):
    return ((120.0,) * 2, (70.0,) * 2) if dtype == "u8" else (None, None)


class SmallDevice(ShimDevice):
    """No room for the data set: batches are sent one by one."""

    def free_bytes(self):
        return 0


@pytest.mark.parametrize("device", [ShimDevice, SmallDevice], ids=["resident", "sent"])
@pytest.mark.parametrize(("layers_and_shape", "augmentation", "options", "dtype"), WISHES)
def test_a_run_ends_with_the_weights_of_the_numpy_backend(layers_and_shape, augmentation, options, dtype, device):
    data, results = pictures(dtype=dtype), []
    blueprint = net(*layers_and_shape, augmentation=augmentation, optimizer="momentum", learning_rate=0.02)
    settings = settings_for(blueprint, {"epochs": 3, "batch_size": 4, **options})
    for trainer in (
        Trainer(blueprint, 4, 3, *scale(dtype)),
        DeviceTrainer(device(), blueprint, 4, 3, *scale(dtype)),
    ):
        progress = Progress()
        assert fit(trainer, data, data, settings, progress, Events()) == "done"
        results.append((trainer.state_arrays(), progress.history))
    (want, rows), (got, device_rows) = results
    for name in want:
        assert_close(got[name], want[name], 3e-5, 1e-4)
    for row, device_row in zip(rows, device_rows, strict=True):
        for key in ("train_loss", "validation_loss"):
            assert device_row[key] == pytest.approx(row[key], rel=2e-4, abs=1e-6), key


def test_a_run_that_is_stopped_goes_on_to_the_same_bits():
    blueprint = net(SMALL, (2, 8, 8), augmentation=ALTERNATE, optimizer="momentum", learning_rate=0.02)
    settings, data = settings_for(blueprint, {"epochs": 3, "batch_size": 4}), pictures()

    def fresh():
        return DeviceTrainer(ShimDevice(), blueprint, 4, 3, *scale("u8"))

    whole = fresh()
    fit(whole, data, None, settings, Progress(), Events())
    stopped, half = fresh(), Progress()
    fit(stopped, data, None, settings, half, Events(stop=lambda: stopped.optimizer.t >= 4))
    assert half.updates == 4
    resumed = fresh()
    resumed.load_arrays(stopped.state_arrays(), "memory")
    resumed.optimizer.t, resumed.micro_step = stopped.optimizer.t, stopped.micro_step
    fit(resumed, data, None, settings, Progress.from_dict(half.as_dict()), Events())
    for name, array in whole.state_arrays().items():
        assert array.tobytes() == resumed.state_arrays()[name].tobytes(), name
