"""Encoders: classes set apart, the equal-error rate, and a .bin whose output has length one and that can compare."""

import json

import cv2
import numpy as np
import pytest
from nets import net
from runs import mistake

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.cli import main as edge_infer
from litenet.trainer import checkpoint, embedding
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data.dataset import Dataset, Splits
from litenet.trainer.errors import UserError
from litenet.trainer.trainer import Trainer

ENCODER = {
    "name": "faces",
    "input_shape": [1, 8, 8],
    "layers": [
        {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "activation": "relu"},
        {"type": "flatten"},
        {"type": "linear", "out_features": 12, "bias": False},
        {"type": "layernorm", "name": "code", "eps": 1e-12},
        {"type": "linear", "out_features": 8},
    ],
    "embedding": {"layer": "code", "test_classes": 0.25, "threshold_classes": 0.25},
    "optimizer": "adam", "learning_rate": 0.003, "batch_size": 16, "epochs": 6, "seed": 1,
}  # fmt: skip


def people(classes=16, each=8, seed=0):
    """Pictures of patterns with noise: (x, y)."""
    rng = np.random.default_rng(seed)
    faces = rng.integers(0, 256, (classes, 8, 8, 1))
    y = np.repeat(np.arange(classes), each)
    return np.clip(faces[y] + rng.normal(0, 40, (len(y), 8, 8, 1)), 0, 255).astype(np.uint8), y


def ready(folder, **more):
    x, y = people()
    np.savez(folder / "people.npz", x=x, y=y)
    (folder / "faces.json").write_text(json.dumps(ENCODER | more))
    return x, y


def shares(test=0.25, fixed=0.25):
    return {"layer": "code", "test_classes": test, "threshold_classes": fixed}


# ---- who is set apart


def test_nobody_is_in_two_sets_and_training_classes_are_numbered_anew():
    x, y = people()
    data = Dataset(x, y, [f"p{k}" for k in range(16)])
    splits, unseen = embedding.set_apart(Splits(data), shares(), 3, "net")
    sets = [splits.train, unseen["threshold"], unseen["test"]]
    assert [len(s.labels) for s in sets] == [8, 4, 4]
    assert len({label for s in sets for label in s.labels}) == 16
    assert sum(len(s.x) for s in sets) == len(x)
    for s in sets:
        assert np.unique(s.y).tolist() == list(range(len(s.labels)))
        for picture, k in zip(s.x, s.y, strict=True):
            at = int(s.labels[k][1:])
            assert (picture == x[y == at]).all((1, 2, 3)).any()
    again, _ = embedding.set_apart(Splits(data), shares(), 3, "net")
    other, _ = embedding.set_apart(Splits(data), shares(), 4, "net")
    assert again.train.labels == splits.train.labels != other.train.labels


def test_too_few_classes_and_values_are_refused():
    x, y = people(5)
    with pytest.raises(UserError, match="people has 5 classes; embedding sets 2 apart for the test and 2 for the"):
        embedding.set_apart(Splits(Dataset(x, y, name="people")), shares(0.4, 0.4), 0, "net")
    with pytest.raises(UserError, match="embedding needs classes"):
        embedding.set_apart(Splits(Dataset(x, np.zeros((len(x), 1), np.float32))), shares(), 0, "net")


# ---- the equal-error rate


def test_the_equal_error_rate_is_where_both_errors_meet():
    rate, threshold = embedding.equal_error(np.array([0.9, 0.8, 0.4, 0.7]), np.array([0.1, 0.2, 0.6, 0.3]))
    assert (rate, threshold) == (0.25, 0.6)
    assert embedding.equal_error(np.array([0.8, 0.9]), np.array([0.1, 0.2]))[0] == 0
    assert embedding.equal_error(np.array([0.1, 0.2]), np.array([0.8, 0.9]))[0] == 1


def test_random_scores_have_a_rate_of_a_half():
    rng = np.random.default_rng(0)
    assert embedding.equal_error(rng.random(4000), rng.random(4000))[0] == pytest.approx(0.5, abs=0.02)


def test_every_pair_is_counted_once():
    rows = np.eye(4)[[0, 0, 1, 2]]
    genuine, impostor = embedding.pairs(rows, np.array([0, 0, 1, 1]))
    assert (sorted(genuine), len(impostor)) == ([0, 1], 4)


# ---- the layer


def test_the_embedding_layer_has_no_weights_of_its_own():
    trainer = Trainer(net(**{k: v for k, v in ENCODER.items() if k in ("layers", "input_shape", "embedding")}), 4)
    assert not any(p.layer == "code" for p in trainer.graph.trainable)
    x = people()[0][:3]
    rows = trainer.infer_layer(x, "code")
    assert rows.shape == (3, 12)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(12**0.5, rel=1e-5)
    assert rows.tobytes() == trainer.infer_layer(x, "code").tobytes()


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("gone", "embedding names 'gone', but no layer with weights has such a name"),
        ("layer_2", "embedding names the layer 'layer_2', but it is a linear"),
    ],
)
def test_another_layer_is_refused_with_what_to_write(here, capsys, layer, said):
    ready(here, embedding=ENCODER["embedding"] | {"layer": layer})
    text = mistake(capsys, 1, "faces.json", "--data", "people.npz")
    assert text.startswith(f"faces.json: {said}")
    assert layer == "gone" or '{"type": "layernorm", "name": "layer_2", "eps": 1e-12}' in text


# ---- from the pictures to the answer


def test_an_encoder_is_trained_measured_exported_and_compares(here, capsys):
    x, y = ready(here)
    assert edge_train(["faces.json", "--data", "people.npz", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "embedding: equal-error rate " in out and "on 4 classes never seen (112 genuine, 384 impostor pairs)" in out
    found = json.loads((here / "run" / "embedding.json").read_text())
    assert found == checkpoint.load(here / "run" / "best.npz").meta["embedding"]
    assert found["eer"] < 0.2
    assert len(set(found["test_classes"]) | set(found["threshold_classes"])) == 8

    assert edge_export(["run", "-o", "faces.bin"]) == 0
    assert "same class" not in capsys.readouterr().out
    with InferenceEngine("faces.bin") as engine:
        assert engine.output_shape == (12,)
        rows = np.stack([engine.predict_image(picture) for picture in x[:40]])
        kept = engine.metadata
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert kept["embedding"]["threshold"] == found["threshold"]
    assert "labels" not in kept and "accuracy" not in kept and "test_classes" not in kept["embedding"]

    names = [f"{k}.png" for k in (0, 1, 9)]
    for name in names:
        cv2.imwrite(name, x[int(name[:-4])])
    capsys.readouterr()
    assert edge_infer(["faces.bin", "--compare", *names[:2], "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert edge_infer(["faces.bin", "--compare", names[0], names[2], "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert same["cosine"] == pytest.approx(float(rows[0] @ rows[1]), abs=1e-5)
    assert same["distance"] == pytest.approx(float(np.linalg.norm(rows[0] - rows[1])), abs=1e-5)
    assert same["same"] == (same["cosine"] >= found["threshold"])
    assert other["cosine"] < same["cosine"]
    assert edge_infer(["faces.bin", "--compare", names[0], names[0]]) == 0
    assert "0.png and 0.png  same (cosine 1.000, same from " in capsys.readouterr().out
    assert edge_infer(["faces.bin", "--embed", names[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["embedding"] == pytest.approx(rows[0].tolist(), abs=1e-6)


def test_a_resumed_encoder_knows_whom_it_must_not_see(here, capsys):
    ready(here)
    assert edge_train(["faces.json", "--data", "people.npz", "--out", "whole", "--epochs", "2", "--quiet"]) == 0
    assert edge_train(["faces.json", "--data", "people.npz", "--out", "half", "--epochs", "1", "--quiet"]) == 0
    assert edge_train(["--resume", "half", "--epochs", "2", "--quiet"]) == 0
    whole, half = (json.loads((here / name / "embedding.json").read_text()) for name in ("whole", "half"))
    assert whole["test_classes"] == half["test_classes"]
    first, second = (checkpoint.load(here / name / "last.npz").arrays for name in ("whole", "half"))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_a_classifier_has_no_embedding(here, capsys):
    ready(here)
    (here / "plain.json").write_text(json.dumps({k: v for k, v in ENCODER.items() if k != "embedding"} | {
        "layers": [*ENCODER["layers"][:-1], {"type": "linear", "out_features": 16}], "epochs": 1}))  # fmt: skip
    assert edge_train(["plain.json", "--data", "people.npz", "--out", "run", "--quiet"]) == 0
    assert edge_export(["run", "-o", "plain.bin"]) == 0
    cv2.imwrite("a.png", people()[0][0])
    capsys.readouterr()
    assert edge_infer(["plain.bin", "--compare", "a.png", "a.png"]) == 1
    assert "plain.bin is no encoder, so it has no embedding of a picture" in capsys.readouterr().err
