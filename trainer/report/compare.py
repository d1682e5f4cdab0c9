"""Runs beside each other: what differs in their configuration, how they went, their curves over each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..checkpoint import write_atomically
from ..display import duration
from .charts import COLOURS, Series, lines
from .page import Run, document, read_run
from .parts import Section, table

UNTOLD = ("data.folder", "data.source", "data.stored_shape", "blueprint.description")  # places, not choices
MACHINE = ("device", "litenet", "python", "numpy")  # of environment.json
CHARTS: tuple[tuple[str, str, str, str, dict[str, bool]], ...] = (
    ("Validation loss", "validation_loss", "training loss", "train_loss", {}),
    ("Validation accuracy", "validation_accuracy", "training accuracy", "train_accuracy", {"percent": True}),
    ("Learning rate", "learning_rate", "", "", {}),
    ("Gradient norm", "grad_norm_mean", "", "", {"log": True}),
)


def compare(folders: Sequence[Path], out: Path) -> list[str]:
    """Write the page, and give the lines for the terminal. Raises UserError where a folder is no run."""
    runs = [read_run(folder) for folder in folders]
    names = short_names(folders)
    results, differ = outcomes(runs), differences(runs)
    text = document(
        " and ".join(names) if len(names) == 2 else f"{len(names)} runs",
        f"{len(differ)} settings differ",
        [],
        [_results(names, results), _differences(names, differ), _curves(names, runs)],
    )
    write_atomically(out, lambda file: file.write(text.encode()))
    shown = [[key, *values] for key, values in results.items()]
    differing = [[key, *values] for key, values in differ.items()] or [["nothing", *[""] * len(names)]]
    return [*aligned(["", *names], shown), "", *aligned(["differs", *names], differing), "", f"{out} has the curves"]


def short_names(folders: Sequence[Path]) -> list[str]:
    """The folders' names, with so many parents as make them different; numbered where one occurs twice."""
    full = [folder.resolve().parts[1:] for folder in folders]
    for depth in range(1, max(map(len, full)) + 1):
        names = ["/".join(parts[-depth:]) for parts in full]
        if len(set(names)) == len(set(full)):
            return names if len(set(full)) == len(full) else [f"{name} ({i})" for i, name in enumerate(names, 1)]
    return [str(folder) for folder in folders]


def outcomes(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What became of each, by what it is called."""
    best = [run.rows[run.best] if run.best is not None and run.best < len(run.rows) else {} for run in runs]
    found = {
        "epochs": [str(len(run.rows)) for run in runs],
        "best epoch": [str(row.get("epoch", "-")) for row in best],
        "validation loss": [_number(row.get("validation_loss")) for row in best],
        "validation accuracy": [_percent(row.get("validation_accuracy")) for row in best],
        "training loss": [_number(row.get("train_loss")) for row in best],
        "test loss": [_number(run.tested.get("loss")) for run in runs],
        "test accuracy": [_percent(run.tested.get("accuracy")) for run in runs],
        "time": [duration(run.rows[-1].get("seconds") or 0) if run.rows else "-" for run in runs],
    }
    return {key: values for key, values in found.items() if set(values) != {"-"}}


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Keys of the configurations whose values are not the same in all runs, flattened: "settings.seed"."""
    told = all(run.starts for run in runs)
    flat = [
        _flat(run.config | ({"environment": {k: run.starts[-1].get(k) for k in MACHINE}} if told else {}))
        for run in runs
    ]
    keys = dict.fromkeys(key for one in flat for key in one)
    return {
        key: [one.get(key, "-") for one in flat]
        for key in keys
        if key not in UNTOLD and len({one.get(key, "-") for one in flat}) > 1
    }


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        return {
            k: v for key, item in value.items() for k, v in _flat(item, f"{prefix}.{key}" if prefix else key).items()
        }
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return {k: v for i, item in enumerate(value) for k, v in _flat(item, f"{prefix}[{i}]").items()}
    return {prefix: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns for the terminal: the first to the left, the others to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(heads))]
    return [
        "  ".join(
            [f"{line[0]:<{widths[0]}}", *(f"{cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))]
        ).rstrip()
        for line in lines
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


# ---- sections


def _results(names: Sequence[str], found: dict[str, list[str]]) -> Section:
    return Section("results", "How they went", table(["", *names], [[key, *values] for key, values in found.items()]))


def _differences(names: Sequence[str], found: dict[str, list[str]]) -> Section:
    if not found:
        return Section("differences", "What differs", "<p>Nothing: the runs have the same configuration.</p>")
    rows = [[key, *values] for key, values in found.items()]
    body = f"<p>Everything else in config.json is the same.</p>{table(['', *names], rows)}"
    return Section("differences", "What differs", body)


def _curves(names: Sequence[str], runs: Sequence[Run]) -> Section:
    figures = []
    for title, key, other, second, options in CHARTS:
        whole = [
            Series(name, run.column(key), i % COLOURS, i >= COLOURS)
            for i, (name, run) in enumerate(zip(names, runs, strict=True))
        ]
        if not any(v is not None for s in whole for v in s.values) and other:
            title, key = other.capitalize(), second
            whole = [Series(s.name, run.column(key), s.colour, s.dashed) for s, run in zip(whole, runs, strict=True)]
        figures.append(lines(title, whole, **options))
        if other and key != second:
            rest = [Series(s.name, run.column(second), s.colour, s.dashed) for s, run in zip(whole, runs, strict=True)]
            figures.append(lines(other.capitalize(), rest, **options))
    return Section(
        "curves",
        "Curves",
        "<p>By epoch. Point at a chart, or choose it and use the arrow keys, to read it.</p>"
        f'<div class="charts">{"".join(figures)}</div>',
    )
