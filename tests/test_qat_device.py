"""edge-train --qat on a card, by its kernels run on the CPU: the integers of the NumPy backend, and of the file."""

import json

import numpy as np
import nvrtc
import pytest
from closeness import assert_close
from fake_cupy import FakeCuda
from nets import net
from shim_device import ShimDevice

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine
from litenet.trainer import checkpoint
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data.digits import read_digits
from litenet.trainer.errors import UserError
from litenet.trainer.int8.qat import QatTrainer, Start
from litenet.trainer.int8.qat_device import DeviceQatTrainer
from litenet.trainer.kernels import calls_int8
from litenet.trainer.kernels.source import FOLDER
from litenet.trainer.ops.activations import IDS
from litenet.trainer.trainer import Trainer

SHAPE = (3, 13, 11)
LAYERS = [
    {"type": "conv2d", "out_channels": 6, "kernel_size": 3, "padding": 1, "bias": False},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "residual", "activation": "relu", "layers": [
        {"type": "depthwise_conv2d", "kernel_size": 3, "padding": 1, "activation": "relu6"},
        {"type": "conv2d", "out_channels": 6, "kernel_size": 1}, {"type": "batchnorm"}]},
    {"type": "conv2d", "out_channels": 10, "kernel_size": 3, "stride": 2, "padding": 1, "groups": 2,
     "activation": "silu"},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 1},
    {"type": "conv2d", "out_channels": 70, "kernel_size": [2, 3], "dilation": [2, 1], "activation": "leaky_relu"},
    {"type": "avgpool2d", "kernel_size": 2, "stride": 1, "padding": 1, "count_include_pad": 0},
    {"type": "avgpool2d", "kernel_size": [1, 2], "padding": [0, 1, 0, 1]},
    {"type": "dropout", "rate": 0.1},
    {"type": "global_avg_pool"},
    {"type": "linear", "out_features": 7, "activation": "tanh"},
    {"type": "linear", "out_features": 3},
]  # fmt: skip
MEAN, STD = (120.0, 110.0, 100.0), (70.0, 65.0, 60.0)


def pair(layers=LAYERS, shape=SHAPE, quants=None, change=None):
    """(the NumPy backend's trainer, the kernels' trainer, samples): of one float start."""
    blueprint = net(layers, shape, optimizer={"type": "sgd", "momentum": 0.9}, learning_rate=0.01)
    plain, rng = Trainer(blueprint, 8), np.random.default_rng(5)
    for name, p in plain.full.params.items():
        if name.endswith(("bias", "beta", "running_mean", "gamma", "running_var")):
            middle = 0.8 if name.endswith(("gamma", "var")) else 0
            plain.array(name)[...] = np.clip(rng.standard_normal(p.shape), -2, 2) * 0.2 + middle
    arrays = plain.state_arrays()
    for name, value in (change or {}).items():
        arrays[f"weights/{name}"] = arrays[f"weights/{name}"] + np.float32(value)
    start = Start(checkpoint.Checkpoint(arrays, {}, "a.npz"), quants)
    x = rng.integers(0, 256, (24, *shape[1:], shape[0]), np.uint8)
    common = {"mean": MEAN[: shape[0]], "std": STD[: shape[0]], "batch_size": 5}
    one = QatTrainer(blueprint, start, x, **common)
    return one, DeviceQatTrainer(ShimDevice(), blueprint, start, x, **common), x


def same_step(one, other, x, y):
    """Forward to the bit, gradients within the tolerance of float kernels."""
    want, got = one.forward(x), other.forward(x)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    loss = one.criterion(want["output"], y)
    gradients = [t.backward(t.criterion(out["output"], y), out) for t, out in ((one, want), (other, got))]
    assert float(loss) > 0
    for name in gradients[0].names():
        size = np.abs(gradients[0][name]).max()
        assert_close(gradients[1][name], gradients[0][name], 2e-5 * size + 1e-9, 1e-4)
    assert other.quants() == {t: q for t, q in one.quants().items() if t in other.quants()}
    np.testing.assert_array_equal(other.infer(x), one.infer(x))
    return gradients


def test_forward_is_numpys_to_the_bit_and_gradients_are_its():
    one, other, x = pair()
    assert {n.op for n in other.graph.nodes if n.scales} == set(calls_int8.WHOLE)
    gradients = same_step(one, other, x[:5], np.arange(5) % 3)
    assert all(np.abs(gradients[0][name]).max() > 0 for name in gradients[0].names())
    same_step(one, other, x[5:7], np.arange(2))  # fewer than planned for
    other.optimizer.update(other.model.weights, gradients[0])
    one.optimizer.update(one.model.weights, gradients[0])
    for name in one.graph.params:
        other.write(other.plan, name, one.array(name))  # a last place would turn a rounding over
    same_step(one, other, x[7:12], np.arange(5) % 3)


def test_scales_grow_where_the_weights_have_outgrown_them():
    """All the way through, also that of a mean; the input's stays."""
    layers = [
        {"type": "conv2d", "out_channels": 6, "kernel_size": 3, "activation": "relu"},
        {"type": "depthwise_conv2d", "kernel_size": 3}, {"type": "global_avg_pool"},
        {"type": "linear", "out_features": 7}, {"type": "linear", "out_features": 3},
    ]  # fmt: skip
    fine, _, _ = pair(layers)
    tight = {name: [float(np.float32(s / 1e9)), z] for name, (s, z) in fine.int8["quants"].items()}
    tight["input"] = fine.int8["quants"]["input"]
    one, other, x = pair(layers, quants=tight)
    before = other.quants()
    same_step(one, other, x[:5], np.arange(5) % 3)
    grown = [t for t, q in other.quants().items() if q.scale > before[t].scale]
    assert len(grown) >= 4


@pytest.mark.parametrize("value", [3e3, 1e6, -1e9])
def test_a_bias_too_large_for_its_sum_makes_weights_coarser(value):
    one, other, x = pair(change={"layer_5.bias": value})
    y = np.arange(5) % 3
    want, got = one.forward(x[:5]), other.forward(x[:5])
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    assert np.isfinite(other.backward(other.criterion(got["output"], y), got)).all()


def test_a_channel_without_weights_keeps_its_bias():
    layers = [{"type": "flatten"}, {"type": "linear", "out_features": 4}, {"type": "linear", "out_features": 3}]
    one, other, x = pair(layers, (3, 4, 5))
    for trainer in (one, other):
        w = one.array("layer_1.weight").copy()
        w[2] = 0
        trainer.write(trainer.plan, "layer_1.weight", w)
    assert not one.array("layer_1.weight")[2].any()
    same_step(one, other, x[:5], np.arange(5) % 3)


@pytest.mark.parametrize("name", sorted(set(IDS) - {"none", "relu", "relu6"}))
def test_tables_of_activations_are_numpys(name):
    layers = [{"type": "conv2d", "out_channels": 3, "kernel_size": 1, "activation": name}, {"type": "flatten"},
              {"type": "linear", "out_features": 2}]  # fmt: skip
    one, other, x = pair(layers, (1, 6, 7))
    same_step(one, other, x[:5], np.arange(5) % 2)


@pytest.mark.parametrize("layer", [{"type": "layernorm"}, {"type": "embed_projection", "embed_dim": 8}])
def test_what_has_no_integers_on_a_card_is_refused(layer):
    with pytest.raises(UserError, match=f"{layer['type']}.* does not train in int8 on a card.\n.*--device cpu"):
        pair([layer, {"type": "flatten"}, {"type": "linear", "out_features": 3}])


def test_on_a_card_a_float_run_is_tuned_and_the_file_has_its_integers(tmp_path, monkeypatch, capsys):
    """The whole command, resumed once; what the card says of the test set is what the file says."""
    layers = [
        {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "bias": False},
        {"type": "batchnorm", "activation": "relu"}, {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
        {"type": "flatten"}, {"type": "linear", "out_features": 10},
    ]  # fmt: skip
    spec = net(layers, (1, 8, 8), optimizer={"type": "sgd", "momentum": 0.9}, learning_rate=0.05, batch_size=32)
    (tmp_path / "net.json").write_text(json.dumps(spec.resolved))
    common = [str(tmp_path / "net.json"), "--data", "digits", "--quiet", "--no-report"]
    assert edge_train([*common, "--epochs", "3", "--out", str(tmp_path / "float")]) == 0
    FakeCuda().install(monkeypatch)
    whole = ["--from", str(tmp_path / "float"), "--qat", "--device", "cuda", "--schedule", "constant"]
    for epochs, out in (("1", "a"), ("2", "b")):
        assert edge_train([*common, *whole, "--epochs", epochs, "--out", str(tmp_path / out)]) == 0
    again = ["--resume", str(tmp_path / "a"), "--epochs", "2", "--quiet", "--no-report", "--device", "cuda"]
    assert edge_train(again) == 0
    a, b = (checkpoint.load(tmp_path / k / "last.npz") for k in "ab")
    assert a.meta["int8"]["quants"] == b.meta["int8"]["quants"]
    for name in (n for n in b.arrays if n.startswith("qat/")):
        np.testing.assert_array_equal(a.arrays[name], b.arrays[name])
    assert edge_export([str(tmp_path / "b"), "-o", str(tmp_path / "b.bin"), "--int8"]) == 0
    assert "as trained" in capsys.readouterr().out
    saved, test = checkpoint.load(tmp_path / "b"), read_digits(tuple("0123456789")).test
    mean, std = (tuple(saved.meta["data"][k]) for k in ("mean", "std"))
    x, start = np.ascontiguousarray(test.x[:60]), Start(saved, saved.meta["int8"]["quants"])
    trainer = DeviceQatTrainer(ShimDevice(), saved.blueprint, start, x, batch_size=60, mean=mean, std=std)
    trainer.load_arrays(saved.arrays, saved.where)
    with InferenceEngine(tmp_path / "b.bin") as engine:
        frames = ((x - np.float32(mean)) / np.float32(std)).astype(np.float32)
        np.testing.assert_array_equal(engine.predict(frames), trainer.infer(x))
    assert trainer.evaluate(x, test.y[:60]).accuracy > 0.7


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_without_spills(arch):
    window = {"KH": 3, "KW": 3, "SH": 1, "SW": 1, "PT": 1, "PL": 1, "COUNT_PAD": 0}
    defines = {"int8_weights.cu": [{"ACT": 2}], "int8_add.cu": [{"ACT": 1}], "int8_pools.cu": [window, {}],
               "int8_activation.cu": [{"ACT": 4}, {"ACT": 9}]}  # fmt: skip
    for path in sorted(FOLDER.glob("int8_*.cu")):
        for macros in defines.get(path.name, [{}]):
            _, log = nvrtc.compile(path.name, arch, macros)
            found = nvrtc.resources(log)
            assert found
            for name, used in found.items():
                assert used.shared <= 48 * 1024 and (used.spills == 0 or arch not in (50, 75)), f"{name}: {used}"
