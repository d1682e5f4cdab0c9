"""edge-train evaluate: a checkpoint and the file made of it give the same figures, and those are the true ones."""

import json
import re
from collections import Counter
from dataclasses import dataclass

import bins
import cv2
import numpy as np
import photos
import pytest
from runs import NET, changed, train

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine, decode
from litenet.trainer.cli import main
from litenet.trainer.data.dataset import Dataset, Splits
from litenet.trainer.data.load import open_source
from litenet.trainer.data.pictures import LAYOUTS
from litenet.trainer.report import evaluate_bin


def made(here, **more):
    """A run in "run" and its net.bin."""
    changed(here, **more)
    assert train("--out", "run", "--quiet", "--no-report") == 0
    assert edge_export(["run", "-o", "net.bin"]) == 0


def evaluated(capsys, *arguments):
    capsys.readouterr()
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def mistake(capsys, *arguments):
    capsys.readouterr()
    assert main(["evaluate", *map(str, arguments)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    return err


VARIANTS = {
    "plain": {},
    "softmax": {"layers": [*NET["layers"], {"type": "softmax"}]},
    "margin": {"loss": "logit_margin"},
    "bce": {"loss": "bce"},
    "mse": {"loss": "mse"},
    "inverted": {"preprocessing": {"invert": "always", "resize": "bilinear"}, "input_shape": [1, 6, 6]},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_checkpoint_and_its_bin_give_the_same_figures(here, capsys, variant):
    made(here, **VARIANTS[variant])
    mine, device = evaluated(capsys, "run"), evaluated(capsys, "net.bin", "--data", "pictures.npz")
    assert (mine["kind"], device["kind"]) == ("checkpoint", "bin")
    assert (mine["model"], device["model"]) == ("run/best.npz", "net.bin")
    for key in ("data", "samples", "accuracy", "macro_f1", "confusion", "classes"):
        assert mine[key] == device[key], key
    for key in ("log_loss", "ece", "confidence"):
        assert abs(mine[key] - device[key]) <= 1e-4, key
    assert [w["sample"] for w in mine["worst"]] == [w["sample"] for w in device["worst"]]
    assert mine["samples"] == 9
    assert mine["data"] == "9 test samples of pictures"


def test_the_figures_of_a_bin_are_those_of_its_answers(here, capsys):
    made(here)
    found = evaluated(capsys, "net.bin", "--data", "pictures.npz")
    test = open_source("pictures.npz").test
    engine = InferenceEngine("net.bin")
    scores = np.stack([engine.predict_image(x, LAYOUTS[1]) for x in test.x]).astype(np.float64)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    answers = p.argmax(1)
    assert found["accuracy"] == (answers == test.y).mean()
    assert found["log_loss"] == pytest.approx(-np.log(p[np.arange(9), test.y]).mean())
    for t in range(3):
        assert found["confusion"][t] == [int(((test.y == t) & (answers == a)).sum()) for a in range(3)]
    tested = json.loads((here / "run" / "test.json").read_text())
    assert found["accuracy"] == tested["accuracy"]
    assert found["log_loss"] == pytest.approx(tested["loss"], abs=1e-5)


def test_the_text_says_what_the_json_says(here, capsys):
    made(here)
    found = evaluated(capsys, "run")
    assert main(["evaluate", "run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("run/best.npz (small) on 9 test samples of pictures\n")
    assert f"accuracy    {100 * found['accuracy']:.2f} %" in out
    assert f"ECE {100 * found['ece']:.2f} %" in out
    for row in found["classes"]:
        assert re.search(rf"^{row['label']} +{row['samples']} ", out, re.M)
    for w in found["worst"]:
        assert w["truth"] == w["answer"] or f"  {w['sample']}: {w['truth']} taken for {w['answer']}" in out


def test_the_samples_held_out_are_those_of_the_run(here, capsys):
    made(here)
    found = evaluated(capsys, "run", "--split", "validation")
    assert found["data"] == "3 held-out samples of pictures"
    row = json.loads((here / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    if (
        json.loads((here / "run" / "metrics.jsonl").read_text().splitlines()[0])["selection_loss"]
        < row["selection_loss"]
    ):
        row = json.loads((here / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert found["accuracy"] == row["validation_accuracy"]
    assert found["log_loss"] == pytest.approx(row["validation_loss"], abs=1e-6)
    assert evaluated(capsys, "run", "--split", "train")["samples"] == 27
    for part in ("train", "validation"):
        mine = evaluated(capsys, "run", "--split", part)
        device = evaluated(capsys, "net.bin", "--data", "pictures.npz", "--split", part)
        assert device["confusion"] == mine["confusion"]
    assert "number " in found["worst"][0]["sample"]


def test_classes_are_matched_by_name(here, capsys):
    made(here, labels=["left", "middle", "right"])
    test = open_source("pictures.npz").test
    order = np.array([2, 0, 1])  # the other way round: class k of the file is order[k] of the model
    names = np.array(["right", "left", "middle"])
    np.savez("named.npz", x=test.x, y=np.argsort(order)[test.y], label_names=names)
    plain = evaluated(capsys, "net.bin", "--data", "pictures.npz")
    assert evaluated(capsys, "net.bin", "--data", "named.npz")["confusion"] == plain["confusion"]
    assert [c["label"] for c in plain["classes"]] == ["left", "middle", "right"]
    np.savez("foreign.npz", x=test.x, y=test.y + 3, label_names=np.array(["left", "b", "c", "d", "e", "f"]))
    assert mistake(capsys, "net.bin", "--data", "foreign.npz") == (
        "edge-train: foreign has classes that net.bin does not know: b, c, d, e, f; it knows left, middle, right.\n"
        "  Give data of the same classes.\n"
    )
    np.savez("renamed.npz", x=test.x, y=test.y, label_names=np.array(["a", "b", "c"]))
    found = evaluated(capsys, "run", "--data", "renamed.npz", "--split", "all")
    assert found["confusion"] == plain["confusion"]
    assert found["notes"] == ["renamed names its classes otherwise (a, ...) than the model (left, ...): "
                              "they are compared by number"]  # fmt: skip


def test_a_bin_is_asked_about_the_files_themselves_where_samples_are_files(here, capsys, monkeypatch):
    made(here, preprocessing={"fit": "crop", "invert": "always"})
    (here / "photos").mkdir()
    test, names = open_source("pictures.npz").test, [f"{i}.png" for i in range(9)]
    large = [np.pad(x.repeat(5, 0).repeat(5, 1), ((0, 0), (13, 13), (0, 0)), constant_values=99) for x in test.x]
    for name, picture in zip(names, large, strict=True):
        cv2.imwrite(str(here / "photos" / name), picture)

    @dataclass(frozen=True, eq=False)
    class Photos(Dataset):
        files: np.ndarray | None = None

    frames = Photos(np.zeros_like(test.x), test.y, name="photos", files=np.array(names))  # whatever they are kept as
    monkeypatch.setattr(evaluate_bin, "open_source", lambda source, **fetch: Splits(frames, frames))
    found = evaluated(capsys, "net.bin", "--data", "photos")
    engine = InferenceEngine("net.bin")
    answers = [engine.predict_image(*decode(here / "photos" / name)).argmax() for name in names]
    assert found["accuracy"] == np.mean(answers == test.y)
    assert [sum(row) for row in zip(*found["confusion"], strict=True)] == np.bincount(answers, minlength=3).tolist()
    assert {w["sample"] for w in found["worst"]} <= set(names)
    (here / "photos" / "4.png").unlink()
    assert "4.png does not exist" in mistake(capsys, "net.bin", "--data", "photos")


def test_a_bin_that_gives_values_is_asked_about_classes_all_the_same(here, capsys):
    net = bins.Bin((8, 8, 1), bins.GRAY, metadata={"answer": "values"}).add("flatten").add("linear", out_features=3)
    (here / "values.bin").write_bytes(net.bytes())
    found = evaluated(capsys, "values.bin", "--data", "pictures.npz")
    test, engine = open_source("pictures.npz").test, InferenceEngine("values.bin")
    scores = np.stack([engine.predict_image(x, "gray") for x in test.x])
    assert found["accuracy"] == (scores.argmax(1) == test.y).mean()
    assert found["notes"] == ["values.bin gives values: they are read as scores, the largest wins"]
    one = bins.Bin((8, 8, 1), bins.GRAY, metadata={"answer": "values"}).add("flatten").add("linear", out_features=1)
    (here / "one.bin").write_bytes(one.bytes())
    assert "one.bin" in mistake(capsys, "one.bin", "--data", "pictures.npz")
    np.savez("two.npz", x=test.x, y=test.y % 2)
    assert "gives one value, but the data have classes" in mistake(capsys, "one.bin", "--data", "two.npz")


def test_a_net_that_gives_values_is_judged_by_its_errors(here, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    np.savez("values.npz", x_train=x[:30], y_train=x[:30, :2] * 2, x_test=x[30:], y_test=x[30:, :2] * 2)
    (here / "values.json").write_text(json.dumps(
        {"name": "values", "input_shape": [5], "layers": [{"type": "linear", "out_features": 2}], "loss": "mse",
         "learning_rate": 0.1, "epochs": 3, "batch_size": 5}))  # fmt: skip
    assert train("--out", "run", "--quiet", blueprint="values.json", data="values.npz") == 0
    assert edge_export(["run", "-o", "net.bin"]) == 0
    mine, device = evaluated(capsys, "run"), evaluated(capsys, "net.bin", "--data", "values.npz")
    tested = json.loads((here / "run" / "test.json").read_text())
    assert mine["mse"] == pytest.approx(tested["loss"], rel=1e-5)
    assert device["mse"] == pytest.approx(mine["mse"], rel=1e-4)
    assert device["mae"] == pytest.approx(mine["mae"], rel=1e-4)
    assert main(["evaluate", "run"]) == 0
    assert "mean squared error" in capsys.readouterr().out


def test_a_bin_is_asked_about_the_photos_that_its_run_kept_apart(here, capsys):
    for n in range(120):  # four photos of each object, whose numbers lie far apart
        photos.write(here / "photos" / "ab"[n % 2] / f"{n // 2 % 15}-{n // 30:02}.png", photos.picture(n, (8, 8), 1))
    rule = ("--group", r"/(\d+)-", "--seed", 3, "--test-split", 0.2, "--validation-split", 0.25)
    settings = ("--out", "run", "--quiet", "--no-report", "--cache", "cache", "--epochs", 1)
    assert train(*settings, *rule, data="photos") == 0
    assert edge_export(["run", "-o", "net.bin"]) == 0
    sizes = {}
    for part in ("test", "validation", "train"):
        mine = evaluated(capsys, "run", "--split", part)
        device = evaluated(capsys, "net.bin", "--data", "photos", "--split", part)
        assert device["confusion"] == mine["confusion"]
        kept = json.loads((here / "run" / "photos.json").read_text())["parts"][part]
        sizes[part] = device["samples"]
        assert sizes[part] == len(kept)
        assert all(k % 4 == 0 for k in Counter(file.rpartition("-")[0] for file in kept).values())
    for model in ("run", "net.bin"):
        other = evaluated(capsys, model, "--data", "photos", "--test-split", 0.5, "--group", "(.*)")
        assert other["samples"] > sizes["test"]
        everything = evaluated(capsys, model, "--data", "photos", "--test-split", 0, "--split", "all")
        assert everything["samples"] == sum(sizes.values()) == 120


def test_mistakes_are_answered_in_a_sentence(here, capsys):
    made(here)
    assert "a .bin does not say where its data are" in mistake(capsys, "net.bin")
    assert "does not exist" in mistake(capsys, "none.bin", "--data", "pictures.npz")
    assert "there is no such file" in mistake(capsys, "nowhere")
    assert "holds weights alone" in mistake(capsys, _weights(here))
    assert "has a test set of its own" in mistake(capsys, "run", "--split", "all")
    bare = bins.Bin((8, 8, 1), bins.GRAY).add("flatten").add("linear", out_features=3)
    (here / "bare.bin").write_bytes(bare.bytes())
    assert "this .bin does not say which samples" in mistake(
        capsys, "bare.bin", "--data", "pictures.npz", "--split", "validation"
    )
    assert "--test-split is 1;" in mistake(capsys, "net.bin", "--data", "pictures.npz", "--test-split", 1)
    assert "--seed is -1;" in mistake(capsys, "net.bin", "--data", "pictures.npz", "--seed", -1)
    assert train("--out", "all", "--quiet", "--validation-split", 0, data=_without_test(here)) == 0
    assert "There is neither a test set nor samples held out" in mistake(capsys, "all")
    assert "the run held no samples out" in mistake(capsys, "all", "--split", "validation")
    np.savez("large.npz", x=np.zeros((4, 5), np.float32), y=np.arange(4) % 3)
    for model in ("run", "net.bin"):
        assert "values, but those of large have 5" in mistake(capsys, model, "--data", "large.npz", "--split", "all")


def _without_test(here):
    with np.load(here / "pictures.npz") as file:
        np.savez(here / "train.npz", x=file["x_train"], y=file["y_train"])
    return "train.npz"


def _weights(here):
    path = here / "weights.npz"
    np.savez(path, a=np.zeros(3))
    return path
