"""The CUDA device itself, over a stand-in for CuPy: what a failing launch is told as, and launches one by one."""

import numpy as np
import pytest
from fake_cupy import FakeCuda
from nets import net

from litenet.trainer.backends.cuda import CudaDevice, described
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.errors import UserError
from litenet.trainer.kernels.call import Call, Float, Int, Kernel, Ref
from litenet.trainer.settings import settings_for

CALL = Call(Kernel("softmax.cu", "softmax_f32", (("VEC", 4),)), (3, 2, 1), (64, 1, 1), (Ref("x"), Int(7), Float(0.5)))


def test_a_launch_is_described_by_kernel_macros_grid_and_sizes():
    assert described(CALL) == "softmax_f32 (softmax.cu VEC=4), 3 x 2 x 1 blocks of 64, sizes 7, 0.5,"


def test_bytes_that_are_given_back_are_no_longer_counted(monkeypatch):
    FakeCuda().install(monkeypatch)
    device = CudaDevice()
    kept, lent = device.allocate(1000), device.allocate(500)
    assert (device.allocated, device.allocations) == (1500, 2)
    device.release(lent)
    assert (device.allocated, device.allocations) == (1000, 2)
    device.release(kept)
    assert device.allocated == 0


def trained(monkeypatch, layers, **card):
    FakeCuda(**card).install(monkeypatch)
    blueprint = net([*layers, {"type": "flatten"}, {"type": "linear", "out_features": 3}], (2, 4, 4))
    rng = np.random.default_rng(0)
    data = Dataset(rng.integers(0, 256, (8, 4, 4, 2), np.uint8), rng.integers(0, 3, 8))
    trainer = DeviceTrainer(CudaDevice(), blueprint, 4, 1, (120.0,) * 2, (70.0,) * 2)
    settings = settings_for(blueprint, {"epochs": 1, "batch_size": 4})
    for _ in range(2):
        trainer.run_batch(data, np.arange(4), True, 1, settings)
    return trainer, trainer.state_arrays()


def test_launches_that_are_checked_one_by_one_give_the_bits_of_the_graph(monkeypatch):
    layers = [{"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "activation": "relu"}]
    plain, weights = trained(monkeypatch, layers)
    monkeypatch.setenv("LITENET_CHECK", "1")
    checked, same = trained(monkeypatch, layers)
    assert checked.device.checked and not plain.device.checked
    for name, array in weights.items():
        assert array.tobytes() == same[name].tobytes(), name


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "want"), [((9, 0), 13000, True), ((9, 0), 12020, False), ((8, 6), 13000, False)]
)
def test_where_card_and_driver_can_a_launch_is_set_up_beside_the_one_before_it(
    monkeypatch, capability, driver_cuda, want
):
    layers = [{"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "activation": "relu"}]
    _, weights = trained(monkeypatch, layers)
    machine = FakeCuda(capability=capability, driver_cuda=driver_cuda)
    monkeypatch.setattr("test_cuda_device.FakeCuda", lambda **_: machine)
    _, same = trained(monkeypatch, layers)
    for name, array in weights.items():
        assert array.tobytes() == same[name].tobytes(), name
    assert any("loss" in name or "entropy" in name for name in machine.followed) is want
    assert "load_u8_f32" not in machine.followed  # the first of its graph


def test_a_launch_the_driver_refuses_is_named(monkeypatch):
    with pytest.raises(UserError, match=r"\w+_f32 \(\w+\.cu .*\), .* blocks of \d+, sizes .* driver's error 700"):
        trained(monkeypatch, [], capability=(9, 0), broken={"follow"})


@pytest.mark.parametrize("checked", [False, True])
def test_a_launch_that_fails_names_itself_or_how_to_find_it(monkeypatch, checked):
    if checked:
        monkeypatch.setenv("LITENET_CHECK", "1")
    layers = [{"type": "softmax"}]
    with pytest.raises(UserError, match=r"softmax_\w+ \(softmax\.cu .*\), 1 x 1 x 1 blocks of") as caught:
        trained(monkeypatch, layers, broken={"bad kernel"})
    assert "cudaErrorIllegalAddress" in str(caught.value)
    assert ("set LITENET_CHECK=1" in str(caught.value)) is not checked
