"""edge-train as people use it: what a run leaves behind, what `plan` says, how mistakes are answered."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from nets import EVERYTHING, net
from runs import changed, mistake, train
from test_display import Terminal
from test_loop import LAYERS, pictures

from litenet.trainer import blueprint as blueprints
from litenet.trainer import checkpoint, cli, session
from litenet.trainer.cli import main
from litenet.trainer.data.load import open_source
from litenet.trainer.memory import parse_bytes
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

# ---- a run


def test_a_run_leaves_a_folder_that_tells_everything(here, capsys):
    assert train("--out", "run") == 0
    out, err = capsys.readouterr()
    run = here / "run"
    assert sorted(p.name for p in run.iterdir()) == [
        ".lock", "best.npz", "config.json", "environment.json", "last.npz", "log.txt", "metrics.csv", "metrics.jsonl",
        "report.html", "test.json"]  # fmt: skip

    config = json.loads((run / "config.json").read_text())
    blueprint = blueprints.load("net.json")
    assert blueprints.parse(json.dumps(config["blueprint"])) == blueprint
    assert config["settings"] == settings_for(blueprint, {}).as_dict()
    data = config["data"]
    train_set = open_source("pictures.npz").train
    assert (data["source"], data["name"], data["samples"]) == (str(here / "pictures.npz"), "pictures", 30)
    assert data["hash"] == train_set.hash()
    assert (data["shape"], data["picture"], data["labels"]) == ([8, 8, 1], True, None)
    assert data["mean"] == [pytest.approx(train_set.x.mean(), abs=1e-3)]
    assert data["std"] == [pytest.approx(train_set.x.std(), abs=1e-3)]

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    with (run / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [{k: str(v) for k, v in row.items()} for row in rows] == table

    best, last = (checkpoint.load(run / f"{name}.npz") for name in ("best", "last"))
    assert last.meta["progress"]["history"] == rows
    assert last.meta["progress"]["t"] == last.meta["progress"]["updates"] == 10  # 27 samples in batches of 5, twice
    assert best.meta["progress"]["best_epoch"] == min(range(2), key=lambda k: rows[k]["validation_loss"])
    assert last.meta["settings"] == config["settings"]
    assert last.meta["data"] == data

    trainer = Trainer(best.blueprint, 9, mean=tuple(data["mean"]), std=tuple(data["std"]))
    trainer.load_arrays(best.arrays, "best")
    test_set = open_source("pictures.npz").test
    found = trainer.evaluate(test_set.x, test_set.y)
    test = json.loads((run / "test.json").read_text())
    assert (test["checkpoint"], test["samples"], test["accuracy"]) == ("best.npz", 9, found.accuracy)
    assert test["loss"] == pytest.approx(found.loss, rel=1e-6)

    log = (run / "log.txt").read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line).split(",")[0] for line in log] == [
        "start at epoch 1", "epoch epoch 1", "epoch epoch 2", "end: done",
        "no threshold for unknown: 3 samples held out", f"test loss {test['loss']:.5f}"]  # fmt: skip

    assert re.fullmatch(
        r"run: done after 2 epochs, 0:0\d; best epoch [12]\n"
        rf"test: loss {test['loss']:.4f}, accuracy {100 * test['accuracy']:.2f} % \(9 samples\)\n",
        out,
    )
    first, *epochs, closing = err.splitlines()
    assert closing == "run/report.html shows the run"
    arena = Trainer(blueprint, 5, update="immediate").backend.bytes
    assert first == f"small on pictures: 27 samples, 3 held out; batch 5, arena {arena:,} bytes; run folder run"
    assert len(epochs) == 2
    assert epochs[0].startswith("epoch 1/2  train loss ")


def test_quiet_prints_the_result_alone(here, capsys):
    assert train("--quiet") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split(":")[0] for line in out.splitlines()] == ["runs/small", "test"]


def test_a_run_without_a_folder_of_its_own_takes_the_next_free_one(here, capsys):
    for expected in ("small", "small-2", "small-3"):
        assert train("--epochs", 1, "--quiet") == 0
        assert (here / "runs" / expected / "last.npz").exists()
    assert capsys.readouterr().out.count("runs/small") == 3


def test_options_overrule_the_blueprint(here):
    options = {"--epochs": 1, "--batch": 3, "--lr": 0.5, "--schedule": "cosine", "--warmup": 1, "--accumulation": 2,
               "--clip-norm": 2, "--clip-value": 0.5, "--validation-split": 0.2, "--early-stopping": 4,
               "--seed": 9}  # fmt: skip
    assert train("--out", "run", "--quiet", *(word for option in options.items() for word in option)) == 0
    found = json.loads((here / "run" / "config.json").read_text())["settings"]
    want = {
        "epochs": 1, "batch_size": 3, "learning_rate": 0.5, "schedule": {"type": "cosine"}, "warmup": 1.0,
        "accumulation": 2, "clip_norm": 2.0, "clip_value": 0.5, "validation_split": 0.2, "seed": 9,
        "early_stopping": {"patience": 4, "min_delta": 0.0, "monitor": "loss"}, "augmentation": None}  # fmt: skip
    assert {key: found[key] for key in want} == want


def test_early_stopping_given_as_a_number_keeps_the_blueprints_other_rules(here):
    blueprint = net(LAYERS, early_stopping={"patience": 9, "monitor": "accuracy", "min_delta": 0.25})
    settings = settings_for(blueprint, {"early_stopping": 2})
    assert settings.early_stopping == {"patience": 2, "monitor": "accuracy", "min_delta": 0.25}


def test_data_without_a_test_set_and_a_run_without_validation(here, capsys):
    data = open_source("pictures.npz").train
    np.savez("only.npz", x=data.x, y=data.y)
    assert train("--out", "run", "--validation-split", 0, data="only.npz") == 0
    out, err = capsys.readouterr()
    assert not (here / "run" / "test.json").exists()
    assert len(out.splitlines()) == 1
    assert "27 samples" not in err and "30 samples; batch 5" in err
    assert "validation" not in err


def test_the_built_in_digits_train_from_the_example(here, capsys):
    example = Path(__file__).parent.parent / "examples" / "digits_cnn.json"
    assert main([str(example), "--data", "digits", "--epochs", "2", "--out", "run", "--quiet"]) == 0
    assert json.loads((here / "run" / "test.json").read_text())["accuracy"] > 0.8
    config = json.loads((here / "run" / "config.json").read_text())
    assert config["data"]["labels"] == list("0123456789")


def test_pixels_are_normalised_as_the_blueprint_says(here):
    name = changed(here, preprocessing={"mean": 128, "std": [64]})
    assert train("--out", "run", "--quiet", "--epochs", 1, blueprint=name) == 0
    data = json.loads((here / "run" / "config.json").read_text())["data"]
    assert (data["mean"], data["std"]) == ([128.0], [64.0])


def test_values_are_learned_by_a_regression(here, capsys):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3)).astype(np.float32)
    np.savez("line.npz", x=x, y=(x @ np.float32([[1], [2], [-1]])).astype(np.float32))
    layers = [{"type": "linear", "out_features": 1}]
    name = changed(here, input_shape=[3], layers=layers, loss="mse", epochs=40)
    assert train("--out", "run", blueprint=name, data="line.npz") == 0
    row = json.loads((here / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["validation_loss"] < 1e-3
    assert row["train_accuracy"] is None and row["validation_accuracy"] is None
    assert " acc " not in capsys.readouterr().err
    config = json.loads((here / "run" / "config.json").read_text())
    assert config["data"]["mean"] is None  # float32 is taken as it is


def test_a_yes_or_no_net_may_have_one_output(here):
    data = open_source("pictures.npz").train
    np.savez("two.npz", x=data.x, y=(data.y == 0).astype(np.int64))
    layers = [*LAYERS[:-1], {"type": "linear", "out_features": 1}]
    name = changed(here, layers=layers, loss="bce", epochs=6)
    assert train("--out", "run", "--quiet", blueprint=name, data="two.npz") == 0
    row = json.loads((here / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["train_accuracy"] > 0.8


def test_labels_come_from_the_blueprint_or_are_filled_up_with_numbers(here):
    layers = [*LAYERS[:-1], {"type": "linear", "out_features": 5}]
    name = changed(here, layers=layers, labels=["a", "b", "c", "d", "e"])
    assert train("--out", "run", "--quiet", "--epochs", 1, blueprint=name) == 0
    assert json.loads((here / "run" / "config.json").read_text())["data"]["labels"] == ["a", "b", "c", "d", "e"]
    data = open_source("pictures.npz").train
    np.savez("named.npz", x=data.x, y=data.y, names=np.array(["cat", "dog", "cow"]))
    name = changed(here, layers=layers)
    assert train("--out", "more", "--quiet", "--epochs", 1, blueprint=name, data="named.npz") == 0
    labels = json.loads((here / "more" / "config.json").read_text())["data"]["labels"]
    assert labels == ["cat", "dog", "cow", "3", "4"]


def test_more_class_names_than_outputs_are_left_out(here):
    data = open_source("pictures.npz").train
    np.savez("named.npz", x=data.x, y=data.y, names=np.array(["cat", "dog", "cow", "none yet"]))
    assert train("--out", "run", "--quiet", "--epochs", 1, data="named.npz") == 0
    assert json.loads((here / "run" / "config.json").read_text())["data"]["labels"] is None


# ---- plan


def figures(text):
    """The byte counts of `edge-train plan`, by the words before them."""
    found = re.findall(r"^ *([a-z ]+?) *(\d[\d,]*)(?= |$)", text, re.M)
    return {name: int(n.replace(",", "")) for name, n in found}


@pytest.mark.parametrize(
    ("options", "update", "batch"),
    [((), "immediate", 5), (("--batch", 17), "immediate", 17), (("--clip-norm", 1), "end", 5),
     (("--accumulation", 2, "--batch", 4), "end", 4)],
)  # fmt: skip
def test_plan_tells_the_exact_bytes_a_trainer_takes(here, capsys, options, update, batch):
    for layers, shape in ((LAYERS, [1, 8, 8]), (EVERYTHING, [2, 8, 8])):
        name = changed(here, layers=layers, input_shape=shape)
        assert main(["plan", name, *map(str, options)]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        trainer = Trainer(name, batch, update=update)
        found = figures(out)
        assert found["a training step needs"] == trainer.backend.bytes == trainer.plan.arena_bytes
        assert len(trainer.backend.arena) == trainer.backend.bytes
        assert found["no plan needs less than"] == trainer.plan.lower_bound <= trainer.plan.arena_bytes
        parameters = sum(w.size for _, w in trainer.model.weights.items())
        assert out.startswith(f"small: batch {batch}, {parameters:,} parameters, {len(trainer.plan.launches)} launches")
        assert ("gradients" in found) is (update == "end")
        assert found["weights"] == 4 * parameters
        assert "\npeak: " in out


def test_plan_tells_the_largest_batch_of_a_budget(here, capsys):
    assert main(["plan", "net.json", "--memory", "1MB"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r"largest batch in 1 MB: ([\d,]+) \(([\d,]+) bytes\)", last)
    best, need = (int(n.replace(",", "")) for n in found.groups())
    assert Trainer("net.json", best, update="immediate").backend.bytes == need <= 10**6
    assert Trainer("net.json", best + 1, update="immediate").backend.bytes > 10**6


def test_the_largest_batch_is_found_where_a_larger_one_needs_less(here, capsys):
    """Greedy placement is not always monotone; here is a net whose batch 41 takes less than its batch 40."""
    rng = np.random.default_rng(302)
    layers = [{"type": "linear", "out_features": int(rng.integers(1, 200))} for _ in range(int(rng.integers(1, 6)))]
    name = changed(here, layers=layers, input_shape=[int(rng.integers(1, 200))], optimizer="sgd")
    need = {b: Trainer(name, b, update="immediate").plan.arena_bytes for b in range(30, 90)}
    dips = [b for b in need if b + 1 in need and need[b + 1] < need[b]]
    assert dips
    for b in dips:
        budget = need[b + 1]
        assert main(["plan", name, "--memory", str(budget)]) == 0
        best = int(re.search(r"largest batch in .*: (\d+) \(", capsys.readouterr().out).group(1))
        assert best == max(b for b in need if need[b] <= budget)


@pytest.mark.parametrize("before", [1, 3])
def test_a_batch_that_does_not_fit_is_split_into_one_that_does(here, capsys, before):
    """The advice is followed, and holds: accumulation keeps gradients, so it needs a plan of its own."""
    budget = Trainer("net.json", 24).backend.bytes
    assert main(["plan", "net.json", "--batch", "96", "--accumulation", str(before), "--memory", str(budget)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r"batch 96 does not fit; use --batch (\d+) --accumulation (\d+) for the same update", last)
    batch, accumulation = map(int, found.groups())
    assert (batch, accumulation) == (24, 4 * before)
    assert main(["plan", "net.json", "--batch", str(batch), "--accumulation", str(accumulation)]) == 0
    assert figures(capsys.readouterr().out)["a training step needs"] <= budget


def test_a_batch_that_cannot_be_split_is_told_what_fits(here, capsys):
    budget = Trainer("net.json", 5, update="immediate").backend.bytes
    assert budget < Trainer("net.json", 5).backend.bytes
    assert main(["plan", "net.json", "--batch", "7", "--memory", str(budget - 1)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"batch 7 does not fit; use --batch [1-4]( --accumulation 7 for the same update)?", last)
    tiny = Trainer("net.json", 1, update="immediate").backend.bytes
    assert main(["plan", "net.json", "--batch", "7", "--memory", str(tiny)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "batch 7 does not fit; use --batch 1"


def test_a_budget_that_not_one_sample_fits_is_refused(here, capsys):
    assert main(["plan", "net.json", "--memory", "1kB"]) == 1
    out, err = capsys.readouterr()
    need = Trainer("net.json", 1, update="immediate").backend.bytes
    assert out.startswith("small: batch 5")
    assert err.startswith(f"edge-train: net.json: not even batch 1 fits 1 kB: it needs {need / 1000:.3g} kB.")


@pytest.mark.parametrize("size", ["lots", "inf", "-2GB", "0", "nan"])
def test_a_budget_that_is_no_size_is_refused(here, capsys, size):
    assert main(["plan", "net.json", f"--memory={size}"]) == 1
    assert f"--memory is '{size}'; a size such as 2GB" in capsys.readouterr().err
    assert parse_bytes("2kb") == 2000


# ---- resume


@pytest.fixture
def stopped(here, capsys):
    """A run of 2 epochs of which one is done."""
    bp = blueprints.load("net.json")
    run = session.start(bp, "pictures.npz", {}, here / "run")
    assert run.run(session.loop.Events(stop=lambda: run.progress.epoch == 1)) == "stopped"
    return here / "run"


def test_resume_ends_the_run_and_tests_it(stopped, capsys):
    assert main(["--resume", "run"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("run: done after 2 epochs")
    assert err.count("epoch 2/2") == 1 and "epoch 1/2" not in err
    assert (stopped / "test.json").exists()
    assert "start at epoch 2, batch 0" in (stopped / "log.txt").read_text()
    assert main(["--resume", "run/last.npz", "--quiet"]) == 0  # nothing is left to do


def test_resume_with_other_settings_is_refused_by_option(stopped, capsys):
    text = mistake(capsys, 1, "--resume", "run", "--lr", 0.5, "--batch", 4, "--clip-norm", 1)
    assert text == (
        "--resume continues with the run's own settings, but --batch, --clip-norm, --lr was given anew.\n"
        "  Leave it out, or start a new run."
    )
    assert "--epochs: epochs is 0" in mistake(capsys, 1, "--resume", "run", "--epochs", 0)


def test_resume_with_other_data_is_refused(stopped, capsys):
    old = open_source("pictures.npz").train.hash()
    shutil.move("pictures.npz", "moved.npz")
    pictures("pictures.npz", seed=1)
    new = open_source("pictures.npz").train.hash()
    text = mistake(capsys, 1, "--resume", "run")
    assert "pictures.npz: the data are not those the run in run was started with" in text
    assert f"(hash {new}, expected {old})" in text
    assert "moved.npz" not in text
    assert main(["--resume", "run", "--data", "moved.npz", "--quiet"]) == 0  # the same data in another place
    assert json.loads((stopped / "config.json").read_text())["data"]["source"] == str(Path("moved.npz").resolve())


def test_resume_of_what_is_no_run_is_refused(here, capsys):
    assert "there is no such file" in mistake(capsys, 1, "--resume", "nowhere")
    np.savez("weights.npz", **{"layer_0.weight": np.ones(3)})
    assert mistake(capsys, 1, "--resume", "weights.npz") == (
        "weights.npz holds weights only.\n  Resume from a run folder or its last.npz."
    )


# ---- processes and signals


def edge_train(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "litenet.trainer", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_the_module_is_the_command(here):
    done = edge_train("net.json", "--data", "pictures.npz", "--quiet", "--out", "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("run: done after 2 epochs")
    bad = edge_train("absent.json", "--data", "pictures.npz")
    assert bad.returncode == 1
    assert bad.stderr.startswith("edge-train: absent.json: there is no such file")
    assert "Traceback" not in bad.stderr
    assert edge_train("--epochs").returncode == 2


def test_help_is_quick_because_it_imports_nothing_heavy():
    code = "import sys; from litenet.trainer.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('numpy', 'tqdm', 'yaml', 'litenet.trainer.trainer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith("usage: edge-train")
    assert "edge-train --resume runs/mnist_cnn" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_says_each_option_of_both_commands(capsys):
    for arguments, words in (
        (["--help"], ("--data", "--resume", "--save-every", "--warmup", "--early-stopping", "--quiet")),
        (["plan", "--help"], ("--memory", "--batch", "--accumulation")),
    ):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        out = capsys.readouterr().out
        assert stop.value.code == 0
        assert all(word in out for word in words)


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent in another way on Windows")
def test_the_first_ctrl_c_asks_and_the_second_ends_the_program():
    stopping, before = cli._StopOnSignal(), signal.getsignal(signal.SIGINT)
    with stopping:
        assert not stopping.asked
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert stopping.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_outside_of_training_ends_with_130_and_no_traceback(here, monkeypatch, capsys):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "start", interrupted)
    assert train() == 130
    assert capsys.readouterr() == ("", "")


def test_a_run_outside_of_the_main_thread_goes_without_signals(here, capsys):
    found = []
    thread = threading.Thread(target=lambda: found.append(train("--quiet", "--epochs", 1)))
    thread.start()
    thread.join()
    assert found == [0]


def test_a_bar_is_gone_before_an_error_is_said(here, monkeypatch):
    x = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    np.savez("line.npz", x=x, y=x[:, :1])
    name = changed(here, input_shape=[3], layers=[{"type": "linear", "out_features": 1}], loss="mse")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert train("--lr", 100, "--out", "run", blueprint=name, data="line.npz") == 1
    shown = sys.stderr.getvalue()
    assert "| loss " in shown
    assert shown.split("\r")[-1].startswith("edge-train: The loss became inf")
