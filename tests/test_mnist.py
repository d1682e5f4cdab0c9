"""The main job on the real MNIST: train, export, and answer about pictures. The long form is marked slow."""

import json
from pathlib import Path

import numpy as np
import pytest

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.cli import main as edge_infer
from litenet.trainer import checkpoint
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data.load import open_source
from litenet.trainer.session import resume

ROOT = Path(__file__).resolve().parent.parent
MNIST = ROOT.parent / "shared" / "data" / "mnist"

pytestmark = pytest.mark.skipif(not MNIST.is_dir(), reason="the MNIST files are not in ../shared/data/mnist")


def train(name, folder, *options):
    blueprint = ROOT / "examples" / f"{name}.json"
    assert edge_train([str(blueprint), "--data", str(MNIST), "--out", str(folder), "--quiet", *options]) == 0
    return json.loads((folder / "test.json").read_text())


@pytest.fixture(scope="module")
def perceptron(tmp_path_factory):
    """mnist_mlp after one epoch, with its .bin."""
    folder = tmp_path_factory.mktemp("mnist") / "run"
    result = train("mnist_mlp", folder, "--epochs", "1")
    assert edge_export([str(folder), "-o", str(folder / "net.bin")]) == 0
    return folder, result


def test_one_epoch_of_the_perceptron_reads_digits(perceptron):
    _, result = perceptron
    assert result["samples"] == 10_000
    assert result["accuracy"] >= 0.96


def agreement(folder, binary):
    """(images with another class, largest difference of a logit) of the .bin and the trainer on all test images."""
    session = resume(folder, {})
    saved = checkpoint.load(folder)
    session.trainer.load_arrays(saved.arrays, saved.where)
    test = open_source(str(MNIST)).test
    engine = InferenceEngine(binary)
    mean, std = np.float32(session.data["mean"][0]), np.float32(session.data["std"][0])
    differ, worst = 0, 0.0
    for start in range(0, len(test.x), 64):
        pixels = test.x[start : start + 64]
        want = session.trainer.infer(pixels)
        got = engine.predict((pixels.astype(np.float32) - mean) / std)
        assert np.isfinite(got).all()
        differ += int((got.argmax(1) != want.argmax(1)).sum())
        worst = max(worst, float(np.abs(got - want).max()))
    return differ, worst


def test_the_file_gives_the_trainers_answer_on_all_test_images(perceptron):
    folder, _ = perceptron
    differ, worst = agreement(folder, folder / "net.bin")
    assert differ == 0
    assert worst <= 1e-4


def test_pictures_are_answered(perceptron, tmp_path, capsys):
    """PNG, JPEG, and a photo of dark ink on light paper, with uneven light and noise."""
    import cv2

    folder, _ = perceptron
    test = open_source(str(MNIST)).test
    for i, digit in enumerate(test.y[:5]):
        image = test.x[i, :, :, 0]
        ink = cv2.resize(image, (420, 420), interpolation=cv2.INTER_CUBIC).astype(np.float32)
        paper = np.linspace(190, 245, 420)[None, :] + np.random.default_rng(i).normal(0, 5, ink.shape)
        for name, picture in (("a.png", image), ("b.jpg", image), ("c.jpg", np.clip(paper - 0.7 * ink, 0, 255))):
            cv2.imwrite(str(tmp_path / name), picture.astype(np.uint8))
        paths = [str(tmp_path / name) for name in ("a.png", "b.jpg", "c.jpg")]
        assert edge_infer([str(folder / "net.bin"), *paths, "--json", "--guess"]) == 0
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [a["label"] for a in answers] == [str(digit)] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "accuracy", "single", "half"), [("mnist_mlp", 0.978, 0.96e6, 0.49e6), ("mnist_cnn", 0.990, 1.70e6, 0.86e6)]
)
def test_the_examples_reach_what_they_promise(tmp_path, name, accuracy, single, half):
    folder = tmp_path / "run"
    assert train(name, folder)["accuracy"] >= accuracy
    assert edge_export([str(folder), "-o", str(tmp_path / "single.bin")]) == 0
    assert edge_export([str(folder), "-o", str(tmp_path / "half.bin"), "--fp16"]) == 0
    assert (tmp_path / "single.bin").stat().st_size <= single
    assert (tmp_path / "half.bin").stat().st_size <= half
    differ, worst = agreement(folder, tmp_path / "single.bin")
    assert differ == 0
    assert worst <= 1e-4
    differ, _ = agreement(folder, tmp_path / "half.bin")
    assert differ <= 20
