"""How edge-train answers mistakes: a wrong command with its usage, wrong input with one sentence."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from runs import changed, mistake, train
from test_loop import LAYERS

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.preprocess import Preprocessing
from litenet.trainer.cli import main
from litenet.trainer.data.load import open_source
from litenet.trainer.data.pictures import to_frames

# ---- the command was wrong: 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "give a blueprint and --data, or --resume RUN"),
        (["net.json"], "give a blueprint and --data"),
        (["--data", "digits"], "give a blueprint and --data"),
        (["net.json", "--resume", "run"], "--resume takes the blueprint from the run"),
        (["--resume", "run", "--out", "other"], "leave --out away"),
        (["net.json", "--data", "digits", "--save-every", "-1"], "--save-every is a number of updates"),
        (["net.json", "--data", "digits", "--epochs", "many"], "invalid int value"),
        (["net.json", "--data", "digits", "--schedule", "sometimes"], "invalid choice"),
        (["net.json", "--sideways"], "unrecognized arguments"),
        (["plan"], "required: blueprint"),
        (["plan", "net.json", "--lr", "1"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_exits_with_2_and_its_usage(here, capsys, arguments, word):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: edge-train")
    assert word in err


# ---- the input was wrong: 1


def test_an_absent_blueprint_is_named(here, capsys):
    text = mistake(capsys, 1, "nett.json", "--data", "pictures.npz")
    assert "nett.json" in text and "no such file" in text and "net.json" in text.split("\n")[1]
    assert "no such file" in mistake(capsys, 1, "plan", "nett.json")


def test_absent_data_are_named(here, capsys):
    text = mistake(capsys, 1, "net.json", "--data", "picture.npz")
    assert text.startswith("picture.npz: no such data set, folder or file (did you mean pictures.npz?)")
    assert not (here / "runs").exists()


def test_an_input_that_does_not_fit_the_data_is_refused_with_the_one_that_does(here, capsys):
    layers = [{"type": "linear", "out_features": 3}]
    name = changed(here, input_shape=[63], layers=layers)
    assert mistake(capsys, 1, name, "--data", "pictures.npz") == (
        "net.json: input_shape is [63], 63 values, but a sample of pictures is 8 x 8 x 1 = 64 values.\n"
        '  Write "input_shape": [1, 8, 8].'
    )
    assert not (here / "runs").exists()
    assert train("--quiet", blueprint=changed(here, input_shape=[64], layers=layers)) == 0  # a picture as a row


def test_pictures_of_another_size_are_fitted_as_the_device_does_it(here, capsys):
    """Training sees the bytes of the runtime's own preprocessing, inversion included."""
    wishes = {"resize": "bilinear", "fit": "crop", "invert": "always"}
    name = changed(here, input_shape=[1, 6, 10], preprocessing=wishes)
    assert train("--out", "run", "--epochs", "1", blueprint=name) == 0
    assert "pictures of 8 x 8 x 1 are fitted to 6 x 10 x 1, as on the device" in capsys.readouterr().err
    stored = open_source("pictures.npz").train
    fitted = to_frames(stored, wishes, (6, 10, 1))
    recipe = Preprocessing(resize="bilinear", fit="crop", color="gray", invert="always")
    assert (fitted.x[3] == recipe.frame(stored.x[3], 6, 10, "gray")).all()
    data = json.loads(Path("run/config.json").read_text())["data"]
    assert (data["shape"], data["stored_shape"]) == ([6, 10, 1], [8, 8, 1])
    assert data["mean"] == [pytest.approx(fitted.x.mean(), abs=1e-3)]
    assert main(["--resume", "run", "--epochs", "2", "--quiet"]) == 0
    assert edge_export(["run", "-o", "net.bin"]) == 0
    assert InferenceEngine("net.bin").input_shape == (6, 10, 1)


def test_fewer_outputs_than_classes_are_refused(here, capsys):
    name = changed(here, layers=[*LAYERS[:-1], {"type": "linear", "out_features": 2}])
    assert mistake(capsys, 1, name, "--data", "pictures.npz") == (
        "net.json: the last layer has 2 outputs, but pictures has 3 classes.\n"
        '  Write "out_features": 3 in the last layer.'
    )


def test_labels_that_do_not_fit_the_outputs_are_refused(here, capsys):
    name = changed(here, labels=["cat", "dog"])
    assert mistake(capsys, 1, name, "--data", "pictures.npz") == (
        "net.json: labels has 2 names, but the last layer has 3 outputs.\n  Give one name for each output."
    )


def test_answers_that_the_loss_cannot_use_are_refused(here, capsys):
    x = np.zeros((20, 8, 8, 1), np.float32)
    np.savez("values.npz", x=x, y=np.zeros((20, 2), np.float32))
    assert mistake(capsys, 1, "net.json", "--data", "values.npz") == (
        "net.json: the loss is cross_entropy, but the answers of values are values, no class numbers.\n"
        '  Write "loss": "mse", or store class numbers as whole numbers.'
    )
    name = changed(here, loss="mse")
    assert mistake(capsys, 1, name, "--data", "values.npz") == (
        "net.json: the last layer gives 3 values, but an answer of values has 2.\n"
        '  Write "out_features": 2 in the last layer.'
    )


def test_normalisation_for_other_channels_is_refused(here, capsys):
    layers = [{"type": "linear", "out_features": 3}]
    name = changed(here, input_shape=[64], layers=layers, preprocessing={"mean": [1, 2, 3]})
    assert mistake(capsys, 1, name, "--data", "pictures.npz") == (
        "net.json: preprocessing.mean has 3 numbers, but a picture of pictures has 1 channels.\n"
        "  Give one number, or 1."
    )


def test_too_few_samples_for_one_batch_are_refused(here, capsys):
    assert train("--batch", 50, "--out", "run", "--quiet") == 1
    assert "has 27 samples, fewer than one batch of 50.\n  Use --batch 27." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [("--batch", 0, "--batch: batch_size is 0"), ("--lr", -1, "--lr: learning_rate is -1"),
     ("--clip-norm", 0, "--clip-norm: clip_norm is 0"), ("--validation-split", 1, "--validation-split: "),
     ("--early-stopping", 0, "--early-stopping: patience is 0"), ("--seed", -1, "--seed: seed is -1"),
     ("--epochs", 0, "--epochs: epochs is 0")],
)  # fmt: skip
def test_a_number_out_of_range_is_refused_by_its_option(here, capsys, option, value, word):
    assert word in mistake(capsys, 1, "net.json", "--data", "pictures.npz", option, value)
    assert not (here / "runs").exists()


def test_a_folder_that_holds_a_run_is_not_written_over(here, capsys):
    assert train("--out", "run", "--quiet") == 0
    capsys.readouterr()
    before = (here / "run" / "best.npz").read_bytes()
    assert mistake(capsys, 1, "net.json", "--data", "pictures.npz", "--out", "run") == (
        "run holds a run already.\n  Go on with it by --resume run, or choose another folder with --out."
    )
    assert (here / "run" / "best.npz").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(here, capsys):
    (here / "file").write_text("")
    for out in ("file", "file/run"):
        text = mistake(capsys, 1, "net.json", "--data", "pictures.npz", "--out", out)
        assert text.startswith(f"{out} could not be made: ")


def test_a_run_that_diverges_is_ended_with_one_sentence(here, capsys):
    x = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    np.savez("line.npz", x=x, y=x[:, :1])
    name = changed(here, input_shape=[3], layers=[{"type": "linear", "out_features": 1}], loss="mse")
    assert train("--lr", 100, "--out", "run", blueprint=name, data="line.npz") == 1
    *_, last, remedy = capsys.readouterr().err.splitlines()
    assert re.match(r"edge-train: The (loss|norm of the gradients) became (nan|inf) in epoch 1, batch \d+\.", last)
    assert remedy == (
        "  Lower the learning rate, or add --clip-norm 1; --debug-nan tells more. What was saved before is kept."
    )
