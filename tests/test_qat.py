"""edge-train --qat: forward in the device's integers, from a float run, and into a file of the same integers."""

import json
from pathlib import Path

import numpy as np
import pytest
from nets import net

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine
from litenet.trainer import blueprint as blueprints
from litenet.trainer import checkpoint
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data.digits import read_digits
from litenet.trainer.errors import UserError
from litenet.trainer.int8.qat import QatTrainer, Start
from litenet.trainer.trainer import Trainer

LAYERS = [
    {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "bias": False},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "residual", "activation": "relu", "layers": [
        {"type": "depthwise_conv2d", "kernel_size": 3, "padding": 1, "activation": "relu6"},
        {"type": "conv2d", "out_channels": 8, "kernel_size": 1}, {"type": "batchnorm"}]},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
    {"type": "conv2d", "out_channels": 12, "kernel_size": 3, "activation": "silu"},
    {"type": "avgpool2d", "kernel_size": 2},
    {"type": "flatten"},
    {"type": "dropout", "rate": 0.1},
    {"type": "linear", "out_features": 10},
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A float run of the digits, and one in whole numbers that begins with it; the blueprint's file."""
    here = tmp_path_factory.mktemp("qat")
    spec = net(LAYERS, (1, 8, 8), optimizer={"type": "sgd", "momentum": 0.9}, learning_rate=0.05, batch_size=32)
    file = here / "net.json"
    file.write_text(json.dumps(spec.resolved))
    common = [str(file), "--data", "digits", "--quiet", "--no-report"]
    assert edge_train([*common, "--epochs", "4", "--out", str(here / "float")]) == 0
    whole = ["--from", str(here / "float"), "--qat", "--epochs", "2", "--out", str(here / "whole")]
    assert edge_train([*common, *whole]) == 0
    return here


def samples():
    test = read_digits(tuple("0123456789")).test
    return np.ascontiguousarray(test.x), test.y


def test_the_file_has_the_integers_of_training(runs, capsys):
    """The trainer's own answers, and its accuracy, are the device's to the bit."""
    x, y = samples()
    saved = checkpoint.load(runs / "whole")
    mean, std = (tuple(saved.meta["data"][k]) for k in ("mean", "std"))
    start = Start(saved, saved.meta["int8"]["quants"])
    trainer = QatTrainer(saved.blueprint, start, x, batch_size=60, mean=mean, std=std)
    trainer.load_arrays(saved.arrays, saved.where)
    assert edge_export([str(runs / "whole"), "-o", str(runs / "w.bin"), "--int8"]) == 0
    assert "as trained" in capsys.readouterr().out
    with InferenceEngine(runs / "w.bin") as engine:
        frames = ((x[:60] - np.float32(mean)) / np.float32(std)).astype(np.float32)
        np.testing.assert_array_equal(engine.predict(frames), trainer.infer(x[:60]))
        right = sum(int(engine.predict_image(v).argmax() == k) for v, k in zip(x, y, strict=True))
    assert abs(right / len(x) - trainer.evaluate(x, y).accuracy) < 0.004  # pictures go in by their own rounding
    assert right / len(x) > 0.8


def test_the_checkpoint_is_one_like_any_other(runs):
    """Unfolded, its weights make a float net that is near the whole-number one."""
    x, y = samples()
    saved = checkpoint.load(runs / "whole")
    old = checkpoint.load(runs / "float")
    assert set(saved.weights) == set(old.weights)
    assert any((saved.weights[n] != old.weights[n]).any() for n in saved.weights if n.endswith("beta"))
    mean, std = (tuple(saved.meta["data"][k]) for k in ("mean", "std"))
    plain = Trainer(saved.blueprint, 60, mean=mean, std=std)
    plain.load_arrays(saved.arrays, saved.where, optimizer=False)
    assert plain.evaluate(x, y).accuracy > 0.8
    assert edge_export([str(runs / "whole"), "-o", str(runs / "f.bin")]) == 0


def test_a_resumed_run_ends_with_the_same_bits(runs, tmp_path):
    file = str(runs / "net.json")
    given = [file, "--data", "digits", "--quiet", "--no-report", "--from", str(runs / "float"), "--qat"]
    whole = checkpoint.load(runs / "whole" / "last.npz")
    assert edge_train([*given, "--epochs", "1", "--schedule", "constant", "--out", str(tmp_path / "a")]) == 0
    assert edge_train([*given, "--epochs", "2", "--schedule", "constant", "--out", str(tmp_path / "b")]) == 0
    assert edge_train(["--resume", str(tmp_path / "a"), "--epochs", "2", "--quiet", "--no-report"]) == 0
    a, b = (checkpoint.load(tmp_path / k / "last.npz") for k in "ab")
    assert a.meta["int8"]["quants"] == b.meta["int8"]["quants"]
    for name in (n for n in b.arrays if n.startswith("qat/")):
        np.testing.assert_array_equal(a.arrays[name], b.arrays[name])
    assert set(whole.arrays) == set(b.arrays)


def test_training_helps_where_rounding_hurts(runs):
    """With scales that are far too wide, a few steps win back most of what is lost."""
    x, y = samples()
    saved = checkpoint.load(runs / "float")
    mean, std = (tuple(saved.meta["data"][k]) for k in ("mean", "std"))
    common = {"batch_size": 60, "mean": mean, "std": std, "learning_rate": 0.01}
    fine = QatTrainer(saved.blueprint, Start(saved), x, **common)
    coarse = {k: [float(np.float32(s * 24)), z // 24 if z > 0 else z] for k, (s, z) in fine.int8["quants"].items()}
    trainer = QatTrainer(saved.blueprint, Start(saved, coarse), x, **common)
    train = read_digits(tuple("0123456789")).train
    before = trainer.evaluate(x, y).loss
    for k in range(40):
        rows = np.arange(60 * k, 60 * k + 60) % len(train.x)
        trainer.micro(train.x[rows], train.y[rows])
        trainer.optimizer.update(trainer.model.weights, trainer.gradients)
    assert trainer.evaluate(x, y).loss < 0.8 * before


def test_gradients_are_those_of_the_rounded_net_and_stop_at_the_ends(runs):
    x, _ = samples()
    saved = checkpoint.load(runs / "float")
    trainer = QatTrainer(saved.blueprint, Start(saved), x, batch_size=20)
    out = trainer.forward(x[:20])
    loss = trainer.criterion(out["output"], np.arange(20) % 10)
    gradients = trainer.backward(loss)
    assert all(np.isfinite(gradients[p.name]).all() for p in trainer.graph.trainable)
    last = trainer.graph.nodes[-1]
    inside = trainer.backend._inside[last.name]
    bias = (np.asarray(loss.gradient) * inside).sum(0)
    np.testing.assert_allclose(gradients[last.params["bias"]], bias, atol=1e-6)
    biases = {n.params["bias"] for n in trainer.graph.nodes if "bias" in n.params}
    assert {p.name for p in trainer.graph.trainable} >= biases


def test_what_does_not_go_together(runs, tmp_path, capsys):
    given = [str(runs / "net.json"), "--data", "digits", "--quiet"]
    with pytest.raises(SystemExit):
        edge_train([*given, "--qat"])
    for more in (["--fp16"], ["--memory", "1GB"]):
        assert edge_train([*given, "--qat", "--from", str(runs / "float"), "--out", str(tmp_path / "x"), *more]) == 1
        assert "--qat trains without --fp16 and --memory" in capsys.readouterr().err
    layers = [{"type": "maxpool2d", "kernel_size": 2}, {"type": "batchnorm"}, {"type": "flatten"},
              {"type": "linear", "out_features": 2}]  # fmt: skip
    spec = blueprints.parse(json.dumps(net(layers).resolved), "n.json")
    full = Trainer(spec, 4)
    saved = checkpoint.Checkpoint(full.state_arrays(), {}, "a.npz")
    with pytest.raises(UserError, match="cannot train .* follows no layer"):
        QatTrainer(spec, Start(saved), np.zeros((8, 8, 8, 1), np.uint8), batch_size=4)
    assert Path(runs / "whole").is_dir()
