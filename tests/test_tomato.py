"""Tomato leaves: from a folder of JPEGs to the answers of edge-infer, which are the trainer's."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime.cli import main as edge_infer
from litenet.trainer import checkpoint
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data.photos import PhotoOptions, open_photos
from litenet.trainer.report.evaluate import weights_of
from litenet.trainer.session import frame_for
from litenet.trainer.trainer import Trainer

ROOT = Path(__file__).resolve().parent.parent
LEAVES = ROOT.parent / "shared" / "data" / "tomato_leaf"
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(not LEAVES.is_dir(), reason=f"{LEAVES} is not there")


@pytest.fixture(scope="module")
def leaves(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaves")
    for part in ("train", "test"):
        with tarfile.open(LEAVES / f"{part}.tar") as archive:
            archive.extractall(folder / part, filter="data")
    return folder


def trained(example, leaves, tmp_path, capsys, *more):
    """(accuracy on the test photos, how many of them edge-infer answers as the trainer does)."""
    run, cache = str(tmp_path / "run"), str(tmp_path / "cache")
    given = [str(EXAMPLES / example), "--data", str(leaves), "--cache", cache, "--out", run, "--quiet", *more]
    assert edge_train(given) == 0
    assert edge_export([run, "-o", str(tmp_path / "leaf.bin")]) == 0
    capsys.readouterr()
    assert edge_infer([str(tmp_path / "leaf.bin"), str(leaves / "test"), "--guess", "--json", "--top", "1"]) == 0
    answers = {row["file"]: row["label"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    saved = checkpoint.load(run)
    data = saved.meta["data"]
    test = open_photos(leaves, PhotoOptions(cache=cache), frame_for(saved.blueprint)).test
    trainer = Trainer(saved.blueprint, 50, 0, tuple(data["mean"]), tuple(data["std"]))
    weights = {f"weights/{name}": array for name, array in weights_of(saved).items()}
    trainer.load_arrays(weights, saved.where, optimizer=False)
    found = trainer.evaluate(test.x, test.y)
    names = [test.labels[k] for k in found.predictions]
    assert len(answers) == len(names) == 400
    same = sum(answers[str(leaves / file)] == name for file, name in zip(test.files, names, strict=True))
    return found.accuracy, same


@pytest.mark.parametrize("example", ["tomato_cnn.json", "tomato_resnet.json"])
def test_the_file_answers_on_every_jpeg_as_the_trainer_did(example, leaves, tmp_path, capsys):
    accuracy, same = trained(example, leaves, tmp_path, capsys, "--epochs", "1", "--no-report")
    assert same == 400
    assert accuracy > 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("example", "least"), [("tomato_cnn.json", 0.8), ("tomato_resnet.json", 0.94)])
def test_the_example_learns_to_tell_the_diseases(example, least, leaves, tmp_path, capsys):
    accuracy, same = trained(example, leaves, tmp_path, capsys)
    assert same == 400
    assert accuracy >= least
    assert (tmp_path / "run" / "report.html").stat().st_size < 2_000_000


def test_frames_of_the_same_photos_are_the_same_in_every_cache(leaves, tmp_path):
    frame = frame_for(checkpoint.blueprints.load(EXAMPLES / "tomato_cnn.json"))
    one, other = (open_photos(leaves, PhotoOptions(cache=tmp_path / name), frame) for name in "ab")
    assert one.train.hash() == other.train.hash()
    assert np.array_equal(one.test.y, np.repeat(np.arange(4), 100))
