"""The loop: rates, clipping, stopping, checkpoints; and a run that is interrupted anywhere ends with the same bits."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from closeness import assert_close
from nets import net

from litenet.trainer import checkpoint
from litenet.trainer import session as sessions
from litenet.trainer.base import Evaluation
from litenet.trainer.cli import main
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.errors import UserError
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Hundreds of checkpoints are written here; that they are flushed is another test's promise."""
    monkeypatch.setattr(checkpoint.os, "fsync", lambda descriptor: None)


LINEAR = [{"type": "linear", "out_features": 3}]
LAYERS = [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2},
    {"type": "flatten"},
    {"type": "dropout", "rate": 0.3},
    {"type": "linear", "out_features": 3},
]


def rows(n=26, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return Dataset((np.eye(5)[y] + 0.5 * rng.standard_normal((n, 5))).astype(np.float32), y)


def ready(layers=LINEAR, given=None, batch=4, **more):
    """(trainer, settings) of a net on rows()."""
    blueprint = net(layers, [5], batch_size=batch, **more)
    settings = settings_for(blueprint, given or {})
    return Trainer(blueprint, batch, update=settings.update, learning_rate=settings.learning_rate), settings


def run(trainer, settings, validation=None, progress=None, data=None, **events):
    progress = progress or Progress()
    return fit(trainer, data or rows(), validation, settings, progress, Events(**events)), progress


class Steps:
    """Records what each update used and left."""

    def __init__(self, trainer):
        self.trainer, self.rates, self.metrics, self.weights = trainer, [], [], []

    def __call__(self, progress, metrics):
        self.rates.append(self.trainer.optimizer.lr)
        self.metrics.append(dict(metrics))
        self.weights.append(np.array(self.trainer.model.weights))


# ---- rates, batches, records


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        (None, lambda k: 0.1),
        ("cosine", lambda k: 0.1 * (1 + math.cos(math.pi * k / 12)) / 2),
        ({"type": "step", "every": 1, "factor": 0.5}, lambda k: 0.1 * 0.5 ** (k // 6)),
        ({"type": "step", "milestones": [0.25, 0.75]}, lambda k: [0.1, 0.01, 0.001][(k >= 3) + (k >= 9)]),
    ],
)
def test_each_update_uses_the_rate_of_its_number(schedule, rate):
    trainer, settings = ready(schedule=schedule, learning_rate=0.1, epochs=2)
    steps = Steps(trainer)
    _, progress = run(trainer, settings, step=steps)
    assert_close(steps.rates, [rate(k) for k in range(12)], 1e-12, 1e-9)
    assert [row["learning_rate"] for row in progress.history] == [steps.rates[5], steps.rates[11]]


def test_a_warm_up_rises_in_a_straight_line():
    trainer, settings = ready(learning_rate=0.1, epochs=2, warmup=0.25)
    steps = Steps(trainer)
    run(trainer, settings, step=steps)
    assert_close(steps.rates, [0.025, 0.05, 0.075, *[0.1] * 9], 1e-12, 0)


def test_accumulated_batches_share_the_rate_of_their_one_update():
    trainer, settings = ready(learning_rate=0.1, epochs=1, schedule="cosine", accumulation=4)
    steps = Steps(trainer)
    _, progress = run(trainer, settings, step=steps)  # 6 batches: a group of 4 and a group of 2
    assert steps.rates == [0.1] * 4 + [0.05] * 2
    assert progress.updates == 2
    assert ["grad_norm" in m for m in steps.metrics] == [False, False, False, True, False, True]
    moved = [not np.array_equal(a, b) for a, b in zip(steps.weights[:-1], steps.weights[1:], strict=True)]
    assert moved == [False, False, True, False, True]


def test_an_accumulated_update_is_that_of_the_larger_batch():
    small, settings = ready(accumulation=3, epochs=2, learning_rate=0.2)
    large, other = ready(batch=12, epochs=2, learning_rate=0.2)
    _, a = run(small, settings)
    _, b = run(large, other)
    assert a.updates == b.updates == 4
    assert_close(np.array(small.model.weights), np.array(large.model.weights), 1e-6, 1e-6)
    assert_close(a.history[1]["grad_norm_mean"], b.history[1]["grad_norm_mean"], 1e-6, 1e-5)


def test_a_group_that_the_epoch_cuts_short_is_averaged_over_what_it_has():
    trainer, settings = ready(accumulation=4, epochs=1, learning_rate=0.5)
    seen, steps, micro = [], Steps(trainer), trainer.micro
    trainer.micro = lambda x, y, **also: seen.append((x.copy(), y.copy())) or micro(x, y, **also)
    run(trainer, settings, step=steps)
    plain = Trainer(trainer.blueprint, 8)
    plain.model.weights[...] = steps.weights[4]
    plain.micro(*(np.concatenate(parts) for parts in zip(*seen[4:], strict=True)))
    assert_close(steps.weights[5], steps.weights[4] - 0.5 * np.array(plain.gradients), 1e-6, 1e-6)


def test_the_last_partial_batch_of_an_epoch_is_left_out():
    trainer, settings = ready(epochs=2)
    seen = []
    micro = trainer.micro
    trainer.micro = lambda x, y, **more: seen.append(x.copy()) or micro(x, y, **more)
    _, progress = run(trainer, settings, data=(data := rows(26)))
    assert [len(x) for x in seen] == [4] * 12
    for epoch in (seen[:6], seen[6:]):
        used = np.concatenate(epoch)
        assert len(np.unique(used, axis=0)) == 24  # no sample twice
        assert all((data.x == row).all(1).any() for row in used)
    assert not np.array_equal(np.concatenate(seen[:6]), np.concatenate(seen[6:]))  # another order each epoch
    assert progress.updates == 12


def test_a_row_of_metrics_is_the_mean_over_the_epochs_samples():
    trainer, settings = ready(epochs=2, learning_rate=0.5)
    steps, ended = Steps(trainer), []
    validation = rows(9, seed=5)
    _, progress = run(
        trainer, settings, validation, step=steps, epoch=lambda progress, row: ended.append((progress.batch, row))
    )
    assert [batch for batch, _ in ended] == [0, 0]
    for k, row in enumerate(progress.history):
        part = steps.metrics[6 * k : 6 * k + 6]
        norms = [m["grad_norm"] for m in part]
        assert row == ended[k][1]
        assert (row["epoch"], row["updates"]) == (k + 1, 6 * k + 6)
        assert_close(row["train_loss"], np.mean([m["loss"] for m in part]), 1e-12, 1e-12)
        assert row["train_accuracy"] == sum(m["correct"] for m in part) / 24
        assert_close(row["grad_norm_mean"], np.mean(norms), 1e-12, 1e-12)
        assert row["grad_norm_max"] == max(norms)
    found = trainer.evaluate(validation.x, validation.y)
    assert (row["validation_loss"], row["validation_accuracy"]) == (found.loss, found.accuracy)
    assert row["selection_loss"] == found.loss


def test_without_validation_the_best_epoch_is_that_of_the_training_loss():
    trainer, settings = ready(epochs=3, learning_rate=0.5)
    saved = []
    _, progress = run(trainer, settings, save=saved.append)
    losses = [row["train_loss"] for row in progress.history]
    assert losses == sorted(losses, reverse=True)
    assert progress.best == losses[2] == progress.history[2]["selection_loss"]
    assert progress.best_epoch == 2
    assert saved == ["best", "last"] * 3
    assert {row["validation_loss"] for row in progress.history} == {None}


def test_fewer_samples_than_one_batch_are_refused():
    trainer, settings = ready(batch=32)
    with pytest.raises(UserError, match="has 26 samples, fewer than one batch of 32.\n  Use --batch 26."):
        run(trainer, settings)


# ---- clipping


def first_update(**more):
    """(weights before and after the first update, metrics, gradient without clipping)."""
    trainer, settings = ready(epochs=1, learning_rate=0.5, **more)
    data, seen = rows(), []
    steps, micro = Steps(trainer), trainer.micro
    trainer.micro = lambda x, y, **also: seen.append((x.copy(), y.copy())) or micro(x, y, **also)
    run(trainer, settings, data=data, step=steps)
    plain = Trainer(trainer.blueprint, 4)
    before = np.array(plain.model.weights)
    plain.micro(*seen[0])
    return before, steps.weights[0], steps.metrics[0], np.array(plain.gradients)


@pytest.mark.parametrize("share", [0.25, 4.0])
def test_the_norm_of_all_gradients_is_clipped_and_recorded_as_it_was(share):
    norm = first_update()[2]["grad_norm"]
    limit = norm * share
    before, after, metrics, g = first_update(clip_norm=limit)
    assert_close(metrics["grad_norm"], np.linalg.norm(g), 0, 1e-6)
    assert metrics["grad_norm"] == norm
    assert_close(after, before - 0.5 * g * min(1, share), 1e-7, 1e-6)
    assert_close(np.linalg.norm(before - after) / 0.5, min(norm, limit), 0, 1e-5)


def test_each_gradient_is_clipped_by_value_before_the_norm_is_taken():
    _, _, _, g = first_update()
    limit = float(np.median(np.abs(g[g != 0])))
    before, after, metrics, g = first_update(clip_value=limit)
    clipped = np.clip(g, -limit, limit)
    assert 0 < (clipped != g).mean() < 1
    assert_close(after, before - 0.5 * clipped, 1e-7, 1e-6)
    assert_close(metrics["grad_norm"], np.linalg.norm(clipped), 0, 1e-6)


def test_clipping_by_norm_applies_to_the_mean_of_accumulated_gradients():
    norm = first_update()[2]["grad_norm"]
    trainer, settings = ready(accumulation=6, epochs=1, learning_rate=1.0, clip_norm=norm / 100)
    before = np.array(trainer.model.weights)
    run(trainer, settings)
    assert_close(np.linalg.norm(before - np.array(trainer.model.weights)), norm / 100, 0, 1e-4)


# ---- the end of a run


def scripted(trainer, losses, accuracies=None):
    """Let evaluate give these figures, one after another."""
    at = count()

    def evaluate(x, y):
        k = next(at)
        return Evaluation(losses[k], accuracies[k] if accuracies else None, None)

    trainer.evaluate = evaluate


def test_training_stops_when_patience_runs_out_and_the_best_epoch_is_kept():
    trainer, settings = ready(epochs=10, early_stopping=2)
    scripted(trainer, [3.0, 2.0, 2.5, 1.9, 2.4, 2.0, 1.0])
    saved = []
    result, progress = run(trainer, settings, rows(6), save=saved.append)
    assert (result, progress.epoch, progress.best, progress.best_epoch) == ("early", 6, 1.9, 3)
    assert saved == ["best", "last", "best", "last", "last", "best", "last", "last", "last"]


def test_improvements_below_min_delta_use_patience_up():
    trainer, settings = ready(epochs=10, early_stopping={"patience": 2, "min_delta": 0.5})
    scripted(trainer, [3.0, 2.0, 1.9, 1.8, 1.0])
    result, progress = run(trainer, settings, rows(6))
    assert (result, progress.epoch, progress.best, progress.best_epoch) == ("early", 4, 1.8, 3)


def test_the_accuracy_may_be_what_is_watched():
    trainer, settings = ready(epochs=10, early_stopping={"patience": 2, "monitor": "accuracy"})
    scripted(trainer, [3.0, 2.0, 1.0, 0.5], [0.5, 0.75, 0.7, 0.75])
    result, progress = run(trainer, settings, rows(6))
    assert (result, progress.epoch, progress.best, progress.best_epoch) == ("early", 4, -0.75, 1)


def test_without_early_stopping_all_epochs_are_trained():
    trainer, settings = ready(epochs=4)
    scripted(trainer, [1.0, 2.0, 3.0, 4.0])
    result, progress = run(trainer, settings, rows(6))
    assert (result, progress.epoch, progress.best_epoch) == ("done", 4, 0)


def test_a_run_out_of_patience_or_epochs_does_nothing_more():
    trainer, settings = ready(epochs=10, early_stopping=1)
    scripted(trainer, [1.0, 2.0])
    result, progress = run(trainer, settings, rows(6))
    assert (result, progress.epoch) == ("early", 2)
    assert run(trainer, settings, rows(6), progress)[0] == "early"
    assert progress.epoch == 2
    trainer, settings = ready(epochs=1)
    _, progress = run(trainer, settings)
    assert run(trainer, settings, None, progress)[0] == "done"
    assert progress.epoch == 1


def test_a_stop_is_heard_after_an_update_and_not_within_a_group():
    trainer, settings = ready(epochs=2, accumulation=4)
    steps, saved = Steps(trainer), []
    result, progress = run(trainer, settings, step=steps, save=saved.append, stop=lambda: len(steps.rates) >= 2)
    assert (result, progress.batch, progress.updates, saved) == ("stopped", 4, 1, ["last"])


def test_a_stop_after_the_last_update_lets_the_run_end():
    trainer, settings = ready(epochs=1)
    saved = []
    result, progress = run(trainer, settings, save=saved.append, stop=lambda: "best" in saved)
    assert (result, progress.epoch, saved) == ("done", 1, ["best", "last"])


def test_checkpoints_come_after_every_so_many_updates():
    trainer, settings = ready(epochs=2)
    saved, progress = [], Progress()
    events = Events(save=lambda which: saved.append((progress.updates, which)))
    fit(trainer, rows(), None, settings, progress, events, save_every=4)
    assert saved == [(4, "last"), (6, "best"), (6, "last"), (8, "last"), (12, "last"), (12, "best"), (12, "last")]


def test_progress_goes_through_json_and_comes_back():
    fresh = Progress()
    assert Progress.from_dict(json.loads(json.dumps(fresh.as_dict()))) == fresh
    assert fresh.best == math.inf
    trainer, settings = ready(epochs=2)
    _, progress = run(trainer, settings)
    assert Progress.from_dict(json.loads(json.dumps(progress.as_dict()))) == progress


# ---- what is not finite


def broken(trainer, loss, gradient):
    """Let the loss give these from the second batch on."""
    usual, at = trainer.loss, count()

    class Loss:
        name, classification, predictions = usual.name, usual.classification, staticmethod(usual.predictions)

        def __call__(self, z, t):
            value, dz = usual(z, t)
            return (value, dz) if next(at) < 1 else (loss or value, dz * gradient)

    trainer.loss = Loss()


@pytest.mark.parametrize("given", [{}, {"clip_norm": 1.0}, {"clip_value": 1.0}], ids=["immediate", "norm", "value"])
@pytest.mark.parametrize(
    ("loss", "gradient", "what"),
    [(math.nan, 1.0, "loss became nan"), (math.inf, 1.0, "loss became inf"),
     (None, np.float32(math.nan), "norm of the gradients became nan")],
)  # fmt: skip
def test_a_loss_or_gradient_that_is_no_number_ends_the_run_with_place_and_remedy(loss, gradient, what, given):
    trainer, settings = ready(epochs=2, **given)
    broken(trainer, loss, gradient)
    saved = []
    with pytest.raises(UserError) as error:
        run(trainer, settings, save=saved.append)
    assert str(error.value) == (
        f"The {what} in epoch 1, batch 2.\n"
        "  Lower the learning rate, or add --clip-norm 1; --debug-nan tells more. What was saved before is kept."
    )
    assert saved == []


@pytest.mark.filterwarnings("error")
def test_a_rate_that_is_far_too_high_leaves_the_good_checkpoint_alone(tmp_path):
    """A real run, without a warning of NumPy's beside the sentence."""
    session = started(tmp_path, {"epochs": 3})
    kept = []

    def save(which):
        if which == "last":
            kept.append(sha(session.folder / "last.npz"))
            session.trainer.model.weights[...] = 1e30

    with pytest.raises(UserError, match=r"^The loss became (nan|inf) in epoch 2, batch 1\."):
        session.run(Events(save=save))
    assert len(kept) == 1
    assert sha(session.folder / "last.npz") == kept[0]
    arrays = checkpoint.load(session.folder / "last.npz").arrays
    assert all(np.isfinite(a).all() and np.abs(a).max() < 1e3 for a in arrays.values())


# ---- the same bits


def pictures(path, n=30, seed=0):
    """An .npz with 8 x 8 grey pictures of three kinds, and a test set."""
    rng = np.random.default_rng(seed)

    def part(n):
        y = np.arange(n) % 3
        x = rng.integers(0, 120, (n, 8, 8))
        x[np.arange(n), :, 2 * y] += 130
        return x.astype(np.uint8), y

    (x_train, y_train), (x_test, y_test) = part(n), part(9)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return str(path)


CONFIGS = {
    "momentum, accumulation, clipping": {
        "optimizer": {"type": "sgd", "momentum": 0.9, "weight_decay": 1e-3}, "accumulation": 2, "clip_norm": 0.5,
        "schedule": "one_cycle"},
    "adam, used up at once, augmentation": {
        "optimizer": "adam", "schedule": "cosine", "warmup": 2,
        "augmentation": {"flip": "alternate", "translate": 1, "cutout": 2}},
    "nesterov, no validation": {
        "optimizer": "nesterov", "clip_value": 0.05, "validation_split": 0, "early_stopping": 2},
}  # fmt: skip


def blueprint_of(config="momentum, accumulation, clipping", **more):
    return net(LAYERS, (1, 8, 8), **{"epochs": 3, "batch_size": 5, "learning_rate": 0.02} | CONFIGS[config] | more)


def started(tmp_path, more=None, given=None, config="adam, used up at once, augmentation", folder="run"):
    source = tmp_path / "pictures.npz"
    if not source.exists():
        pictures(source)
    return sessions.start(blueprint_of(config, **(more or {})), str(source), given or {}, tmp_path / folder)


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outcome(folder):
    """SHA-256 of all arrays of both checkpoints, what they know, and the metrics; without times."""
    out = {}
    for name in ("best", "last"):
        saved = checkpoint.load(folder / f"{name}.npz")
        digest = hashlib.sha256()
        for key in sorted(saved.arrays):
            digest.update(key.encode() + saved.arrays[key].tobytes())
        out[name] = digest.hexdigest()
        progress = dict(saved.meta["progress"])
        progress.pop("seconds")
        progress["history"] = [{k: v for k, v in row.items() if k != "seconds"} for row in progress["history"]]
        out[f"{name} progress"] = progress
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    out["metrics"] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
    return out


@pytest.mark.parametrize("config", CONFIGS)
def test_equal_seeds_give_equal_bits_and_others_do_not(tmp_path, config):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert started(tmp_path, {"seed": seed}, config=config, folder=folder).run(Events()) in ("done", "early")
    a, b, c = (outcome(tmp_path / folder) for folder in "abc")
    assert a == b
    assert a["last"] != c["last"]
    assert a["metrics"] != c["metrics"]


class CrashError(Exception):
    """A crash."""


@pytest.mark.parametrize("config", CONFIGS)
def test_a_run_stopped_after_any_update_goes_on_to_the_bits_of_one_that_was_not(tmp_path, config):
    whole = started(tmp_path, config=config, folder="whole")
    result = whole.run(Events())
    updates = whole.progress.updates
    assert updates >= 8
    want = outcome(tmp_path / "whole")
    for k in range(1, updates + 1):
        folder = f"stopped-{k}"
        session = started(tmp_path, config=config, folder=folder)
        stopped = session.run(Events(stop=lambda s=session, k=k: s.progress.updates >= k))
        assert (stopped, session.progress.updates) == ("stopped", k)
        session = sessions.resume(tmp_path / folder, {})
        assert session.progress.updates == k
        assert session.run(Events()) == result
        assert outcome(tmp_path / folder) == want, k


@pytest.mark.parametrize("config", CONFIGS)
def test_a_run_that_crashes_after_any_checkpoint_goes_on_to_the_bits_of_one_that_did_not(tmp_path, config):
    """One run that crashes again and again, once after each file it writes, and is taken up from the folder."""
    whole, writes = started(tmp_path, config=config, folder="whole"), []
    result = whole.run(Events(save=writes.append), save_every=1)
    want = outcome(tmp_path / "whole")
    session, crashed, ended = started(tmp_path, config=config, folder="crashing"), set(), None

    def crash(which):
        at = (which, session.progress.epoch, session.progress.updates)
        if at not in crashed:
            crashed.add(at)
            raise CrashError

    while ended is None:
        try:
            ended = session.run(Events(save=crash), save_every=1)
        except CrashError:
            session = sessions.resume(tmp_path / "crashing", {})
    assert len(crashed) == len(writes) > whole.progress.updates
    assert ended == result
    assert outcome(tmp_path / "crashing") == want


def test_a_resumed_run_may_be_given_more_epochs(tmp_path):
    session = started(tmp_path, {"epochs": 1})
    assert session.run(Events()) == "done"
    session = sessions.resume(session.folder, {"epochs": 2, "lr": None})
    assert session.run(Events()) == "done"
    assert [row["epoch"] for row in session.progress.history] == [1, 2]
    assert json.loads((session.folder / "config.json").read_text())["settings"]["epochs"] == 2


def test_a_run_may_be_taken_up_from_its_best_epoch(tmp_path):
    session = started(tmp_path, {"epochs": 4})
    session.run(Events())
    best = session.progress.best_epoch
    again = sessions.resume(session.folder / "best.npz", {})
    assert again.progress.epoch == best + 1
    assert again.folder == session.folder


# ---- real processes


EPOCHS = 40  # some seconds: long enough for a signal to arrive in time


def edge_train(*arguments, cwd):
    """A process of its own."""
    words = [sys.executable, "-m", "litenet.trainer", *map(str, arguments)]
    return subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A blueprint and pictures on disk, and the outcome of a run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "net.json").write_text(json.dumps(blueprint_of(epochs=EPOCHS).resolved))
    source = pictures(folder / "pictures.npz")
    assert main([str(folder / "net.json"), "--data", source, "--out", str(folder / "whole"), "--quiet"]) == 0
    return SimpleNamespace(folder=folder, source=source, want=outcome(folder / "whole"))


def wait_for(condition, process, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_killed_process_is_resumed_to_the_same_bits(files):
    out = files.folder / "killed"
    more = ("--out", out, "--save-every", 1, "--quiet")
    process = edge_train("net.json", "--data", files.source, *more, cwd=files.folder)
    wait_for((out / "last.npz").exists, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = checkpoint.load(out / "last.npz").meta["progress"]
    assert before["epoch"] < EPOCHS
    assert main(["--resume", str(out), "--quiet"]) == 0
    assert outcome(out) == files.want


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent in another way on Windows")
def test_ctrl_c_saves_says_how_to_go_on_and_exits_with_130(files):
    out = files.folder / "stopped"
    process = edge_train("net.json", "--data", files.source, "--out", "stopped", cwd=files.folder)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("epoch 1/"):
            break
    process.send_signal(signal.SIGINT)
    printed, rest = process.communicate(timeout=20)
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "stopped and saved; go on with: edge-train --resume stopped"
    assert printed == ""
    assert "Traceback" not in "".join(lines) + rest
    assert 1 <= checkpoint.load(out / "last.npz").meta["progress"]["epoch"] < EPOCHS
    assert main(["--resume", str(out), "--quiet"]) == 0
    assert outcome(out) == files.want
