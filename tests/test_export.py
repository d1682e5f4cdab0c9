"""edge-export: what goes into the file is what training gave, or nothing is written."""

import json
import zlib

import numpy as np
import pytest
from closeness import assert_close
from nets import CONV, EVERYTHING, POOL, net, random_layers

from litenet.exporter import binary, cli, device, fold, format, heldout, pack, parity, source
from litenet.pyruntime import InferenceEngine
from litenet.trainer import checkpoint
from litenet.trainer.errors import UserError
from litenet.trainer.graph import build


def trained(tmp_path, blueprint, data=None, seed=0):
    """A checkpoint with random weights (statistics too), as training would have left it; returns its path."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for p in build(blueprint).params.values():
        spread = 1 / np.sqrt(max(p.fans[0], 1)) if len(p.shape) > 1 else 0.3
        values = rng.standard_normal(p.shape) * spread
        if p.name.endswith(("running_var", "gamma")):
            values = 0.5 + np.abs(values)
        arrays[f"weights/{p.name}"] = values.astype(np.float32)
    path = tmp_path / "best.npz"
    checkpoint.save(path, arrays, {"blueprint": blueprint.resolved, "data": data or {}, "settings": {}, "progress": {}})
    return path


def export(path, out, *options):
    return cli.main([str(path), "-o", str(out), *options])


@pytest.mark.parametrize("seed", range(8))
def test_random_nets_run_on_the_device_as_they_were_trained(tmp_path, seed):
    rng = np.random.default_rng(seed)
    layers = EVERYTHING if seed == 0 else random_layers(rng, int(rng.integers(1, 8)))
    path = trained(tmp_path, net(layers, (int(rng.integers(1, 4)), 8, 8)), seed=seed)
    out = tmp_path / "net.bin"
    assert export(path, out, "--samples", "5") == 0
    loaded = source.load_source(str(path))
    x = rng.standard_normal((3, *loaded.graph.input_shape)).astype(np.float32)
    with InferenceEngine(out) as engine:
        assert_close(engine.predict(x), parity.reference(loaded, x), 2e-5, 2e-5)
        engine.selftest()
        assert engine.metadata["parity"]["samples"] == 5
        assert engine.metadata["blueprint"] == loaded.blueprint.resolved


def test_half_precision_halves_the_weights_and_keeps_the_norms(tmp_path):
    path = trained(tmp_path, net([CONV, POOL, {"type": "layernorm"}, {"type": "flatten"},
                                  {"type": "linear", "out_features": 16}], (1, 32, 32)))  # fmt: skip
    assert export(path, tmp_path / "single.bin") == 0
    assert export(path, tmp_path / "half.bin", "--fp16") == 0
    single, half = InferenceEngine(tmp_path / "single.bin"), InferenceEngine(tmp_path / "half.bin")
    by_type = {layer.op: (layer.weight_dtype, layer.weights_bytes) for layer in half.layers}
    assert by_type["linear"][0] == "float16"
    assert by_type["layernorm"] == ("float32", 32)
    assert half.info["file_bytes"] < 0.55 * single.info["file_bytes"]
    half.selftest()


def test_batchnorm_is_folded_into_what_stands_before_it():
    layers = [
        {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "bias": 0},
        {"type": "batchnorm", "activation": "relu"},
        {"type": "depthwise_conv2d", "kernel_size": 3},
        {"type": "batchnorm"},
        {"type": "maxpool2d", "kernel_size": 2},
        {"type": "batchnorm", "activation": "tanh"},
        {"type": "flatten"},
        {"type": "linear", "out_features": 5},
        {"type": "batchnorm"},
    ]
    from litenet.trainer.fuse import for_inference

    graph = for_inference(build(net(layers)))
    rng = np.random.default_rng(0)
    weights = {p.name: (np.abs(rng.standard_normal(p.shape)) + 0.3).astype(np.float32) for p in graph.params.values()}
    folded, after = fold.fold_batchnorm(graph, weights)
    ops = [(n.op, n.attrs.activation) for n in folded.nodes]
    assert ops == [("conv2d", "relu"), ("depthwise_conv2d", "none"), ("maxpool2d", "none"), ("batchnorm", "tanh"),
                   ("flatten", "none"), ("linear", "none")]  # fmt: skip
    assert set(after) == set(folded.params) == {name for n in folded.nodes for name in n.params.values()}
    x = rng.standard_normal((2, 8, 8, 1)).astype(np.float32)
    before = fold.run(graph, weights, x)[graph.outputs[0]]
    assert_close(fold.run(folded, after, x)[folded.outputs[0]], before, 1e-4, 1e-5)


def test_batchnorm_stays_where_something_else_reads_its_input(tmp_path):
    layers = [
        {"type": "conv2d", "out_channels": 3, "kernel_size": 1},
        {"type": "residual", "layers": [{"type": "batchnorm"}]},
        {"type": "global_avg_pool"},
    ]
    path = trained(tmp_path, net(layers))
    assert export(path, tmp_path / "net.bin") == 0
    assert [layer.op for layer in InferenceEngine(tmp_path / "net.bin").layers] == [
        "conv2d", "batchnorm", "add", "global_avg_pool"]  # fmt: skip


def test_a_perceptron_fed_with_pictures_takes_pictures(tmp_path):
    data = {"source": "digits", "name": "digits", "hash": "0", "samples": 1, "shape": [8, 8, 1], "picture": True,
            "labels": None, "mean": [77.0], "std": [90.0]}  # fmt: skip
    path = trained(tmp_path, net([{"type": "linear", "out_features": 10}], (64,)), data)
    assert export(path, tmp_path / "net.bin") == 0
    engine = InferenceEngine(tmp_path / "net.bin")
    assert engine.input_shape == (8, 8, 1)
    assert engine.preprocessing.mean == (77.0,)
    assert engine.metadata["parity"]["of"] == "256 test samples of digits"
    assert engine.predict_image(np.zeros((30, 40, 3), np.uint8)).shape == (10,)


def test_flatten_before_a_linear_layer_costs_nothing(tmp_path):
    path = trained(tmp_path, net([CONV, {"type": "flatten"}, {"type": "linear", "out_features": 3}]))
    export(path, tmp_path / "a.bin")
    engine = InferenceEngine(tmp_path / "a.bin")
    assert [layer.op for layer in engine.layers] == ["conv2d", "linear"]
    assert engine.info["arena_bytes"] == 8 * 8 * 4 * 4


def test_flatten_at_the_end_is_kept(tmp_path):
    path = trained(tmp_path, net([CONV, {"type": "flatten"}]))
    assert export(path, tmp_path / "a.bin") == 0
    engine = InferenceEngine(tmp_path / "a.bin")
    assert engine.output_shape == (256,)
    engine.selftest()


def test_the_same_checkpoint_gives_the_same_bytes(tmp_path):
    path = trained(tmp_path, net(EVERYTHING, (3, 8, 8)))
    files = []
    for name in ("a.bin", "b.bin"):
        export(path, tmp_path / name)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    assert files[0][:4] == b"LNET"
    first_weight = format.HEADER_BYTES
    assert int.from_bytes(files[0][first_weight : first_weight + 4], "little") != 0  # weights start at byte 128


def test_weights_and_blueprint_may_come_apart(tmp_path):
    blueprint = net([CONV, {"type": "flatten"}, {"type": "linear", "out_features": 3}])
    arrays = {name[8:]: a for name, a in checkpoint.load(trained(tmp_path, blueprint)).arrays.items()}
    np.savez(tmp_path / "weights.npz", **arrays)
    (tmp_path / "net.json").write_text(json.dumps(blueprint.resolved))
    out = tmp_path / "net.bin"
    apart = ["--config", str(tmp_path / "net.json"), "--weights", str(tmp_path / "weights.npz")]
    assert cli.main([*apart, "-o", str(out)]) == 0
    assert "random inputs" in InferenceEngine(out).metadata["parity"]["of"]


def test_a_runtime_that_disagrees_writes_nothing(tmp_path, monkeypatch, capsys):
    path = trained(tmp_path, net([{"type": "linear", "out_features": 3}], (4,)))
    honest = pack.pack

    def wrong(op, a, weights, dtype="f32"):
        block = bytearray(honest(op, a, weights, dtype))
        block[3] ^= 0x40  # the exponent of the first bias
        return bytes(block)

    monkeypatch.setattr(pack, "pack", wrong)
    assert export(path, tmp_path / "net.bin") == 1
    assert "disagrees with training" in capsys.readouterr().err
    assert not (tmp_path / "net.bin").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["best.npz"]


def test_parity_refuses_nan():
    found = parity.Parity(5, "x", float("nan"), 1.0, 5, None)
    with pytest.raises(UserError, match="disagrees"):
        parity.refuse_disagreement(found, False)


def test_selftest_names_the_layer_whose_weights_changed(tmp_path):
    path = trained(tmp_path, net([{"type": "linear", "out_features": 3, "activation": "relu"},
                                  {"type": "linear", "out_features": 3}], (4,)))  # fmt: skip
    export(path, tmp_path / "net.bin")
    changed = bytearray((tmp_path / "net.bin").read_bytes())
    changed[128 + 64] ^= 1  # lowest bit of the second layer's first bias
    changed[16:20] = zlib.crc32(changed[128:]).to_bytes(4, "little")
    changed[12:16] = bytes(4)
    changed[12:16] = zlib.crc32(changed[:128]).to_bytes(4, "little")
    with pytest.raises(Exception, match=r"1|linear"):
        InferenceEngine(bytes(changed)).selftest()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "-o", "a.bin"], "no such folder"),
        (["net.txt", "-o", "a.bin"], "not a .txt file"),
        (["best.npz", "-o", "a.exe"], "ends in .bin"),
        (["weights.npz", "-o", "a.bin"], "no blueprint"),
        (["--config", "missing.json", "--weights", "best.npz", "-o", "a.bin"], "missing.json"),
        (["--config", "other.json", "--weights", "best.npz", "-o", "a.bin"], "but other.json needs"),
        (["nan.npz", "-o", "a.bin"], "NaN"),
        (["best.npz", "-o", "a.bin", "--data", "nothing-here"], "nothing-here"),
        (["best.npz", "-o", "no/such/folder/a.bin"], "could not be written"),
        (["huge.npz", "-o", "a.bin", "--fp16"], "half precision"),
    ],
)
def test_mistakes_get_one_sentence_and_write_nothing(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    blueprint = net([{"type": "linear", "out_features": 3}], (4,))
    path = trained(tmp_path, blueprint)
    loaded = checkpoint.load(path)
    np.savez("weights.npz", **loaded.arrays)
    for name, value in (("nan", np.nan), ("huge", 1e6)):
        arrays = {k: np.full_like(a, value) for k, a in loaded.arrays.items()}
        checkpoint.save(tmp_path / f"{name}.npz", arrays, loaded.meta)
    other = blueprint.resolved | {"input_shape": [5]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [["-o", "a.bin"], ["x.npz"], ["--config", "a.json", "-o", "a.bin"], ["x", "--weights", "y", "-o", "a.bin"]],
)
def test_bad_usage_ends_with_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2


def test_report_says_what_was_made(tmp_path, capsys):
    path = trained(tmp_path, net([CONV, {"type": "flatten"}, {"type": "linear", "out_features": 3}]))
    assert export(path, tmp_path / "net.bin") == 0
    text = capsys.readouterr().out
    size = (tmp_path / "net.bin").stat().st_size
    assert f"{size:,} bytes" in text
    assert "arena 1,024 bytes of RAM" in text
    assert f"{8 * 8 * 4 * 9 + 256 * 3:,} MACs" in text
    assert "same class on 256 of 256" in text


def test_held_out_samples_come_from_the_validation_split_when_there_is_no_test_set(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "set.npz", x=rng.integers(0, 255, (40, 6, 6, 1), np.uint8), y=np.arange(40) % 2)
    data = {"source": str(tmp_path / "set.npz"), "shape": [6, 6, 1], "picture": True, "mean": [100.0], "std": [50.0],
            "name": "set", "hash": "", "samples": 40}  # fmt: skip
    path = trained(tmp_path, net([{"type": "flatten"}, {"type": "linear", "out_features": 2}], (1, 6, 6)), data)
    loaded = source.load_source(str(path))
    found = heldout.held_out(loaded, 100)
    assert "held-out samples of" in found.what
    assert len(found.x) == 4
    x = found.inputs(loaded, (6, 6, 1))
    assert_close(x, (found.x.astype(np.float32) - 100) / np.float32(50), 0, 0)


def test_preprocessing_of_the_blueprint_reaches_the_file(tmp_path):
    wishes = {"resize": "bilinear", "fit": "letterbox", "color": "bgr", "invert": "always", "pad": 7,
              "mean": [1, 2, 3], "std": [4, 5, 6]}  # fmt: skip
    path = trained(tmp_path, net([{"type": "global_avg_pool"}], (3, 4, 4), preprocessing=wishes))
    prepared = device.prepare(source.load_source(str(path)))
    p = device.preprocessing(source.load_source(str(path)), prepared.graph.input_shape)
    assert (p.resize, p.fit, p.color, p.invert, p.pad) == ("bilinear", "letterbox", "bgr", "always", 7)
    assert (list(p.mean), list(p.std)) == ([1, 2, 3], [4, 5, 6])
    assert export(path, tmp_path / "net.bin") == 0
    assert InferenceEngine(tmp_path / "net.bin").preprocessing.fit == "letterbox"
    assert binary.GOLDEN_INPUTS == 2
