"""What counts how much: class weights from the data, equal draws from each class, a share of the samples."""

import json

import numpy as np
import pytest
from nets import net
from runs import LAYERS, NET, changed, mistake, train

from litenet.trainer import balance, checkpoint
from litenet.trainer import blueprint as blueprints
from litenet.trainer.cli import main
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.errors import UserError
from litenet.trainer.trainer import Trainer

Y = np.repeat([0, 1, 2], [60, 30, 10])


def config(folder):
    return json.loads((folder / "config.json").read_text())


# ---- class weights


def test_automatic_weights_make_every_class_weigh_the_same():
    weights = balance.class_weights(Y, 3)
    assert weights == [0.555556, 1.111111, 3.333333]
    assert [round(w * n, 3) for w, n in zip(weights, np.bincount(Y), strict=True)] == [33.333] * 3


def test_a_class_without_a_sample_weighs_one():
    assert balance.class_weights(np.array([0, 0, 2]), 4) == [0.375, 1.0, 0.75, 1.0]


@pytest.mark.parametrize("way", ["blueprint", "command"])
def test_automatic_weights_become_numbers_that_a_run_remembers(here, way):
    data = np.load("pictures.npz")
    keep = np.sort(np.concatenate([np.flatnonzero(data["y_train"] == k)[:n] for k, n in ((0, 10), (1, 6), (2, 3))]))
    np.savez("odd.npz", **{k: data[k][keep] if "train" in k else data[k] for k in data.files})
    more, given = {}, ["--class-weights", "auto"]
    if way == "blueprint":
        more, given = {"loss": {"type": "cross_entropy", "class_weights": "auto"}}, []
    changed(here, **more)
    assert train("--out", "run", "--quiet", "--validation-split", 0, *given, data="odd.npz") == 0
    loss = config(here / "run")["blueprint"]["loss"]
    assert loss["class_weights"] == balance.class_weights(data["y_train"][keep], 3)
    assert checkpoint.load(here / "run").blueprint.loss.fields == {"class_weights": loss["class_weights"]}
    numbers = ",".join(map(str, loss["class_weights"]))
    changed(here)
    assert train("--out", "same", "--quiet", "--validation-split", 0, "--class-weights", numbers, data="odd.npz") == 0
    first, second = (checkpoint.load(here / name / "last.npz").arrays for name in ("run", "same"))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_weights_for_a_loss_that_has_none_are_refused(here, capsys):
    changed(here, loss="logit_margin")
    text = mistake(capsys, 1, "net.json", "--data", "pictures.npz", "--class-weights", "auto")
    assert text.startswith("net.json: --class-weights goes with the loss cross_entropy, but this net has logit_margin.")
    assert "--sampling balanced" in text


def test_a_trainer_without_data_cannot_weigh_by_itself():
    loss = {"type": "cross_entropy", "class_weights": "auto"}
    blueprint = net([{"type": "linear", "out_features": 3}], [5], loss=loss)
    with pytest.raises(UserError, match="class_weights is auto, which takes the training data to decide"):
        Trainer(blueprint, 4)


# ---- equal draws


@pytest.mark.parametrize("classes", [[0, 1, 2], [0, 2, 7]])
def test_a_balanced_epoch_draws_all_classes_equally_often(classes):
    y = np.array(classes)[Y]
    order = balance.balanced_order(y, 5, 0)
    counts = np.bincount(y[order])[classes]
    assert len(order) == 100 and sorted(counts.tolist()) == [33, 33, 34]
    seen = np.bincount(order, minlength=100)
    assert seen[:60].max() == 1  # of the large class each at most once
    rare = seen[90:]
    assert (rare.min(), rare.max()) in ((3, 4),)  # of the rare class each before any comes again
    assert (np.diff(y[order]) != 0).sum() > 40  # well mixed


def test_draws_follow_from_seed_and_epoch_alone():
    first = balance.balanced_order(Y, 5, 3)
    assert (first == balance.balanced_order(Y, 5, 3)).all()
    assert (first != balance.balanced_order(Y, 5, 4)).any()
    assert (first != balance.balanced_order(Y, 6, 3)).any()


def test_a_balanced_run_is_resumed_to_the_same_bits(here):
    changed(here, sampling="balanced")
    assert train("--out", "whole", "--epochs", 2, "--quiet") == 0
    assert train("--out", "half", "--epochs", 1, "--quiet") == 0
    assert main(["--resume", "half", "--epochs", "2", "--quiet"]) == 0
    first, second = (checkpoint.load(here / name / "last.npz").arrays for name in ("whole", "half"))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_values_cannot_be_balanced():
    data = Dataset(np.zeros((4, 5), np.float32), np.zeros((4, 1), np.float32))
    settings = type("S", (), {"sampling": "balanced"})
    with pytest.raises(UserError, match='sampling is balanced, but .* has no classes.\n  Write "sampling": "each".'):
        balance.check_sampling(settings, data, "net.json")


# ---- a share of the samples


def test_a_fraction_takes_as_much_of_each_class_and_at_least_one():
    data = Dataset(np.arange(100, dtype=np.float32).reshape(100, 1), Y)
    some = balance.share(data, 0.1, 3)
    assert np.bincount(some.y).tolist() == [6, 3, 1]
    assert (np.diff(some.x[:, 0]) > 0).all()  # in their order
    assert np.bincount(balance.share(data, 0.01, 3).y).tolist() == [1, 1, 1]
    assert (balance.share(data, 0.1, 3).x == some.x).all()
    assert (balance.share(data, 0.1, 4).x != some.x).any()
    assert balance.share(data, 1.0, 3) is data


def test_a_fraction_leaves_what_is_held_out_whole(here, capsys):
    assert train("--out", "run", "--fraction", 0.5, "--epochs", 1) == 0
    assert "15 samples, 3 held out" in capsys.readouterr().err
    assert config(here / "run")["settings"]["fraction"] == 0.5
    assert NET["layers"] is LAYERS and blueprints.load("net.json")


def test_a_plan_needs_no_data_for_automatic_weights(here, capsys):
    changed(here, loss={"type": "cross_entropy", "class_weights": "auto"})
    assert main(["plan", "net.json"]) == 0
    assert "a training step needs" in capsys.readouterr().out
