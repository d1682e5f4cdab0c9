"""edge-train report, compare and evaluate: thin shells, as cli.py is."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError


def report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("edge-train report", description="Write the HTML report of a run (again).")
    parser.add_argument("run", type=Path, help="the run folder")
    _data(parser)
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="where to (default: report.html in the run folder)"
    )
    return parser


def evaluate_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "edge-train evaluate",
        description="Ask a checkpoint or a .bin about samples whose answers are known; the .bin answers through the "
        "runtime of the device, with its own preprocessing.",
    )
    parser.add_argument("model", type=Path, help="a run folder (its best checkpoint), a checkpoint .npz, or a .bin")
    _data(parser)
    parser.add_argument("--split", choices=("test", "validation", "train", "all"),
                        help="which samples (default: test, or else what training held out)")  # fmt: skip
    split = parser.add_argument_group("how photos are split", "as the run split them, which a .bin knows as well; or")
    split.add_argument("--group", metavar="PATTERN", help="photos whose names share this stay together")
    split.add_argument("--test-split", type=float, metavar="X", help="share kept for the test; 0: all are asked about")
    split.add_argument("--seed", type=int, metavar="N", help="what the split follows from")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also as a page, with the worst mistakes as pictures")
    return parser


def compare_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("edge-train compare", description="What differs between runs, and how they went.")
    parser.add_argument("first", type=Path, metavar="run", help="a run folder")
    parser.add_argument("others", type=Path, nargs="+", metavar="run", help="one or more others")
    parser.add_argument("-o", "--out", type=Path, default=Path("compare.html"), metavar="FILE",
                        help="the page to write (default compare.html)")  # fmt: skip
    return parser


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="SOURCE", help="where the samples are (default: the training's)")
    parser.add_argument("--data-dir", metavar="DIR", help="where known data sets are kept")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where a checkpoint is asked (default cpu)"
    )


def run_report(options: argparse.Namespace) -> int:
    print(write_report(options.run, options.data, options.data_dir, options.device, options.out))
    return 0


def write_report(
    folder: Path, data: str | None = None, data_dir: str | None = None, device: str = "cpu", out: Path | None = None
) -> Path:
    """The report of a run folder, its best checkpoint asked anew. Where the data are gone, the report says so."""
    from .evaluate import evaluate
    from .page import read_run, report
    from .samples import NothingHeldOutError

    read_run(folder)
    note, judged = "", None
    try:
        judged = evaluate(folder, data, None, device, cache=data_dir)
    except NothingHeldOutError:
        pass
    except UserError as error:
        if data is not None:
            raise
        note = f"Not looked at: {str(error).partition(chr(10))[0]} Give --data to edge-train report."
    return report(folder, judged, note, out)


def run_evaluate(options: argparse.Namespace) -> int:
    from .evaluate import evaluate
    from .judged import as_dict, text

    share, seed = options.test_split, options.seed
    if share is not None and not 0 <= share < 1:
        raise UserError(f"--test-split is {share:g}; it is a share from 0 to below 1.\n  Leave it away, or try 0.1.")
    if seed is not None and not 0 <= seed < 1 << 64:
        raise UserError(f"--seed is {seed}; it is a whole number from 0 to below 2^64.\n  Leave it away, or try 0.")
    rule = {"group": options.group, "test_split": share, "seed": seed}
    photos = {key: value for key, value in rule.items() if value is not None}
    judged = evaluate(options.model, options.data, options.split, options.device, photos, cache=options.data_dir)
    if options.html is not None:
        from .page import audit

        audit(judged, options.html)
        print(f"{options.html} shows it", file=sys.stderr)
    if options.json:
        print(json.dumps(as_dict(judged), ensure_ascii=False))
    else:
        print("\n".join(text(judged)))
    return 0


def run_compare(options: argparse.Namespace) -> int:
    from .compare import compare

    print("\n".join(compare([options.first, *options.others], options.out)))
    return 0


COMMANDS: dict[str, tuple[Callable[[], argparse.ArgumentParser], Callable[[argparse.Namespace], int]]] = {
    "report": (report_parser, run_report),
    "evaluate": (evaluate_parser, run_evaluate),
    "compare": (compare_parser, run_compare),
}
