"""ONNX models in QDQ form become .bin files of the same whole numbers, within one step of ONNX Runtime."""

import numpy as np
import pytest
from onnx_nets import model, onnx
from values import floats

from litenet.exporter import cli
from litenet.exporter import imported_int8 as imported
from litenet.pyruntime import InferenceEngine

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
IMAGE = (1, 3, 6, 8)


def steps(*shape):
    """Whole weights."""
    return np.clip(np.rint(floats(*shape) * 60), -127, 127).astype(np.int8)


class Net:
    """Nodes in QDQ form; `round` puts a QuantizeLinear and a DequantizeLinear behind the last one."""

    def __init__(self, kind):
        self.kind, self.nodes, self.constants = kind, [], {}

    def node(self, op, inputs, attrs=None):
        self.nodes.append((op, inputs, attrs or {}))
        return f"n{len(self.nodes) - 1}"

    def number(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def round(self, x, scale, zero):
        q = f"{self.number(np.float32(scale))} {self.number(self.kind(zero))}"
        return self.node("DequantizeLinear", f"{self.node('QuantizeLinear', f'{x} {q}')} {q}")

    def whole(self, steps, scale, axis=0):
        scale = np.asarray(scale, np.float32)
        zero = self.number(np.zeros(scale.shape, steps.dtype))
        return self.node("DequantizeLinear", f"{self.number(steps)} {self.number(scale)} {zero}",
                         {"axis": axis} if scale.ndim else {})  # fmt: skip

    def save(self, path):
        onnx.save(model(self.nodes, IMAGE, self.constants), path)


def classifier(kind, per_channel, softmax=True):
    n, mid = Net(kind), 128 if kind is np.uint8 else 0
    scale = np.array([0.01, 0.004, 0.02, 0.01]) if per_channel else 0.01
    x = n.round("x", 0.03, 5 + mid)
    bias = n.whole(np.array([40, -300, 2000, 1], np.int32), np.float32(0.03) * np.float32(scale))
    y = n.node("Conv", f"{x} {n.whole(steps(4, 3, 3, 3), scale)} {bias}", {"pads": [1, 1, 1, 1]})
    y = n.round(n.node("Relu", y), 0.05, mid - 128)
    z = n.node("Conv", f"{y} {n.whole(steps(4, 1, 3, 3), scale)}", {"pads": [1, 1, 1, 1], "group": 4})
    y = n.round(n.node("Add", f"{y} {n.round(z, 0.04, mid - 3)}"), 0.06, mid - 20)
    y = n.round(n.node("MaxPool", y, {"kernel_shape": [2, 2], "strides": [2, 2]}), 0.06, mid - 20)
    y = n.node("Flatten", y)
    y = n.node("Gemm", f"{y} {n.whole(steps(5, 48), 0.008)}", {"transB": 1})
    y = n.round(y, 0.2, mid + 10)
    if softmax:
        n.node("Softmax", y, {"axis": -1})
    return n


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("softmax", [False, True])
def test_a_qdq_model_gives_what_onnx_runtime_gives(kind, per_channel, softmax, tmp_path):
    classifier(kind, per_channel, softmax).save(tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert {layer.dtype for layer in engine.layers} == {"int8"}
        assert engine.metadata["parity"]["against"] == "ONNX Runtime"
        assert engine.metadata["parity"]["steps"] <= imported.STEP * (0.2 * 64 + 1 if softmax else 1)
        assert engine.metadata["parity"]["equal"] >= 0.8
        layers = engine.metadata["parity"]["layers"]
        assert layers["outputs"] >= 5 and layers["steps"] <= 1 and layers["unequal"] < 0.03 * layers["values"]
        engine.selftest()


def test_what_the_source_calculates_in_floats_stays_float(tmp_path, capsys, monkeypatch):
    n = Net(np.int8)
    x = n.round("x", 0.03, 5)
    y = n.node("Conv", f"{x} {n.whole(steps(4, 3, 3, 3), 0.01)}")
    y = n.node("Mul", f"{n.round(y, 0.05, 0)} {n.number(np.float32(3))}")
    n.node("Exp", y)
    n.save(tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    assert "in float32: 2 operators, float in the source" in capsys.readouterr().out
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert [layer.dtype for layer in engine.layers] == ["int8", "float32", "float32", "float32"]
        engine.selftest()
    monkeypatch.setattr(imported.imported_layers, "NEAR", 1e-12)  # a last digit
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "far.bin")]) == 1
    assert "an output in floats differs from that of ONNX Runtime by" in capsys.readouterr().err
    assert not (tmp_path / "far.bin").exists()


def answers(path, values):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": v[None].transpose(0, 3, 1, 2)})[0] for v in values])


def test_a_value_that_is_also_read_as_it_is_is_rounded_apart(tmp_path):
    n = Net(np.uint8)
    x = n.round("x", 0.03, 120)
    real = n.node("Mul", f"{x} {n.number(np.float32(0.37))}")
    whole = n.node("Relu", n.round(real, 0.1, 128))  # a tenth: the products themselves have other digits
    n.node("Sub", f"{real} {n.round(whole, 0.1, 0)}")
    n.save(tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    values = np.random.default_rng(3).normal(0, 1, (4, 6, 8, 3)).astype(np.float32)
    with InferenceEngine(tmp_path / "net.bin") as engine:
        ours = np.stack([engine.predict(v) for v in values]).transpose(0, 3, 1, 2)
        assert [layer.dtype for layer in engine.layers].count("int8") >= 1
        engine.selftest()
    assert np.abs(ours - answers(tmp_path / "net.onnx", values)).max() < 1e-5


def test_an_output_in_floats_that_is_also_rounded_stays_in_floats(tmp_path):
    n = Net(np.int8)
    real = n.node("Mul", f"{n.round('x', 0.03, 5)} {n.number(np.float32(0.37))}")
    whole = n.node("Relu", n.round(real, 0.2, 0))
    end = n.round(whole, 0.2, 0)
    made = model(n.nodes, IMAGE, n.constants, (real, end))
    onnx.save(made, tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    values = np.random.default_rng(3).normal(0, 1, (4, 6, 8, 3)).astype(np.float32)
    with InferenceEngine(tmp_path / "net.bin") as engine:
        ours = np.stack([engine.predict(v)[0] for v in values]).transpose(0, 3, 1, 2)
    assert np.abs(ours - answers(tmp_path / "net.onnx", values)).max() < 1e-5


def test_float_weights_read_the_input_rounded(tmp_path):
    n = Net(np.int8)
    y = n.node("Conv", f"{n.round('x', 0.03, 5)} {n.number(floats(4, 3, 3, 3))}")
    n.round(y, 0.1, 0)
    n.save(tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    values = np.random.default_rng(3).normal(0, 4, (4, 6, 8, 3)).astype(np.float32)  # beyond the ends of int8
    with InferenceEngine(tmp_path / "net.bin") as engine:
        ours = np.stack([engine.predict(v) for v in values]).transpose(0, 3, 1, 2)
        assert engine.metadata["parity"]["layers"]["outputs"] == 1
    assert np.abs(ours - answers(tmp_path / "net.onnx", values)).max() < 0.101


def test_quantised_models_are_not_calibrated_again(tmp_path, capsys):
    classifier(np.int8, False).save(tmp_path / "net.onnx")
    for more in (["--fp16"], ["--int8", "--calibrate", "mnist"]):
        assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin"), *more]) == 1
        assert "is a quantised (int8) model already" in capsys.readouterr().err


def test_outputs_far_from_the_source_are_refused(tmp_path, capsys, monkeypatch):
    classifier(np.int8, True, False).save(tmp_path / "net.onnx")
    monkeypatch.setattr(imported.lowering, "_held", lambda rows, bias, scale, zero: (rows, bias, scale))
    monkeypatch.setattr(imported.imported_layers, "layers", lambda net, foreign, q: None)
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "far.bin")]) == 1
    assert "steps of int8 (allowed 1); nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "far.bin").exists()
