"""edge-train compare: what differs between runs is named, what does not is left out, and their curves lie together."""

import json
import re

import pytest
from runs import changed, mistake, train
from test_profile import read
from test_report import ASKS, Outline

from litenet.trainer.cli import main
from litenet.trainer.report.compare import aligned, short_names


@pytest.fixture
def two(here):
    """Runs "a" and "b" that differ in seed, learning rate, one layer and the number of epochs."""
    assert train("--out", "a", "--quiet") == 0
    layers = json.loads((here / "net.json").read_text())["layers"]
    layers[0]["out_channels"] = 6
    changed(here, seed=4, epochs=3, layers=layers)
    assert train("--out", "b", "--lr", "0.01", "--quiet") == 0
    return here


def compared(capsys, *arguments):
    capsys.readouterr()
    assert main(["compare", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def row(lines, key):
    found = [line for line in lines if line.startswith(key + " ")]
    assert len(found) == 1, (key, lines)
    return re.split(r" {2,}", found[0])[1:]


def test_what_differs_is_named_and_nothing_else(two, capsys):
    lines = compared(capsys, "a", "b")
    assert row(lines, "settings.seed") == ["3", "4"]
    assert row(lines, "settings.learning_rate") == ["0.05", "0.01"]
    assert row(lines, "settings.epochs") == ["2", "3"]
    assert row(lines, "blueprint.layers[0].out_channels") == ["4", "6"]
    start = next(i for i, line in enumerate(lines) if line.startswith("differs"))
    keys = {line.split()[0] for line in lines[start + 1 :] if line.startswith(("settings", "blueprint", "data", "env"))}
    assert keys == {
        "settings.seed", "settings.learning_rate", "settings.epochs", "blueprint.layers[0].out_channels",
        "blueprint.seed", "blueprint.epochs"}  # fmt: skip
    assert lines[-1] == "compare.html has the curves"


def test_what_became_of_them_stands_above(two, capsys):
    lines = compared(capsys, "a", "b")
    tested = [json.loads((two / run / "test.json").read_text()) for run in "ab"]
    assert row(lines, "test accuracy") == [f"{100 * t['accuracy']:.2f} %" for t in tested]
    assert row(lines, "test loss") == [f"{t['loss']:.4f}" for t in tested]
    assert row(lines, "epochs") == ["2", "3"]


def test_equal_runs_differ_in_nothing(here, capsys):
    for run in ("a", "b"):
        assert train("--out", run, "--quiet") == 0
    lines = compared(capsys, "a", "b")
    assert lines[next(i for i, line in enumerate(lines) if line.startswith("differs")) + 1] == "nothing"
    assert "Nothing: the runs have the same configuration." in " ".join(read((here / "compare.html").read_text()).texts)


def test_the_page_holds_every_run_in_every_chart(two, capsys):
    compared(capsys, "a", "b", "a/../b", "--out", "page.html")
    text = (two / "page.html").read_text()
    outline = Outline(text)
    assert outline.sections == ["results", "differences", "curves"]
    figures = re.findall(r'<figure class="chart">.*?</figure>', text, re.S)
    assert len(figures) == 6
    for figure in figures:
        assert len(re.findall(r"<g class=\"s\d", figure)) == 3
    assert not re.search(ASKS, text)


def test_a_run_that_has_just_begun_can_be_compared(two, capsys):
    for name in ("metrics.jsonl", "best.npz", "test.json", "environment.json"):
        (two / "b" / name).unlink()
    lines = compared(capsys, "a", "b")
    assert row(lines, "epochs") == ["2", "0"]
    assert row(lines, "test loss")[1] == "-"
    assert not any(line.startswith("environment") for line in lines)


def test_mistakes_are_one_sentence(two, capsys):
    assert mistake(capsys, 1, "compare", "a", "nowhere").startswith("nowhere is no run folder.")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a"])
    assert ended.value.code == 2
    assert "the following arguments are required: run" in capsys.readouterr().err


def test_names_are_as_short_as_they_can_be(tmp_path):
    assert short_names([tmp_path / "x" / "run", tmp_path / "y" / "run"]) == ["x/run", "y/run"]
    assert short_names([tmp_path / "x", tmp_path / "y"]) == ["x", "y"]
    assert short_names([tmp_path / "x", tmp_path / "y" / ".." / "x"]) == ["x (1)", "x (2)"]


def test_columns_are_aligned():
    assert aligned(["", "a", "bb"], [["key", "1", "2"], ["longer", "10", ""]]) == [
        "         a  bb", "key      1   2", "longer  10"]  # fmt: skip
