"""An answer that is none: how thresholds and temperature are fitted, that they reach the .bin, what edge-infer says."""

import json

import cv2
import numpy as np
import pytest
from runs import changed, train
from test_loop import pictures

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine, answers
from litenet.pyruntime.cli import main as edge_infer
from litenet.trainer import checkpoint, unknown
from litenet.trainer.cli import main as edge_train


def outputs(n=400, classes=5, seed=0, scale=3.0):
    """(z, y): a net that is right more often where its lead is large."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    z = rng.standard_normal((n, classes))
    z[np.arange(n), y] += scale * rng.random(n)
    return z, y


# ---- what is fitted


def test_margin_and_energy_are_what_their_formulas_say():
    z = np.array([[1.0, 3.0, -2.0], [0.5, 0.5, 0.0]])
    assert unknown.margin(z).tolist() == [2.0, 0.0]
    assert unknown.energy(z) == pytest.approx(np.log(np.exp(z).sum(1)))
    assert np.isfinite(unknown.energy(1e4 * z)).all()


@pytest.mark.parametrize("measures", [("margin",), ("energy",), ("energy_most",), tuple(unknown.MEASURES)])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_the_thresholds_lose_the_share_of_right_answers_that_may_be_lost(share, measures):
    z, y = outputs(2000)
    found = unknown.fit(z, y, [-z, -z], share, measures)
    right = z.argmax(1) == y
    lost = 1 - unknown.accepted(z[right], found).mean()
    assert share - 2e-3 <= lost <= share + 1e-3


@pytest.mark.parametrize(
    ("stranger", "rule"),
    [([-4.0, -9.0, -9.0, -9.0, -9.0], "energy"), ([30.0, 5.0, 0.0, 0.0, 0.0], "energy_most")],
    ids=["quiet, with a great lead", "loud"],
)
def test_the_rule_is_chosen_by_what_it_lets_pass(stranger, rule):
    z, y = outputs(1000)
    group = np.tile(stranger, (500, 1))
    found = unknown.fit(z, y, [group, group], 0.05)
    assert rule in found
    assert unknown.accepted(group, found).mean() == 0
    assert found["strangers_passed"] == found["negatives_passed"] < 0.01


def test_a_margin_is_used_where_wrong_answers_are_all_there_is_to_find():
    z, y = outputs(1000)
    assert "margin" in unknown.fit(z, y, [z, z], 0.05)


def test_wrong_answers_are_refused_more_often_than_right_ones():
    z, y = outputs(2000)
    found = unknown.fit(z, y, [-z, -z], 0.1)
    assert found["accepted_accuracy"] > found["accuracy"] + 0.02
    fresh, classes = outputs(2000, seed=1)
    again = unknown.trade(fresh, classes, found)
    assert again["accepted_accuracy"] > again["accuracy"] + 0.02
    assert again["rejected"] == pytest.approx(found["rejected"], abs=0.04)


@pytest.mark.parametrize("factor", [0.25, 1.0, 6.0])
def test_the_temperature_undoes_a_factor_on_the_outputs(factor):
    rng = np.random.default_rng(3)
    z = 2 * rng.standard_normal((20_000, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = (p.cumsum(1) < rng.random((len(z), 1))).sum(1)  # drawn by the very probabilities
    assert unknown.temperature(factor * z, y) == pytest.approx(factor, rel=0.05)


def test_a_net_without_a_mistake_on_few_samples_is_not_infallible():
    y = np.arange(60) % 3
    z = 20.0 * np.eye(3)[y]
    t = unknown.temperature(z, y)
    top = np.exp(20 / t) / (np.exp(20 / t) + 2)
    assert 0.95 < top < 0.995


def test_nothing_wrong_and_nothing_accepted_are_no_division_by_zero():
    y = np.arange(60) % 3
    z = 20.0 * np.eye(3)[y] + np.linspace(0, 1, 60)[:, None] * np.eye(3)[y]
    found = unknown.fit(z, y, [z, z], 0.05)
    assert found["accuracy"] == found["accepted_accuracy"] == 1.0
    assert unknown.trade(z, y, {"margin": 1e9}) == {
        "samples": 60, "accuracy": 1.0, "accepted_accuracy": None, "rejected": 1.0}  # fmt: skip
    assert "none is answered" in unknown.text({"margin": 1e9, **unknown.trade(z, y, {"margin": 1e9})})


def test_strangers_have_the_same_pixels_in_other_places():
    x = np.random.default_rng(0).integers(0, 256, (6, 13, 9, 3), np.uint8)
    strange, negative = unknown.strangers(x, 5)
    assert (strange == unknown.strangers(x, 5)[0]).all() and (strange != unknown.strangers(x, 6)[0]).any()
    assert (negative == 255 - x).all()
    for one, other in zip(x, strange, strict=True):
        assert (one != other).mean() > 0.3
        assert np.array_equal(np.sort(one.reshape(-1, 3), 0), np.sort(other.reshape(-1, 3), 0))
        tiles = {one[i * 3 : i * 3 + 3, j * 2 : j * 2 + 2].tobytes() for i in range(4) for j in range(4)}
        assert {other[i * 3 : i * 3 + 3, j * 2 : j * 2 + 2].tobytes() for i in range(4) for j in range(4)} == tiles
    rows = np.random.default_rng(0).random((50, 4), np.float32)
    moved, mirrored = unknown.strangers(rows, 5)
    assert mirrored.argmax() == rows.argmin()
    assert (np.sort(moved, 0) == np.sort(rows, 0)).all() and (moved != rows).any(1).mean() > 0.9


# ---- from the run to the answer


def trained(folder, *more, softmax=False):
    """run and run.bin of 200 pictures with a test set."""
    pictures(folder / "many.npz", 600)
    if softmax:
        changed(folder, layers=[*json.loads((folder / "net.json").read_text())["layers"], {"type": "softmax"}])
    assert train("--out", "run", "--validation-split", 0.25, "--epochs", 1, *more, data="many.npz") == 0
    assert edge_export(["run", "-o", "run.bin"]) == 0


def pictures_of(folder, name, image):
    cv2.imwrite(str(folder / name), image)
    return str(folder / name)


@pytest.mark.parametrize("softmax", [False, True])
def test_a_run_says_when_it_will_not_know_and_the_bin_does(here, capsys, softmax):
    trained(here, softmax=softmax)
    out = capsys.readouterr().out
    assert "unknown (" in out and "of 150 held-out samples" in out and "of 9 test samples" in out
    kept = checkpoint.load(here / "run" / "best.npz").meta["unknown"]
    assert not (softmax and {"energy", "energy_most"} & kept.keys())  # a softmax has lost the energy
    with InferenceEngine("run.bin") as engine:
        assert engine.metadata["unknown"] == kept
    data = np.load("many.npz")
    known = pictures_of(here, "known.png", data["x_test"][0])
    strange = pictures_of(here, "strange.png", np.full((8, 8), 128, np.uint8))
    capsys.readouterr()
    assert edge_infer(["run.bin", known, strange, "--json"]) == 0  # not knowing is no failure
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["unknown"] for row in rows] == [False, True]
    assert rows[0]["label"] == str(data["y_test"][0]) == str(rows[0]["index"])
    assert rows[1]["label"] == "unknown"
    assert rows[1]["top"][0]["index"] == rows[1]["index"]
    assert edge_infer(["run.bin", strange]) == 0
    line = capsys.readouterr().out
    guesses = rows[1]["top"]
    assert line.rstrip().endswith(
        f"unknown ({guesses[0]['label']} {100 * guesses[0]['probability']:.1f} %, "
        f"{guesses[1]['label']} {100 * guesses[1]['probability']:.1f} %)"
    )
    assert edge_infer(["run.bin", strange, "--guess", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["label"] == guesses[0]["label"] and "unknown" not in row


@pytest.mark.parametrize("softmax", [False, True])
def test_checkpoint_and_bin_are_as_sure_as_the_temperature_makes_them(here, capsys, softmax):
    trained(here, softmax=softmax)
    assert abs(checkpoint.load(here / "run" / "best.npz").meta["unknown"]["temperature"] - 1) > 0.01
    found = []
    for model in (["run"], ["run.bin", "--data", "many.npz"]):
        capsys.readouterr()
        assert edge_train(["evaluate", *model, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    for key in ("log_loss", "ece", "confidence"):
        assert abs(found[0][key] - found[1][key]) <= 1e-4, key


def test_the_answer_is_the_one_the_fit_would_give(here):
    trained(here, "--unknown", 0.2)
    data, kept = np.load("many.npz"), checkpoint.load(here / "run" / "best.npz").meta["unknown"]
    with InferenceEngine("run.bin") as engine:
        z = np.stack([engine.predict_image(picture) for picture in data["x_train"][:200]])
        said = [answers.answer(engine, "f", row, 0.0, 1)["unknown"] for row in z]
        p = answers.probabilities(engine, z[0])
    assert (~unknown.accepted(z, kept) == said).all()
    assert 0.05 < np.mean(said) < 0.5
    scaled = np.exp(z[0].astype(np.float64) / kept["temperature"])
    assert p == pytest.approx(scaled / scaled.sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("more", "said"),
    [(("--unknown", 0), ""), (("--validation-split", 0), ""), (("--fraction", 1), "3 samples held out, 50 are needed")],
)
def test_without_enough_to_fit_on_the_net_always_answers(here, capsys, more, said):
    data = "pictures.npz"
    assert train("--out", "run", "--epochs", 1, *more, data=data) == 0
    assert "unknown" not in capsys.readouterr().out
    assert said in (here / "run" / "log.txt").read_text()
    assert "unknown" not in checkpoint.load(here / "run" / "best.npz").meta
    assert edge_export(["run", "-o", "run.bin"]) == 0
    with InferenceEngine("run.bin") as engine:
        found = answers.answer(engine, "f", np.float32([0, 0, 0]), 0.0, 1)
    assert "unknown" not in found
