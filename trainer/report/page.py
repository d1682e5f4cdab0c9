"""The report of a run: one HTML page that needs no other file, no network, and no script to be read.

report(Path("runs/mnist_cnn"))      # runs/mnist_cnn/report.html, written beside and renamed
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from .. import checkpoint
from ..checkpoint import write_atomically
from ..errors import UserError
from ..memory import bytes_text
from . import environment
from .charts import Series, lines, value_text
from .cost import Cost, cost
from .judged import Judged, errors
from .page_answers import answers_sections
from .page_net import blueprint_section, device_section, environment_section, layers_section, profile_section
from .parts import Section, card, laid_out, table

NAME = "report.html"
MOST_ROWS = 1000  # of the table of epochs; longer runs are thinned


@dataclass(frozen=True)
class Run:
    """What a run folder holds. rows: metrics, one dict an epoch. best: index of the best epoch, or None."""

    folder: Path
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    best: int | None
    tested: dict[str, Any]
    starts: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return str(self.config["blueprint"].get("name", self.folder.name))

    def column(self, key: str) -> list[float | None]:
        return [row.get(key) for row in self.rows]


def read_run(folder: Path) -> Run:
    """Raises UserError where the folder is no run, or holds files that nobody could have written."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8") if (folder / "metrics.jsonl").exists() else ""
        rows = [json.loads(line) for line in text.splitlines()]
        tested = json.loads((folder / "test.json").read_text()) if (folder / "test.json").exists() else {}
        if not isinstance(config, dict) or not {"blueprint", "settings", "data"} <= config.keys():
            raise ValueError("config.json is not that of a run")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder} is no run folder.\n  Give the folder that edge-train printed, such as runs/NAME."
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be read as a run: {error}.\n  Give a folder that edge-train wrote.") from None
    watched = [row.get("selection_loss") for row in rows]
    best = None
    if (folder / "best.npz").exists():
        best = checkpoint.load(folder / "best.npz").meta.get("progress", {}).get("best_epoch")
    elif any(v is not None for v in watched):
        best = min((v, i) for i, v in enumerate(watched) if v is not None)[1]
    return Run(folder, config, rows, best, tested, environment.read(folder))


def report(folder: Path, judged: Judged | None, note: str = "", out: Path | None = None) -> Path:
    """Write the report of a run folder. judged: what its best checkpoint said about samples it had not learned from;
    None: there are none at hand, and note says why."""
    run = read_run(folder)
    try:
        size = cost(checkpoint.run_checkpoint(folder), run.config["data"])
    except UserError:  # no checkpoint yet
        size = None
    path = out or folder / NAME
    text = page(run, judged, size, note)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def audit(judged: Judged, path: Path) -> None:
    """A page about one model's answers alone."""
    title, about = f"{judged.name}: what it says", f"{judged.model} on {judged.data}"
    text = document(title, about, _cards(None, judged, None), answers_sections(judged))
    write_atomically(path, lambda file: file.write(text.encode()))


def page(run: Run, judged: Judged | None, size: Cost | None, note: str = "") -> str:
    sections = [
        _curves(run),
        *(answers_sections(judged) if judged is not None else [_nothing(note)]),
        layers_section(run.rows),
        device_section(size) if size is not None else None,
        profile_section(run.folder),
        blueprint_section(run.config),
        environment_section(run.starts, run.config),
    ]
    return document(run.name, _about(run, judged), _cards(run, judged, size), sections)


def document(title: str, about: str, cards: Iterable[str], sections: Iterable[Section | None]) -> str:
    """Any page of this house: a head, cards, sections with a table of contents."""
    shown = [section for section in sections if section is not None]
    parts = {
        "STYLE": (Path(__file__).parent.parent / "page.css").read_text(encoding="utf-8"),
        "TITLE": escape(title),
        "ABOUT": escape(about),
        "CARDS": f"<dl>{figures}</dl>" if (figures := "\n".join(cards)) else "",
        "CONTENTS": " ".join(f'<a href="#{s.id}">{escape(s.title)}</a>' for s in shown),
        "SECTIONS": laid_out(shown),
    }
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    for key, value in parts.items():
        text = text.replace(f"<!--{key}-->", value)
    return text


def _nothing(note: str) -> Section:
    return (
        Section("answers", "What it got right and wrong", f"<p>{escape(note)}</p>")
        if note
        else Section(
            "answers", "What it got right and wrong", "<p>The run has neither a test set nor samples held out.</p>"
        )
    )


def _about(run: Run, judged: Judged | None) -> str:
    data = run.config["data"]
    text = f"{data['samples']:,} samples of {data['name']}, {len(run.rows)} epochs"
    if run.rows and run.rows[-1].get("seconds") is not None:
        from ..display import duration

        text += f" in {duration(run.rows[-1]['seconds'])}"
    if judged is not None:
        text += f"; figures of {judged.data}, by {Path(judged.model).name}"
    return text


def _cards(run: Run | None, judged: Judged | None, size: Cost | None) -> Iterable[str]:
    f = judged.figures if judged is not None else None
    if judged is not None and f is not None:
        right = int((f.answers == judged.y).sum())
        yield card("Accuracy", f"{100 * f.accuracy:.2f} %", f"{right:,} of {f.samples:,} right")
        yield card("Macro F1", f"{100 * f.macro_f1:.2f} %", "mean over the classes")
        yield card("Calibration", f"{100 * f.ece:.2f} % ECE", f"{100 * f.confidence:.1f} % sure on average")
    elif judged is not None:
        found = errors(judged)
        yield card("Mean squared error", f"{found['mse']:.4g}", f"mean absolute error {found['mae']:.4g}")
    if run is not None and run.best is not None and run.best < len(run.rows):
        row = run.rows[run.best]
        held = row.get("validation_loss") is not None
        what = "validation loss" if held else "training loss"
        yield card("Best epoch", str(row["epoch"]), f"{what} {row['validation_loss' if held else 'train_loss']:.4g}")
    if size is not None:
        yield card("Parameters", f"{size.parameters:,}", "trained values")
        half = "" if size.half is None else f"; {bytes_text(size.half)} in half precision"
        yield card("On a device, flash", bytes_text(size.file), f"the .bin with its self-test{half}")
        yield card("RAM", bytes_text(size.arena), "working memory of a run")
        yield card("Work", f"{_short(size.macs)} MACs", "multiply-accumulates an answer")


def _short(n: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)


# ---- curves


def _curves(run: Run) -> Section | None:
    if not run.rows:
        return Section("curves", "Curves", "<p>No epoch has ended yet.</p>")
    mark = None if run.best is None else run.best + 1
    figures = [
        lines("Loss", [Series("training", run.column("train_loss")),
                       Series("validation", run.column("validation_loss"), 1)], mark=mark),
        lines("Accuracy", [Series("training", run.column("train_accuracy")),
                           Series("validation", run.column("validation_accuracy"), 1)], percent=True, mark=mark),
        lines("Learning rate", [Series("at the end of the epoch", run.column("learning_rate"))], mark=mark),
        lines("Gradient norm", [Series("mean", run.column("grad_norm_mean")),
                                Series("largest", run.column("grad_norm_max"), 1)], log=True, mark=mark),
    ]  # fmt: skip
    alarmed = [str(row["epoch"]) for row in run.rows if row.get("alarms")]
    alarm = (
        f'<ul class="warn"><li>Gradients exploded in epoch {", ".join(alarmed[:8])}'
        f"{' and others' * (len(alarmed) > 8)}: "
        "train with --clip-norm 1, a lower --lr, or --warmup 1.</li></ul>"
    )
    note = "" if mark is None else f" The upright line is the best epoch, {mark}, whose weights were kept."
    body = (
        f"<p>By epoch. Point at a chart, or choose it and use the arrow keys, to read it.{note}</p>"
        f"{alarm if alarmed else ''}"
        f'<div class="charts">{"".join(figures)}</div>{_epochs(run.rows)}'
    )
    return Section("curves", "Curves", body)


COLUMNS = {
    "epoch": "epoch", "train_loss": "training loss", "train_accuracy": "training accuracy",
    "validation_loss": "validation loss", "validation_accuracy": "validation accuracy",
    "learning_rate": "learning rate", "grad_norm_mean": "gradient norm", "grad_norm_max": "largest",
    "seconds": "seconds",
}  # fmt: skip


def _epochs(rows: list[dict[str, Any]]) -> str:
    keys = [k for k in COLUMNS if any(row.get(k) is not None for row in rows)]
    every = -(-len(rows) // MOST_ROWS)
    shown = [
        [
            "" if row.get(k) is None else str(row[k]) if k == "epoch" else value_text(row[k], "accuracy" in k)
            for k in keys
        ]
        for row in rows[::every]
    ]
    words = "Every epoch" if every == 1 else f"Every {every}th epoch"
    return f"<details><summary>{words} as a table</summary>{table([COLUMNS[k] for k in keys], shown)}</details>"
