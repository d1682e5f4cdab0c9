"""Quantised models of others become int8 .bin files of the same whole numbers, within one step of their own runtime; or
are refused by one sentence."""

from dataclasses import replace

import numpy as np
import pytest
import tflite_nets
from test_import_models import cifar10, mnist, model
from values import floats

from litenet.exporter import cli, imported_layers
from litenet.exporter import imported_int8 as imported
from litenet.exporter.format import Preprocessing
from litenet.exporter.importers import tflite
from litenet.exporter.int8 import given as lowering
from litenet.pyruntime import InferenceEngine
from litenet.trainer.int8 import net as nets

REAL = {  # file: (operators left, steps on random inputs, share of equal outputs)
    "mlperf_tiny_resnet8_cifar10_int8.tflite": (15, 1, 0.98),
    "mlperf_tiny_vww96_mobilenetv1_025_int8.tflite": (30, 1, 0.98),
    "mlperf_tiny_kws_dscnn_int8.tflite": (12, 1, 0.98),
    "mlperf_tiny_ad01_autoencoder_int8.tflite": (10, 1, 0.98),
    "tflm_hello_world_int8.tflite": (3, 1, 0.98),
    "tinymaix_mnist_valid_int8.tflite": (6, 1, 0.98),
    "tinymaix_cifar10_int8.tflite": (5, 1, 0.98),
    "tinymaix_mobilenetv1_025_96_int8.tflite": (32, 6, 0.98),  # LiteRT's two sets of kernels are 6 steps apart
}


LAYERS = dict(zip(REAL, (14, 29, 11, 10, 3, 6, 5, 30), strict=True))  # outputs that LiteRT has too


@pytest.fixture
def litert():
    return pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")


def error_of(capsys, *arguments):
    assert cli.main([*map(str, arguments)]) == 1
    return capsys.readouterr().err


# ---------------------------------------------------------------- real models


@pytest.mark.parametrize("name", REAL)
def test_a_real_model_gives_what_its_runtime_gives(name, litert, tmp_path):
    operators, steps, same = REAL[name]
    out = tmp_path / "net.bin"
    assert cli.main([str(model(name)), "-o", str(out)]) == 0
    with InferenceEngine(out) as engine:
        parity = engine.metadata["parity"]
        assert len(engine.layers) <= operators and engine.input_dtype == "int8"
        assert parity["steps"] <= steps * imported.STEP and parity["equal"] >= same
        assert parity["layers"]["steps"] <= 1 and parity["layers"]["outputs"] >= LAYERS[name]
        engine.selftest()


def layer_by_layer(name, values, plain):
    """What each operator makes of LiteRT's own numbers for inputs as the source takes them; plain: the numbers of its
    interpreter's own kernels, not of XNNPACK's."""
    source = tflite.read(model(name))
    given = replace(source.given, inside=lambda x: tflite.inside(model(name), source.input.shape, x, plain))
    net = lowering.net(source, given, Preprocessing())
    q = nets.enter(net, np.asarray(values, np.float32).reshape(-1, *net.graph.input_shape))
    return imported_layers.layers(net, replace(source, given=given), q)


@pytest.mark.parametrize("plain", [False, True], ids=["xnnpack", "interpreter"])
@pytest.mark.parametrize("name", REAL)
def test_every_operator_of_a_real_model_is_within_one_step_of_both_kinds_of_kernels(name, plain, litert):
    source = tflite.read(model(name))
    q = source.given.quants[source.graph.input]
    values = np.random.default_rng(5).uniform(*q.range, (3, *source.graph.input_shape))
    found = layer_by_layer(name, values, plain)
    assert found.steps <= 1 and found.checked >= LAYERS[name], found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count", "divisor"), [
    ("mlperf_tiny_resnet8_cifar10_int8.tflite", 500, 1), ("tinymaix_cifar10_int8.tflite", 1000, 255),
    ("tinymaix_mnist_valid_int8.tflite", 2000, 255),
])  # fmt: skip
def test_every_operator_is_within_one_step_on_real_pictures(name, count, divisor, litert):
    x = mnist().x if "mnist" in name else cifar10()[0]
    for plain in (False, True):
        found = layer_by_layer(name, x[:count].astype(np.float32) / np.float32(divisor), plain)
        assert found.steps <= 1 and found.checked >= LAYERS[name], found


def answers(name, values):
    """Of ours and of LiteRT (XNNPACK) for inputs as the source takes them: (int8 before the softmax, scores) each."""
    source = tflite.read(model(name))
    net = lowering.net(source, source.given, Preprocessing())
    last, end = next(n.inputs[0] for n in net.graph.nodes if n.op == "softmax"), net.graph.outputs[0]
    found = []
    for part in np.split(values.reshape(-1, *net.graph.input_shape), range(500, len(values), 500)):
        q = nets.enter(net, part)
        tensors = nets.run(net, q)
        inside, scores, _ = source.given.inside(source.input.to_source(nets.real(net, net.graph.input, q)))
        ours = tensors[last], nets.real(net, end, tensors[end])
        found.append([a.reshape(len(q), -1) for a in (*ours, inside[source.given.sources[last].name], scores[0])])
    before, after, its_before, its_after = (np.concatenate(a) for a in zip(*found, strict=True))
    return (before, after), (its_before, its_after)


def apart(ours, theirs):
    """(int8 before the softmax that differ; of each sample the largest difference of scores, in steps)"""
    return int((ours[0] != theirs[0]).sum()), np.rint(256 * np.abs(ours[1] - theirs[1])).max(1)


RESNET, CIFAR, MNIST = (f"{name}_int8.tflite" for name in (
    "mlperf_tiny_resnet8_cifar10", "tinymaix_cifar10", "tinymaix_mnist_valid"))  # fmt: skip


def test_the_device_gives_these_answers(litert, tmp_path):
    x = cifar10()[0][:20].astype(np.float32)
    assert cli.main([str(model(RESNET)), "-o", str(tmp_path / "net.bin")]) == 0
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert np.array_equal(engine.predict(x), answers(RESNET, x)[0][1])


def test_mnist_answers_are_those_of_the_source(litert):
    data = mnist()
    ours, theirs = answers(MNIST, data.x[:2000].astype(np.float32) / np.float32(255))
    assert (ours[1].argmax(1) == theirs[1].argmax(1)).all()
    different, steps = apart(ours, theirs)
    assert different <= 3 and steps.max() <= 1


def test_cifar10_answers_are_those_of_the_source(litert):
    x, y = cifar10()
    ours, theirs = answers(RESNET, x[:600].astype(np.float32))
    different, steps = apart(ours, theirs)
    assert different == 0 and steps.max() <= 1
    assert (ours[1].argmax(1) == theirs[1].argmax(1)).all()
    assert 0.83 < (ours[1].argmax(1) == y[:600]).mean() < 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("name", "divisor", "right", "different", "beyond"), [
    (RESNET, 1, 8697, 0, 0), (CIFAR, 255, 7458, 3, 2), (MNIST, 255, 9646, 0, 0),
])  # fmt: skip
def test_scores_of_a_whole_test_set_are_those_of_the_source(name, divisor, right, different, beyond, litert):
    """different: int8 before the softmax, of 100,000; beyond: pictures whose scores differ by more than one step."""
    x, y = (mnist().x, mnist().y) if name == MNIST else cifar10()
    ours, theirs = answers(name, x.astype(np.float32) / np.float32(divisor))
    assert (theirs[1].argmax(1) == y).sum() == right == (ours[1].argmax(1) == y).sum()
    found, steps = apart(ours, theirs)
    assert found <= different and (steps > 1).sum() <= beyond


def test_a_picture_goes_in_as_whole_numbers(litert, tmp_path):
    out = tmp_path / "net.bin"
    name = model("mlperf_tiny_vww96_mobilenetv1_025_int8.tflite")
    assert cli.main([str(name), "-o", str(out), "--input-range", "0,1"]) == 0
    with InferenceEngine(out) as engine:
        frame = np.arange(96 * 96 * 3, dtype=np.uint8).reshape(96, 96, 3)
        assert np.array_equal(engine.prepare(frame, "rgb"), (frame.astype(int) - 128).astype(np.int8))
        engine.selftest()


# ---------------------------------------------------------------- small ones


def steps(*shape):
    """Whole weights."""
    return np.clip(np.rint(floats(*shape) * 60), -127, 127).astype(np.int8)


def net(arrays=(), quants=()):
    """A conv, a pool and a sum, and a dense layer behind; of other constants and scales by name."""
    q = {"x": (0.02, 3), "w": ([0.01, 0.02, 0.005, 0.01], 0), "b": ([2e-4, 4e-4, 1e-4, 2e-4], 0), "n0": (0.05, -128),
         "n1": (0.05, -128), "n2": (0.07, 5), "n3": (0.07, 5), "v": (0.01, 0), "c": (7e-4, 0),
         "n4": (0.11, 7)}  # fmt: skip
    same = {0: np.int8(0), 1: np.int32(1), 2: np.int32(1), 3: np.int8(1)}
    window = {0: np.int8(1), **dict.fromkeys((1, 2, 3, 4), np.int32(2))}
    nodes = [
        ("CONV_2D", "x w b", same | {"shape": (1, 4, 6, 4)}),
        ("MAX_POOL_2D", "n0", window | {"shape": (1, 2, 3, 4)}),
        ("ADD", "n1 n1", {"shape": (1, 2, 3, 4)}), ("RESHAPE", "n2 s", {"shape": (1, 24)}),
        ("FULLY_CONNECTED", "n3 v c", {"shape": (1, 5)}),
    ]  # fmt: skip
    constants = {
        "w": steps(4, 3, 3, 3), "b": np.array([40, -300, 7000, 1], np.int32), "v": steps(5, 24),
        "c": np.array([100, -2000, 3, 0, 50], np.int32), "s": np.array([1, 24], np.int32),
    }  # fmt: skip
    constants, q = constants | dict(arrays), q | dict(quants)
    return tflite_nets.model(nodes, (1, 4, 6, 3), constants, kind=tflite_nets.INT8, quants=q)


def test_whole_numbers_are_the_files_own(litert, tmp_path):
    (tmp_path / "net.tflite").write_bytes(net())
    assert cli.main([str(tmp_path / "net.tflite"), "-o", str(tmp_path / "net.bin")]) == 0
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert engine.metadata["parity"]["steps"] <= imported.STEP
        assert engine.metadata["parity"]["equal"] > 0.98
        q = np.random.default_rng(1).integers(-128, 128, engine.input_shape).astype(np.int8)
        real = (np.float32(0.02) * (q.astype(np.float32) - 3))[None]
        want = tflite.read(tmp_path / "net.tflite").run(real)[0][0]
        assert np.abs(engine.predict(q) - want.reshape(-1)).max() <= 0.111
        engine.selftest()


def test_a_channel_that_its_weights_hardly_move_keeps_its_value_to_a_millionth(litert, tmp_path):
    rows, bias = np.array([[100, -90], [5, 9], [3, 3]]), np.array([1 << 29, 7, 1 << 21])
    scale = np.array([1e-9, 0.1, 0.1])
    got = lowering._constant(rows, bias, scale, 1.0)
    assert got[0].tolist() == [[0, 0], [5, 9], [3, 3]] and (got[1][1:] == bias[1:]).all()
    assert abs(got[1][0]) <= 1 << 20 and abs(got[1][0] * got[2][0] / (bias[0] * scale[0]) - 1) < 1e-6

    rows = np.r_[[[1, -2] * 12], steps(4, 24)].astype(np.int8)
    arrays = {"v": rows, "c": np.array([1 << 29, -2000, 3, 0, 50], np.int32)}
    quants = {"v": ([1.2e-7, 0.01, 0.01, 0.01, 0.01], 0), "c": ([0.07 * 1.2e-7, *[7e-4] * 4], 0)}
    (tmp_path / "net.tflite").write_bytes(net(arrays, quants))
    assert cli.main([str(tmp_path / "net.tflite"), "-o", str(tmp_path / "net.bin")]) == 0
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert engine.metadata["parity"]["layers"]["steps"] <= 1
        assert engine.layers[-1].weights_bytes > 0 and engine.predict(np.zeros(engine.input_shape))[0] > 4


REFUSED = {
    "weights with a zero point": ({}, {"w": (0.01, 5)}, "node 'n0' (CONV_2D of 1 x 4 x 6 x 3, 4 x 3 x 3 x 3, 4): its "
                                  "weights are not symmetric int8"),
    "a weight of -128": ({"v": np.full((5, 24), -128, np.int8)}, {}, "a weight of it is -128"),
    "a multiplier above 1": ({}, {"n4": (1e-4, 7)}, "node 'n4' (FULLY_CONNECTED"),
    "no scale": ({}, {"n2": None}, "its int8 values have 0 scales"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_the_same_is_refused(name, tmp_path, capsys):
    arrays, quants, words = REFUSED[name]
    (tmp_path / "net.tflite").write_bytes(net(arrays, quants))
    text = error_of(capsys, tmp_path / "net.tflite", "-o", tmp_path / "net.bin")
    assert words in text and "Quantise it again" in text
    assert [p.name for p in tmp_path.iterdir()] == ["net.tflite"]


def test_uint8_and_floats_at_the_ends_are_the_same_net(litert, tmp_path):
    same = {0: np.int8(0), 1: np.int32(1), 2: np.int32(1), 3: np.int8(1), "shape": (1, 4, 6, 4)}
    q = {"n0": (0.02, 3), "w": (0.01, 0), "b": (2e-4, 0), "n1": (0.05, -128), "n2": (0.08, -100)}
    constants = {"w": steps(4, 3, 3, 3), "b": np.array([40, -300, 700, 1], np.int32)}
    found = []
    for kind, zero in ((tflite_nets.UINT8, 131), (tflite_nets.FLOAT32, None)):
        ends = {"x": (0.02, zero)} if zero else {}
        nodes = [
            ("QUANTIZE", "x", {"shape": (1, 4, 6, 3)}), ("CONV_2D", "n0 w b", dict(same)),
            ("QUANTIZE", "n1", {"shape": (1, 4, 6, 4)}), ("DEQUANTIZE", "n2", {"shape": (1, 4, 6, 4)}),
        ]  # fmt: skip
        kinds = {"x": kind, "n3": tflite_nets.FLOAT32}
        data = tflite_nets.model(nodes, (1, 4, 6, 3), constants, quants=q | ends, kinds=kinds)
        (tmp_path / "net.tflite").write_bytes(data)
        assert cli.main([str(tmp_path / "net.tflite"), "-o", str(tmp_path / "net.bin")]) == 0
        with InferenceEngine(tmp_path / "net.bin") as engine:
            assert [layer.op for layer in engine.layers] == ["conv2d", "activation"]
            assert engine.input_dtype == "int8"
            assert engine.metadata["parity"]["steps"] <= imported.STEP
            found.append(engine.predict(np.full(engine.input_shape, 0.5, np.float32)))
    assert np.array_equal(*found)


def test_given_inputs_decide(litert, tmp_path, capsys):
    (tmp_path / "net.tflite").write_bytes(net())
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 4, 6, 3), np.float32))
    given = ["--check", str(tmp_path / "x.npz")]
    assert cli.main([str(tmp_path / "net.tflite"), "-o", str(tmp_path / "net.bin"), *given]) == 0
    assert "on 3 inputs of" in capsys.readouterr().out
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert engine.metadata["parity"]["samples"] == 3
