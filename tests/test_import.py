"""Importing: what the options say reaches the file, what cannot be taken is named, and nothing is half written."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed (extra: import)")

import onnx_zoo  # noqa: E402
import tflite_nets  # noqa: E402
from closeness import assert_close  # noqa: E402
from onnx_nets import floats, ints, model  # noqa: E402

from litenet.exporter import cli, pack  # noqa: E402
from litenet.exporter.importers import onnx_nodes, onnx_qoperator, reference, tflite_nodes  # noqa: E402
from litenet.pyruntime import InferenceEngine  # noqa: E402
from litenet.pyruntime.cli import main as infer  # noqa: E402
from litenet.trainer.ops import OPS  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
IMAGE = (1, 3, 7, 6)
W = {"w": floats(4, 3, 3, 3), "b": floats(4)}
SMALL = [("Conv", "x w b"), ("Relu", "n0"), ("GlobalAveragePool", "n1"), ("Flatten", "n2")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(made, name="net.onnx"):
    onnx.save(made, name)
    return name


def run(*arguments):
    return cli.main([str(a) for a in arguments])


# ---- nets of the usual kinds


@pytest.mark.parametrize(
    ("name", "made", "count"),
    [
        ("litenet_cifar", lambda: onnx_zoo.litenet_cifar(8, 16), 23),
        ("mobilenet_v2", lambda: onnx_zoo.mobilenet_v2(32, ((1, 16, 1, 1), (6, 24, 2, 2)), 10), 13),
        ("facenet", lambda: onnx_zoo.facenet(32, 8, ((2, 8, 2, 2), (4, 16, 1, 2), (2, 16, 1, 2))), 29),
        ("resnet", lambda: onnx_zoo.resnet(32, (8, 16), 10, depth=1), 10),
        ("resnet, large stem", lambda: onnx_zoo.resnet(64, (8, 16), 10, stem=7), 17),
    ],
)
def test_nets_as_pytorch_exports_them_run_with_few_operators(here, name, made, count):
    save(made())
    assert run("net.onnx", "-o", "net.bin") == 0
    with InferenceEngine("net.bin") as engine:
        assert len(engine.layers) == count
        assert not {"reshape", "transpose", "flatten"} & {layer.op for layer in engine.layers}
        engine.selftest()


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
def test_what_is_imported_is_exported_again_with_the_same_outputs(here, half):
    save(onnx_zoo.mobilenet_v2(32, ((1, 16, 1, 1), (6, 24, 2, 2)), 10))
    assert run("net.onnx", "-o", "net.bin", *["--fp16"] * half) == 0
    assert run("net.bin", "-o", "again.onnx") == 0
    assert run("again.onnx", "-o", "again.bin") == 0
    x = np.random.default_rng(0).standard_normal((32, 32, 3)).astype(np.float32)
    first, second = (InferenceEngine(f"{name}.bin").predict(x) for name in ("net", "again"))
    assert_close(second, first, 1e-5, 1e-5)


# ---- several outputs


def test_several_outputs_keep_their_names_and_their_order(here, capsys):
    nodes = [("Conv", "x w b"), ("Relu", "n0"), ("Sigmoid", "n0"), ("GlobalAveragePool", "n1")]
    save(model(nodes, IMAGE, W, outputs=("n3", "n2", "n1")))
    assert run("net.onnx", "-o", "net.bin", "--input-range", "0,1") == 0
    with InferenceEngine("net.bin") as engine:
        assert list(engine.outputs) == ["n3", "n2", "n1"]
        mean, gate, image = engine.predict(np.ones((7, 6, 3), np.float32))
        assert mean.reshape(-1).shape == (4,) and gate.shape == image.shape == (5, 4, 4)
        assert_close(mean.reshape(-1), image.mean((0, 1)), 1e-6, 1e-6)
        engine.selftest()
    import cv2

    cv2.imwrite("x.png", np.full((9, 9, 3), 99, np.uint8))
    capsys.readouterr()
    assert infer(["net.bin", "x.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["n3", "n2", "n1"]
    assert "(80 values; --json gives all)" in lines[1]
    assert infer(["net.bin", "x.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(o["name"], o["shape"], len(o["values"])) for o in found["outputs"]][1:] == [
        ("n2", [5, 4, 4], 80), ("n1", [5, 4, 4], 80)]  # fmt: skip
    assert infer(["net.bin", "--info"]) == 0
    assert "5 x 4 x 4 (n1)" in capsys.readouterr().out


def test_an_output_that_another_operator_reads_and_one_that_is_there_twice_are_copied(here):
    save(model([("Relu", "x"), ("Sigmoid", "n0"), ("Identity", "n0")], (1, 5), outputs=("n1", "n0", "n2")))
    assert run("net.onnx", "-o", "net.bin") == 0
    a, b, c = InferenceEngine("net.bin").predict(np.arange(-2, 3, dtype=np.float32))
    assert b.tolist() == c.tolist() == [0, 0, 0, 1, 2]
    assert_close(a, 1 / (1 + np.exp(-b)), 1e-6, 1e-6)


def test_a_model_that_hands_its_input_on_is_written(here):
    save(model([("Identity", "x")], (1, 5)))
    assert run("net.onnx", "-o", "net.bin") == 0
    assert InferenceEngine("net.bin").predict(np.ones(5, np.float32)).tolist() == [1] * 5


# ---- what the options say


def test_preprocessing_comes_from_the_options(here):
    save(model(SMALL, IMAGE, W))
    picture = ["--color", "bgr", "--input-range", "0,1", "--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"]
    assert run("net.onnx", "-o", "net.bin", *picture, "--resize", "area", "--fit", "crop") == 0
    with InferenceEngine("net.bin") as engine:
        p = engine.preprocessing
        assert (p.color, p.resize, p.fit) == ("bgr", "area", "crop")
        assert_close(np.array(p.mean), np.array([0.485, 0.456, 0.406]) * 255, 1e-4, 0)
        assert_close(np.array(p.std), np.array([0.229, 0.224, 0.225]) * 255, 1e-4, 0)
        pixels = np.random.default_rng(0).integers(0, 256, (7, 6, 3), np.uint8)
        x = engine.prepare(pixels)
        assert_close(x, ((pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).astype(np.float32), 1e-5, 1e-5)
        engine.selftest()


def test_an_input_from_minus_one_to_one_needs_nothing_more_than_its_range(here):
    save(model(SMALL, IMAGE, W))
    assert run("net.onnx", "-o", "net.bin", "--input-range=-1,1") == 0
    with InferenceEngine("net.bin") as engine:
        ends = engine.prepare(np.stack([np.zeros((7, 6, 3), np.uint8)] * 1)[0]), engine.prepare(np.full((7, 6, 3),
                    255, np.uint8))
        assert_close(np.array([ends[0].max(), ends[1].min()], np.float32), np.array([-1, 1], np.float32), 1e-6, 0)


def test_without_options_the_input_is_no_picture_and_the_answer_is_values(here):
    save(model(SMALL, IMAGE, W))
    assert run("net.onnx", "-o", "net.bin") == 0
    engine = InferenceEngine("net.bin")
    assert engine.preprocessing is None
    assert engine.metadata["answer"] == "values"
    assert engine.metadata["source"] == {
        "format": "ONNX", "sha256": hashlib.sha256((here / "net.onnx").read_bytes()).hexdigest(),
    }  # fmt: skip


def test_labels_make_classes_of_the_outputs(here, capsys):
    save(model(SMALL, IMAGE, W))
    (here / "classes.txt").write_text("ant\nbee\ncat\ndog\n\n", encoding="utf-8")
    assert run("net.onnx", "-o", "net.bin", "--labels", "classes.txt", "--mean", "120", "--std", "60") == 0
    import cv2

    cv2.imwrite("x.png", np.full((9, 9, 3), 99, np.uint8))
    capsys.readouterr()
    assert infer(["net.bin", "x.png", "--top", "4"]) == 0
    assert {line.split()[-3] for line in capsys.readouterr().out.splitlines()} == {"ant", "bee", "cat", "dog"}


def test_given_inputs_are_compared_too(here, capsys):
    save(model(SMALL, IMAGE, W))
    np.savez("inputs.npz", x=floats(3, 3, 7, 6, scale=5))
    assert run("net.onnx", "-o", "net.bin", "--check", "inputs.npz") == 0
    assert "proved on 3 inputs of inputs.npz" in capsys.readouterr().out
    assert InferenceEngine("net.bin").metadata["parity"]["of"] == "3 inputs of inputs.npz"


def test_an_open_shape_is_given_by_an_option(here, capsys):
    save(model(SMALL, ("N", 3, "H", "W"), W))
    assert run("net.onnx", "-o", "net.bin") == 1
    assert "(N, 3, H, W), which is open" in capsys.readouterr().err
    assert run("net.onnx", "-o", "net.bin", "--input-shape", "3,9,8") == 0
    assert InferenceEngine("net.bin").input_shape == (9, 8, 3)
    assert run("net.onnx", "-o", "other.bin", "--input-shape", "4,9,8") == 1
    assert "does not go with" in capsys.readouterr().err


# ---- what is refused


def error_of(capsys, *arguments):
    assert run(*arguments, "-o", "net.bin") == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error and not list(Path().glob("*.bin*"))
    return error


REFUSED = {
    "an operator that is not known": ([("Elu", "x")], IMAGE, {},
                "node 'node0' (Elu of 1 x 3 x 7 x 6): the operator Elu is "
                                      "not known here.\n  Use Relu"),
    "another domain": ([("Magic", "x", {"domain": "com.acme"})], IMAGE, {}, "com.acme.Magic is not known"),
    "a product of two values": ([("MatMul", "x x")], (1, 4, 4), {}, "multiplies two values"),
    "cubic": ([("Resize", "x - s", {"mode": "cubic"})], IMAGE, {"s": np.float32([1, 1, 2, 2])}, "resizes by cubic"),
    "reflection": ([("Pad", "x p", {"mode": "reflect"})], IMAGE, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)},
                "pads by reflect"),
    "backwards": ([("Slice", "x p q a s")], IMAGE, {"p": ints(6), "q": ints(-9), "a": ints(2), "s": ints(-1)},
                "backwards"),
    "three dimensions": ([("MaxPool", "x", {"kernel_shape": [2, 2, 2]})], (1, 3, 4, 4, 4), {}, "image is expected"),
    "a sum that repeats": ([("GlobalAveragePool", "x"), ("Add", "x n0")], IMAGE, {}, "one of them repeated"),
    "calculated scales": ([("DynamicQuantizeLinear", "x", {"outputs": 3}), ("ConvInteger", "n0 w n0_2")], IMAGE,
                  {"w": np.ones((4, 3, 3, 3), np.int8)}, "the operator DynamicQuantizeLinear is not known here"),
    "int16": ([("QuantizeLinear", "x s z")], IMAGE, {"s": np.float32(0.1), "z": np.int16(3)}, "it makes int16"),
    "scales that do not meet": ([("QuantizeLinear", "x s z"), ("DequantizeLinear", "n0 t z"), ("Relu", "n1")], IMAGE,
                {"s": np.float32(0.1), "t": np.float32(0.2), "z": np.int8(3)}, "another scale or zero point"),
    "nothing from the input": ([("Relu", "c")], IMAGE, {"c": floats(2)}, "does not depend on the input"),
    "a batch": ([("Relu", "x")], (4, 3), {}, "holds a batch of 4; 1 is expected"),
    "dilated pool": ([("MaxPool", "x", {"kernel_shape": [2, 2], "dilations": [2, 2]})], IMAGE, {}, "has dilation"),
    "weights that are calculated": ([("Relu", "x"), ("Conv", "x n0")], (1, 3, 3, 3), {},
                "calculated while the net runs"),
    "NaN": ([("Conv", "x w")], IMAGE, {"w": np.full((4, 3, 3, 3), np.nan, np.float32)}, "NaN or infinite"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_named(here, name, capsys):
    nodes, x, constants, words = REFUSED[name]
    save(model(nodes, x, constants))
    assert words in error_of(capsys, "net.onnx")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.onnx"], "nowhere.onnx does not exist"),
        (["nowhere.tflite"], "nowhere.tflite does not exist"),
        (["text.onnx"], "is no ONNX model"),
        (["cut.onnx"], "is no ONNX model"),
        (["text.tflite"], "the mark TFL3 is missing"),
        (["cut.tflite"], "damaged or cut off"),
        (["int8.tflite"], "node 'x' (input): its int8 values have 0 scales"),
        (["net.onnx", "--color", "gray"], "--color gray does not go with an input of 3 channels"),
        (["net.onnx", "--mean", "1,2"], "--mean has 2 values; 1 or 3"),
        (["net.onnx", "--std", "0"], "above 0"),
        (["net.onnx", "--input-range", "1,0"], "first must be below"),
        (["net.onnx", "--labels", "missing.txt"], "cannot be read"),
        (["net.onnx", "--labels", "two.txt"], "has 2 classes, but the model puts out 4"),
        (["net.onnx", "--labels", "empty.txt"], "is empty"),
        (["net.onnx", "--check", "missing.npz"], "does not exist"),
        (["net.onnx", "--check", "text.onnx"], "cannot be read as .npz"),
        (["net.onnx", "--check", "cut.npz"], "cannot be read as .npz"),
        (["net.onnx", "--check", "other.npz"], "inputs of shape (3, 7, 6)"),
        (["row.onnx", "--mean", "1"], "no picture"),
        (["best.npz", "--mean", "1"], "--mean: only for .onnx and .tflite models"),
        (["huge.onnx", "--fp16"], "half precision"),
    ],
)
def test_mistakes_get_one_sentence(here, arguments, words, capsys):
    save(model(SMALL, IMAGE, W))
    save(model([("Relu", "x")], (1, 5)), "row.onnx")
    save(model([("Conv", "x w")], IMAGE, {"w": np.full((4, 3, 3, 3), 1e6, np.float32)}), "huge.onnx")
    for name in ("text.onnx", "text.tflite"):
        (here / name).write_text("this is not a model")
    (here / "cut.onnx").write_bytes((here / "net.onnx").read_bytes()[:200])
    net = tflite_nets.model([("RELU", "x")], (1, 5))
    (here / "cut.tflite").write_bytes(net[: len(net) // 2])
    (here / "int8.tflite").write_bytes(tflite_nets.model([("RELU", "x")], (1, 5), kind=tflite_nets.INT8))
    (here / "two.txt").write_text("a\nb\n")
    (here / "empty.txt").write_text("\n")
    (here / "cut.npz").write_bytes(b"PK\3\4 and no more")
    np.savez("other.npz", x=np.zeros((2, 7, 6, 3), np.float32))
    assert words in error_of(capsys, *arguments)


def test_without_the_sources_runtime_the_definitions_are_compared(here, monkeypatch):
    for name in ("onnxruntime", "ai_edge_litert.interpreter", "tflite_runtime.interpreter"):
        monkeypatch.setitem(sys.modules, name, None)
    save(model(SMALL, IMAGE, W))
    assert run("net.onnx", "-o", "net.bin") == 0
    assert InferenceEngine("net.bin").metadata["parity"]["against"] == "onnx's reference operators"
    (here / "net.tflite").write_bytes(tflite_nets.model([("RELU", "x")], (1, 5)))
    assert run("net.tflite", "-o", "net.bin") == 0
    assert "NumPy definition" in InferenceEngine("net.bin").metadata["parity"]["against"]


def test_without_the_package_onnx_its_name_is_given(here, monkeypatch, capsys):
    save(model(SMALL, IMAGE, W))
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'litenet[import]'" in error_of(capsys, "net.onnx")


def test_a_runtime_that_disagrees_with_the_source_writes_nothing(here, monkeypatch, capsys):
    save(model(SMALL, IMAGE, W))
    honest = pack.pack

    def wrong(op, a, weights, dtype="f32"):
        block = bytearray(honest(op, a, weights, dtype))
        if block:
            block[3] ^= 0x40  # the exponent of the first bias
        return bytes(block)

    monkeypatch.setattr(pack, "pack", wrong)
    assert "differs from that of" in error_of(capsys, "net.onnx")


@pytest.mark.parametrize("seed", range(3))
def test_damaged_tflite_files_end_in_one_sentence(here, seed, capsys):
    """Bytes changed at random, and every length: refused, or the same model as before; never another exception."""
    rng = np.random.default_rng(seed)
    data = tflite_nets.model(
        [("CONV_2D", "x w b", {0: np.int8(0), 1: np.int32(1), 2: np.int32(1)}), ("RESHAPE", "n0 s", {})],
        (1, 4, 4, 3), {"w": floats(2, 3, 3, 3), "b": floats(2), "s": np.array([1, 32], np.int32)},
    )  # fmt: skip
    from litenet.exporter.importers import tflite
    from litenet.trainer.errors import UserError

    for i in range(150):
        changed = bytearray(data[: int(rng.integers(8, len(data)))] if i % 2 else data)
        for _ in range(0 if i % 2 else int(rng.integers(1, 4))):
            changed[int(rng.integers(8, len(changed)))] = int(rng.integers(256))
        (here / "net.tflite").write_bytes(bytes(changed))
        try:
            tflite.read(here / "net.tflite")
        except UserError as error:
            assert "net.tflite" in str(error)


# ---- what the documentation says


def test_every_operator_that_is_taken_says_how():
    for handlers in (onnx_nodes.HANDLERS, onnx_qoperator.HANDLERS, tflite_nodes.HANDLERS):
        for name, handler in handlers.items():
            assert handler.__doc__, name
    known = {*onnx_nodes.HANDLERS, *onnx_qoperator.HANDLERS, *tflite_nodes.HANDLERS}
    assert not known & {*onnx_nodes.INSTEAD, *onnx_qoperator.INSTEAD, *tflite_nodes.INSTEAD}


def test_the_tables_of_the_page_are_up_to_date(tmp_path, capsys):
    page = ROOT / "docs" / "import.md"
    assert reference.main([str(page), "--check"]) == 0
    (tmp_path / "import.md").write_text(page.read_text().replace("| Relu, ", "| Relo, "))
    assert reference.main([str(tmp_path / "import.md"), "--check"]) == 1
    assert "make gen" in capsys.readouterr().err
    assert reference.main([str(tmp_path / "import.md")]) == 0
    assert (tmp_path / "import.md").read_text() == page.read_text()


def test_operators_of_importers_alone_are_no_layers_of_a_blueprint():
    from litenet.trainer.blueprint_layers import TYPES

    imported = {name for name, m in OPS.items() if m.OP.imported}
    own = {"prelu", "mul", "concat", "resize", "pad", "slice", "transpose", "reshape", "unary"}
    assert imported == own | {"quantize", "dequantize"}
    assert not imported & set(TYPES)
