"""edge-export: turn a trained net into one file that a device runs.

The output's extension decides what is made; WRITERS below has one row for each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from litenet.trainer.errors import UserError

EPILOG = """examples:
  edge-export runs/mnist_cnn -o mnist_cnn.bin
  edge-export runs/mnist_cnn/last.npz -o mnist_cnn.bin --fp16
  edge-export --config mnist_cnn.json --weights best.npz -o mnist_cnn.bin
"""


def main(argv: list[str] | None = None) -> int:
    """0: written; 1: the input was bad or the runtime disagrees; 2: the command was bad."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.source is None and (options.config is None or options.weights is None):
        parser.error("give a run folder or a checkpoint, or --config with --weights")
    if options.source is not None and options.weights is not None:
        parser.error("SOURCE and --weights both name weights; give one")
    try:
        writer = WRITERS.get(options.out.suffix.lower())
        if writer is None:
            raise UserError(
                f"-o {options.out}: a name that ends in {' or '.join(WRITERS)} is expected.\n"
                "  The extension decides what is made."
            )
        writer(options)
    except UserError as error:
        print(f"edge-export: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "edge-export", description="Turn a trained net into one file that a device runs.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("source", nargs="?", help="a run folder (its best checkpoint) or a checkpoint .npz")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="what to write, such as net.bin")
    parser.add_argument("--config", metavar="BLUEPRINT", help="the blueprint, for weights that come without one")
    parser.add_argument("--weights", metavar="NPZ", help="the weights, with --config")
    parser.add_argument("--fp16", action="store_true", help="store weights in half precision: half the size")
    parser.add_argument("--data", metavar="SOURCE", help="the data to prove the export on (default: the training's)")
    parser.add_argument("--data-dir", metavar="DIR", help="where known data sets are kept")
    parser.add_argument("--samples", type=int, default=256, metavar="N", help="how many held-out samples (default 256)")
    parser.add_argument("--no-golden", action="store_true", help="leave the self-test out of the file")
    return parser


def _write_bin(options: argparse.Namespace) -> None:
    from .binary import export

    for line in export(
        options.source,
        options.out,
        config=options.config,
        weights=options.weights,
        half=options.fp16,
        data=options.data,
        data_dir=options.data_dir,
        samples=options.samples,
        golden=not options.no_golden,
    ):
        print(line)


WRITERS: dict[str, Callable[[argparse.Namespace], None]] = {".bin": _write_bin}
