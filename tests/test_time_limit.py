"""--time: the schedule is scaled to the time there is, and the run ends within it."""

import json
import math

import pytest
from runs import train
from test_loop import ready, rows, run

from litenet.trainer import checkpoint, cli, loop
from litenet.trainer.cli import main
from litenet.trainer.loop import Events, Progress, fit


class Hours:
    """A clock by which a step takes a second and an evaluation three."""

    def __init__(self, monkeypatch, trainer, evaluation=3.0):
        self.now = 0.0
        monkeypatch.setattr(loop.time, "perf_counter", lambda: self.now)
        step, evaluate = trainer.run_batch, trainer.evaluate

        def run_batch(*args):
            self.now += 1.0
            step(*args)

        def slow(*args):
            self.now += evaluation
            return evaluate(*args)

        trainer.run_batch, trainer.evaluate = run_batch, slow


def rates(limit, monkeypatch, schedule="cosine", epochs=2, evaluation=3.0, **more):
    trainer, settings = ready(schedule=schedule, learning_rate=0.1, epochs=epochs, time_limit=limit, **more)
    clock, found = Hours(monkeypatch, trainer, evaluation), []
    result, progress = run(trainer, settings, rows(9), step=lambda p, m: found.append(trainer.optimizer.lr))
    return result, progress, found, clock.now


def test_the_rate_falls_with_the_time_that_is_spent(monkeypatch):
    result, progress, found, now = rates(30.0, monkeypatch)
    assert result == "done"
    assert 26 <= now <= 31  # seconds, with two or three evaluations of three
    spent = [k + 3 * (k // 6) for k in range(len(found))]  # six steps an epoch
    steps = [min(int(12 * s / 30), 11) for s in spent]
    assert found == pytest.approx([0.1 * (1 + math.cos(math.pi * k / 12)) / 2 for k in steps])
    assert found[-1] < 0.02
    assert progress.history[-1]["learning_rate"] == found[-1]


@pytest.mark.parametrize("limit", [1.0, 4.0, 11.0, 60.0])
def test_a_run_ends_with_an_evaluated_epoch_within_its_time(limit, monkeypatch):
    result, progress, found, now = rates(limit, monkeypatch, evaluation=0.75)
    assert result == "done"
    assert progress.history[-1]["validation_loss"] is not None
    assert progress.history[-1]["updates"] == len(found) == progress.updates
    assert now <= limit + 2  # the last step and its evaluation, a second and three quarters


def test_an_accumulated_update_is_complete_when_time_is_up(monkeypatch):
    _, progress, found, _ = rates(12.0, monkeypatch, accumulation=4)
    assert progress.updates == progress.history[-1]["updates"]
    assert progress.seen == 0  # the epoch was closed


def test_a_stopped_run_goes_on_with_the_time_that_is_left(monkeypatch):
    trainer, settings = ready(learning_rate=0.1, epochs=2, time_limit=30.0)
    clock, progress = Hours(monkeypatch, trainer), Progress()
    stop = Events(stop=lambda: progress.updates >= 8)
    assert fit(trainer, rows(), rows(9), settings, progress, stop) == "stopped"
    assert progress.spent == clock.now
    again = Progress.from_dict(json.loads(json.dumps(progress.as_dict())))
    clock.now += 1000  # the machine was off
    assert fit(trainer, rows(), rows(9), settings, again, Events()) == "done"
    assert 24 <= again.spent <= 31
    updates = again.updates
    assert fit(trainer, rows(), rows(9), settings, again, Events()) == "done"
    assert again.updates == updates


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1d", 86400), ("2H", 7200)]
)
def test_times_are_written_as_people_write_them(text, seconds):
    assert cli._seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "half an hour", "30x"])
def test_other_times_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        main(["net.json", "--data", "d", "--time", text])
    assert "is not a time such as 90s, 30m or 2h" in capsys.readouterr().err


def test_a_real_run_ends_in_time_and_can_be_exported(here):
    assert train("--out", "run", "--time", "2s", "--quiet") == 0
    saved = checkpoint.load(here / "run" / "last.npz").meta
    assert saved["settings"]["time_limit"] == 2
    assert 1.0 < saved["progress"]["spent"] < 3.5
    assert saved["progress"]["epoch"] > 2  # more than the blueprint's own
