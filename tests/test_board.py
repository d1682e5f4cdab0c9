"""Event files for TensorBoard: every figure of every epoch once, also after a resume; else one sentence."""

import importlib.util
import json
import struct
import sys

import pytest
from runs import train

from litenet.trainer import cli, session
from litenet.trainer.cli import main
from litenet.trainer.report.board import NAMES, Board

needs_writer = pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="needs pip's tensorboardX")


def events(folder):
    """[(step, name, value), ...] of the event files, oldest first, as TensorBoard would read them."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    found = []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            if event.session_log.status == SessionLog.START:  # what follows replaces what came from here on
                found = [entry for entry in found if entry[0] < event.step]
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return found


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@needs_writer
def test_every_figure_of_every_epoch_is_there_once(here):
    assert train("--out", "run", "--tensorboard", "--quiet") == 0
    found = events(here / "run" / "tensorboard")
    want = [(row["epoch"], NAMES[key], row[key]) for row in rows_of(here / "run") for key in NAMES]
    assert sorted((step, name) for step, name, _ in found) == sorted((step, name) for step, name, _ in want)
    values = {(step, name): value for step, name, value in found}
    for step, name, value in want:
        assert values[step, name] == pytest.approx(value, rel=1e-6)


@needs_writer
def test_a_resumed_run_goes_on_in_the_same_curves(here, monkeypatch):
    save = session.Session.save
    monkeypatch.setattr(session.Session, "save", lambda self, which: (save(self, which), cli.signal.raise_signal(2))[0])
    assert train("--out", "run", "--tensorboard", "--quiet") == 130
    monkeypatch.undo()
    assert main(["--resume", str(here / "run"), "--tensorboard", "--quiet"]) == 0
    found = [(step, value) for step, name, value in events(here / "run" / "tensorboard") if name == "loss/training"]
    assert [step for step, _ in found] == [1, 2]
    assert [value for _, value in found] == pytest.approx([row["train_loss"] for row in rows_of(here / "run")])


@needs_writer
def test_statistics_of_layers_and_numbers_that_are_none(tmp_path):
    board = Board(tmp_path)
    row = {"epoch": 4, "train_loss": float("nan"), "validation_loss": None, "train_accuracy": 1.0}
    board.epoch(row | {"layers": [{"name": "conv", "dead": 0.25, "mean": None}]})
    board.close()
    assert events(tmp_path / "tensorboard") == [(4, "accuracy/training", 1.0), (4, "layers/dead/conv", 0.25)]


def test_without_the_package_nothing_is_trained_and_one_sentence_is_said(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert train("--out", "run", "--tensorboard") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "edge-train: --tensorboard needs the package tensorboardX, which is not installed.\n"
        '  Run: pip install "litenet[tensorboard]", or leave it away; report.html has the same curves.\n'
    )
    assert not (here / "run").exists()
