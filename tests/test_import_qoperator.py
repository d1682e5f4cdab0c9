"""ONNX models of operators that calculate in whole numbers (QLinearConv and its kin) become .bin files of the same
whole numbers: operator by operator within one step of ONNX Runtime."""

import numpy as np
import pytest
from onnx_nets import model, onnx
from test_import_models import model as real_model
from test_import_qdq import IMAGE, steps

from litenet.exporter import cli
from litenet.pyruntime import InferenceEngine

runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
MICROSOFT = {"domain": "com.microsoft"}


class Net:
    """Nodes in QOperator form. A value is (name, scale, zero point)."""

    def __init__(self, kind, weights=np.int8):
        self.kind, self.weights, self.nodes, self.constants = kind, weights, [], {}
        self.mid = 128 if kind is np.uint8 else 0

    def number(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def node(self, op, inputs, attrs=None):
        self.nodes.append((op, inputs, attrs or {}))
        return f"n{len(self.nodes) - 1}"

    def three(self, value):
        name, scale, zero = value
        return f"{name} {self.number(np.float32(scale))} {self.number(self.kind(zero + self.mid))}"

    def two(self, scale, zero):
        return f"{self.number(np.float32(scale))} {self.number(self.kind(zero + self.mid))}"

    def enter(self, scale, zero):
        return self.node("QuantizeLinear", f"x {self.two(scale, zero)}"), scale, zero

    def whole(self, values, scale, kind=None):
        """Weights with their scales and zero points."""
        kind = kind or self.weights
        shift = 128 if kind is np.uint8 else 0
        scale = np.float32(scale)
        zero = np.full(scale.shape, shift, kind)
        values = (values.astype(int) + shift).astype(kind)
        return f"{self.number(values)} {self.number(scale)} {self.number(zero)}"

    def add(self, op, inputs, scale, zero, attrs=None):
        return self.node(op, f"{inputs} {self.two(scale, zero)}", attrs), scale, zero

    def conv(self, x, values, scale, y, bias=None, **attrs):
        end = f"{self.three(x)} {self.whole(values, scale)} {self.two(*y)}"
        more = "" if bias is None else f" {self.number(bias)}"
        return self.node("QLinearConv", end + more, attrs), *y

    def save(self, path, last):
        self.node("DequantizeLinear", self.three(last))
        made = model(self.nodes, IMAGE, self.constants)
        made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        onnx.save(made, path)


def everything(kind, weights=np.int8, per_channel=True):
    """Each operator that is taken."""
    n = Net(kind, weights)
    scale = [0.01, 0.004, 0.02, 0.01] if per_channel else 0.01
    x = n.enter(0.03, 5)
    bias = np.array([40, -300, 2000, 1], np.int32)
    a = n.conv(x, steps(4, 3, 3, 3), scale, (0.05, -128), bias, pads=[1, 1, 1, 1])
    b = n.conv(a, steps(4, 1, 3, 3), scale, (0.04, -3), pads=[1, 1, 1, 1], group=4)
    c = n.add("QLinearAdd", f"{n.three(a)} {n.three(b)}", 0.06, -20, MICROSOFT)
    c = (n.node("MaxPool", c[0], {"kernel_shape": [2, 2], "strides": [2, 2]}), *c[1:])
    d = n.add("QLinearSigmoid", n.three(c), 1 / 256, -128, MICROSOFT)
    e = n.add("QLinearMul", f"{n.three(c)} {n.three(d)}", 0.05, -10, MICROSOFT)
    f = n.add("QLinearLeakyRelu", n.three(e), 0.05, -30, MICROSOFT | {"alpha": 0.2})
    g = (n.node("QLinearConcat", f"{n.two(0.06, -25)} {n.three(c)} {n.three(f)}", MICROSOFT | {"axis": 1}), 0.06, -25)
    h = n.add("QLinearGlobalAveragePool", n.three(g), 0.03, -100, MICROSOFT | {"channels_last": 0})
    i = n.add("QLinearAveragePool", n.three(g), 0.06, -25, MICROSOFT | {"kernel_shape": [3, 4]})
    j = n.add("QLinearAdd", f"{n.three(h)} {n.three(i)}", 0.08, -60, MICROSOFT)
    k = (n.node("Flatten", j[0]), *j[1:])
    weight = n.whole(steps(8, 6), 0.01)
    m = n.add("QLinearMatMul", f"{n.three(k)} {weight}", 0.09, 4)
    m = n.add("QLinearAdd", f"{n.three(m)} {n.whole(steps(6), 0.02, kind)}", 0.1, 3, MICROSOFT)
    turned = n.whole(steps(5, 6), np.full(5, 0.008) if per_channel else 0.008)
    end = f"{n.three(m)} {turned} {n.number(np.array([9, -40, 300, 0, 7], np.int32))} {n.two(0.1, 10)}"
    return n, (n.node("QGemm", end, MICROSOFT | {"transB": 1}), 0.1, 10)


@pytest.mark.parametrize(
    ("kind", "weights"), [(np.int8, np.int8), (np.uint8, np.int8), (np.uint8, np.uint8)], ids=["s8s8", "u8s8", "u8u8"]
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_every_operator_gives_what_onnx_runtime_gives(kind, weights, per_channel, tmp_path, capsys):
    n, last = everything(kind, weights, per_channel)
    n.save(tmp_path / "net.onnx", last)
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0, capsys.readouterr().err
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert {layer.dtype for layer in engine.layers} == {"int8"}
        parity = engine.metadata["parity"]
        assert parity["against"] == "ONNX Runtime" and parity["layers"]["outputs"] >= 13
        assert parity["layers"]["steps"] <= 1 and parity["layers"]["unequal"] < 0.02 * parity["layers"]["values"]
        assert parity["steps"] <= 3.01 and parity["equal"] > 0.6
        engine.selftest()


class Reader:
    def __init__(self, name, rows):
        self.rows = iter([{name: row[None]} for row in rows])

    def get_next(self):
        return next(self.rows, None)


def quantised(source, name, rows, out, **more):
    """source by onnxruntime's own quantiser in QOperator form."""
    tools = pytest.importorskip("onnxruntime.quantization")
    tools.quantize_static(
        str(source), str(out), Reader(name, rows), quant_format=tools.QuantFormat.QOperator, **more
    )  # fmt: skip


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_zoo_model_quantised_by_onnx_runtime(per_channel, tmp_path, capsys):
    source = real_model("onnx_mnist-8.onnx")
    tools = pytest.importorskip("onnxruntime.quantization")
    rows = np.random.default_rng(0).integers(0, 256, (16, 1, 28, 28)).astype(np.float32)
    quantised(source, "Input3", rows, tmp_path / "net.onnx", per_channel=per_channel,
              weight_type=tools.QuantType.QInt8, activation_type=tools.QuantType.QUInt8)  # fmt: skip
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0, capsys.readouterr().err
    with InferenceEngine(tmp_path / "net.bin") as engine:
        floats = [layer.op for layer in engine.layers if layer.dtype != "int8"]
        assert floats == ["dequantize", "linear"]  # whose weights are no constant of the model, and got a zero point
        parity = engine.metadata["parity"]
        assert parity["layers"]["outputs"] >= 5 and parity["layers"]["steps"] <= 1 and parity["steps"] <= 2.01
        engine.selftest()


@pytest.mark.parametrize(("zero", "kinds"), [(90, {"int8"}), (3, {"int8", "float32"})])
def test_weights_with_a_zero_point_are_int8_if_what_is_left_is_and_else_float(zero, kinds, tmp_path):
    n = Net(np.uint8)
    x = n.enter(0.03, 5)
    values = np.random.default_rng(1).integers(0, 200, (4, 3, 3, 3)).astype(np.uint8)
    w = f"{n.number(values)} {n.number(np.float32(0.003))} {n.number(np.uint8(zero))}"
    n.save(tmp_path / "net.onnx", (n.node("QLinearConv", f"{n.three(x)} {w} {n.two(0.1, 0)}"), 0.1, 0))
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    with InferenceEngine(tmp_path / "net.bin") as engine:
        assert {layer.dtype for layer in engine.layers} == kinds
        assert engine.metadata["parity"]["steps"] <= 1.001
        engine.selftest()


@pytest.mark.slow
def test_the_zoos_mobilenet_v2_int8(tmp_path):
    out = tmp_path / "net.bin"
    assert cli.main([str(real_model("onnx_mobilenetv2-12-int8.onnx")), "-o", str(out)]) == 0
    with InferenceEngine(out) as engine:
        parity = engine.metadata["parity"]
        assert {layer.dtype for layer in engine.layers} == {"int8"}
        assert parity["layers"]["outputs"] >= 60 and parity["layers"]["steps"] <= 1
        assert parity["equal"] >= 0.85
        assert out.stat().st_size < 3_655_033 * 1.05


@pytest.mark.slow
def test_ultraface_gives_what_onnx_runtime_gives(tmp_path):
    source = real_model("ultraface_version-RFB-320.onnx")
    shapes = pytest.importorskip("onnxruntime.quantization.shape_inference")
    tools = pytest.importorskip("onnxruntime.quantization")
    shapes.quant_pre_process(str(source), str(tmp_path / "whole.onnx"))
    rows = np.random.default_rng(0).uniform(-1, 1, (8, 3, 240, 320)).astype(np.float32)
    quantised(tmp_path / "whole.onnx", "input", rows, tmp_path / "net.onnx",
              weight_type=tools.QuantType.QInt8, activation_type=tools.QuantType.QUInt8)  # fmt: skip
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin")]) == 0
    with InferenceEngine(tmp_path / "net.bin") as engine:
        parity = engine.metadata["parity"]
        assert [layer.op for layer in engine.layers if layer.dtype != "int8"] == [
            "dequantize", "batchnorm", "batchnorm", "dequantize", "add"
        ]  # a division and a difference  # fmt: skip
        assert parity["layers"]["outputs"] >= 105 and parity["layers"]["unequal"] <= 5
        assert parity["steps"] <= 1.001 and parity["equal"] >= 0.9999


def refused(path, capsys):
    assert cli.main([str(path), "-o", str(path.with_suffix(".bin"))]) == 1
    assert not path.with_suffix(".bin").exists()
    return capsys.readouterr().err


def test_what_cannot_be_the_same_is_refused(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    n = Net(np.int8)
    n.save(path, n.conv(n.enter(0.03, 5), steps(4, 3, 3, 3), 0.01, (1e-5, 0)))
    assert "node 'node1' (QLinearConv of" in refused(path, capsys)

    n = Net(np.int8)
    x = n.enter(0.03, 5)
    n.save(path, n.conv((x[0], 0.04, 5), steps(4, 3, 3, 3), 0.01, (0.1, 0)))
    assert "reads input 0 with another scale or zero point than it was made with" in refused(path, capsys)

    n = Net(np.int8)
    x = n.enter(0.03, 5)
    n.save(path, (n.node("Relu", x[0]), 0.03, 5))
    assert "(Relu of 1 x 3 x 6 x 8): it calculates with whole numbers as if" in refused(path, capsys)

    nodes = [("DynamicQuantizeLinear", "x", {"outputs": 3}), ("ConvInteger", "n0 w n0_2")]
    onnx.save(model(nodes, IMAGE, {"w": steps(4, 3, 3, 3)}), path)
    text = refused(path, capsys)
    assert "the operator DynamicQuantizeLinear is not known here" in text and "fixed scales" in text


def test_an_output_of_whole_numbers_is_refused(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    n = Net(np.int8)
    n.enter(0.03, 5)
    made = model(n.nodes, IMAGE, n.constants)
    made.graph.output[0].type.tensor_type.elem_type = 3
    onnx.save(made, path)
    assert "it is of whole numbers.\n  End the model with a DequantizeLinear." in refused(path, capsys)


def test_a_layer_that_differs_by_more_than_a_step_is_named(tmp_path, capsys, monkeypatch):
    from litenet.exporter.int8 import given

    n, last = everything(np.uint8)
    n.save(tmp_path / "net.onnx", last)
    true = given._held
    monkeypatch.setattr(given, "_held", lambda rows, bias, scale, zero: true(rows, bias + 2000, scale, zero))
    assert "the output of 'node" in refused(tmp_path / "net.onnx", capsys)
