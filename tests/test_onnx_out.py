"""edge-export to ONNX: any runtime gives what ours gives; and what a .bin holds is read back as it was written."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed (extra: import)")

from c_jobs import NAMES, job  # noqa: E402
from closeness import assert_close  # noqa: E402
from everything import everything  # noqa: E402
from nets import CONV, EVERYTHING, POOL, net, random_layers  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from test_export import trained  # noqa: E402

from litenet.exporter import cli, fold, onnx_out, stored  # noqa: E402
from litenet.exporter.format import write  # noqa: E402
from litenet.pyruntime import InferenceEngine  # noqa: E402
from litenet.trainer.ops import OPS  # noqa: E402

CASES = [(name, i) for name in NAMES for i in range(len(OPS[name].CASES))]


def run(*arguments):
    return cli.main([str(a) for a in arguments])


def answers(path, x):
    """The outputs of an ONNX model by onnx's own definitions, images turned to ours."""
    x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    found = ReferenceEvaluator(onnx.load(path)).run(None, {"input": x})
    return [np.asarray(y).transpose(0, 2, 3, 1) if np.ndim(y) == 4 else np.asarray(y) for y in found]


@pytest.mark.parametrize(("name", "index"), CASES)
def test_every_operator_gives_the_same_in_onnx(name, index, tmp_path):
    j = job(name, OPS[name].CASES[index], "f32")
    (tmp_path / "net.bin").write_bytes(write(j.model))
    assert run(tmp_path / "net.bin", "-o", tmp_path / "net.onnx") == 0
    (got,) = answers(tmp_path / "net.onnx", j.x[None])
    assert_close(got[0].reshape(j.want.shape), j.want, 1e-5, 1e-4)


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
def test_a_stored_model_is_read_back_and_calculates_the_same(half, tmp_path):
    model, values = everything(half)
    (tmp_path / "net.bin").write_bytes(write(model))
    found = stored.load(tmp_path / "net.bin")
    assert [n.op for n in found.graph.nodes] == [op.op for op in model.ops]
    assert (found.frame.color, found.frame.fit, found.frame.pad, found.frame.mean) == ("gray", "letterbox", 7, (33.5,))
    x = np.asarray(values[0], np.float32)[None]
    tensors = fold.run(found.graph, found.weights, x)
    for t in found.graph.outputs:
        assert_close(tensors[t][0], values[t], 1e-5, 1e-4)
    assert run(tmp_path / "net.bin", "-o", tmp_path / "net.onnx") == 0
    for got, t in zip(answers(tmp_path / "net.onnx", x), found.graph.outputs, strict=True):
        assert_close(got[0], values[t], 1e-5, 1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_random_nets_give_the_same_from_checkpoint_and_from_bin(tmp_path, seed):
    rng = np.random.default_rng(seed)
    layers = EVERYTHING if seed == 0 else random_layers(rng, int(rng.integers(1, 8)))
    path = trained(tmp_path, net(layers, (3, 8, 8)), seed=seed)
    assert run(path, "-o", tmp_path / "net.bin", "--samples", "2") == 0
    assert run(tmp_path / "net.bin", "-o", tmp_path / "a.onnx") == 0
    assert run(path, "-o", tmp_path / "b.onnx") == 0
    x = rng.standard_normal((2, 8, 8, 3)).astype(np.float32)
    want = InferenceEngine(tmp_path / "net.bin").predict(x)
    for name in ("a", "b"):
        assert_close(answers(tmp_path / f"{name}.onnx", x)[0], want, 2e-5, 1e-4)


def test_labels_and_preprocessing_travel_along(tmp_path):
    layers = [CONV, POOL, {"type": "flatten"}, {"type": "linear", "out_features": 3}]
    blueprint = net(layers, (3, 8, 8), labels=["a", "b", "é"], preprocessing={"mean": [1, 2, 3], "std": 50})
    path = trained(tmp_path, blueprint)
    assert run(path, "-o", tmp_path / "net.onnx") == 0
    made = onnx.load(tmp_path / "net.onnx")
    props = {p.key: json.loads(p.value) for p in made.metadata_props}
    assert props["labels"] == ["a", "b", "é"]
    assert props["preprocessing"]["mean"] == [1, 2, 3] and props["preprocessing"]["std"] == [50] * 3
    assert (made.opset_import[0].version, made.graph.name) == (17, "net")
    shape = [d.dim_param or d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
    assert shape == ["N", 3, 8, 8]


def test_a_model_that_differs_is_not_written(tmp_path, monkeypatch, capsys):
    path = trained(tmp_path, net([{"type": "linear", "out_features": 3}], (4,)))
    monkeypatch.setitem(onnx_out.WRITERS, "linear", lambda p, n, w, out: p.add("Gemm", ["input",
                p.constant(w["weight"] + 1)], out, transB=1))  # fmt: skip
    assert run(path, "-o", tmp_path / "net.onnx") == 1
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "net.onnx").exists()


def test_a_broken_bin_is_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "net.bin").write_bytes(b"LNET, but no model")
    assert run(tmp_path / "net.bin", "-o", tmp_path / "net.onnx") == 1
    assert "net.bin" in capsys.readouterr().err


def test_tflite_becomes_onnx(tmp_path):
    import tflite_nets

    data = tflite_nets.model([("CONV_2D", "x w b", {0: np.int8(0), 1: np.int32(1), 2: np.int32(1)}), ("RELU", "n0")],
                             (1, 5, 5, 2), {"w": np.ones((3, 3, 3, 2), "f4"), "b": np.arange(3,
                                         dtype="f4")})  # fmt: skip
    (tmp_path / "net.tflite").write_bytes(data)
    assert run(tmp_path / "net.tflite", "-o", tmp_path / "net.onnx") == 0
    x = np.random.default_rng(0).standard_normal((1, 5, 5, 2)).astype(np.float32)
    assert run(tmp_path / "net.tflite", "-o", tmp_path / "net.bin") == 0
    assert_close(answers(tmp_path / "net.onnx", x)[0], InferenceEngine(tmp_path / "net.bin").predict(x), 1e-5, 1e-5)
