"""edge-export: turn a trained net into one file that a device runs.

The output's extension decides what is made; WRITERS below has one row for each.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litenet.pyruntime.pipes import while_read
from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError

if TYPE_CHECKING:
    from .source import Source
    from .stored import Stored

EPILOG = """examples:
  edge-export runs/mnist_cnn -o mnist_cnn.bin
  edge-export runs/mnist_cnn/last.npz -o mnist_cnn.bin --fp16
  edge-export --config mnist_cnn.json --weights best.npz -o mnist_cnn.bin
  edge-export mnist_cnn.bin -o mnist_cnn.onnx
  edge-export mnist_cnn.bin -o mnist_cnn.h --board rp2040
  edge-export face.onnx -o face.bin --mean 127 --std 128
  edge-export person.tflite -o person.bin --input-range 0,1 --labels classes.txt
  edge-export runs/mnist_cnn -o mnist_cnn.bin --int8
  edge-export person.tflite -o person.bin --input-range 0,1 --int8 --calibrate photos/
"""
INT8_ONLY = ("calibrate", "calibration_samples", "seed", "max_loss", "force")
IMPORT_ONLY = ("input_shape", "check", "labels", "color", "mean", "std", "input_range", "resize", "fit")


def main(argv: list[str] | None = None) -> int:
    """0: written; 1: the input was bad or the runtime disagrees; 2: the command was bad."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.int8 not in (None, *MIXED) and options.source is None:  # --int8 stood right before SOURCE
        options.source, options.int8 = options.int8, MIXED[0]
    if options.int8 not in (None, *MIXED):
        parser.error(f"--int8 takes nothing or all, not {options.int8}")
    if options.source is None and (options.config is None or options.weights is None):
        parser.error("give a run folder or a checkpoint, or --config with --weights")
    if options.source is not None and options.weights is not None:
        parser.error("SOURCE and --weights both name weights; give one")
    if options.out is None and options.board is None:
        parser.error("give -o FILE, or --board to see whether a model fits one")
    try:
        writer = _fit if options.out is None else WRITERS.get(options.out.suffix.lower())
        if writer is None:
            raise UserError(
                f"-o {options.out}: a name that ends in {' or '.join(WRITERS)} is expected.\n"
                "  The extension decides what is made."
            )
        foreign = options.source is not None and Path(options.source).suffix.lower() in FOREIGN
        misplaced = [f"--{name.replace('_', '-')}" for name in IMPORT_ONLY if getattr(options, name) is not None]
        if misplaced and not foreign:
            raise UserError(f"{', '.join(misplaced)}: only for {' and '.join(FOREIGN)} models.")
        given = [f"--{name.replace('_', '-')}" for name in INT8_ONLY if getattr(options, name) not in (None, False)]
        if given and options.int8 is None:
            raise UserError(f"{', '.join(given)}: only with --int8.")
        if options.int8 is not None and (options.fp16 or writer is _write_onnx):
            raise UserError("--int8 makes a model of whole numbers: it goes with no --fp16, and not to ONNX.")
        if options.store_winograd is not None and (options.int8 is not None or options.fp16):
            raise UserError("--store-winograd is for single precision: it goes with no --int8 and no --fp16.")
        if options.store_winograd is not None and (writer is not _write_bin or options.board is not None):
            raise UserError("--store-winograd: only for a .bin, and for no --board: chips do not use such weights.")
        if options.with_golden and options.out is not None and options.out.suffix.lower() != ".h":
            raise UserError("--with-golden: only for C headers; a .bin has golden inputs unless --no-golden is given.")
        return while_read(partial(writer, options))
    except UserError as error:
        print(f"edge-export: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "edge-export", description="Turn a trained net into one file that a device runs.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    what = "a run folder (its best checkpoint), a checkpoint .npz, a model .onnx or .tflite, or a .bin"
    parser.add_argument("source", nargs="?", help=what)
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="what to write: net.bin, net.onnx or net.h")
    parser.add_argument("--config", metavar="BLUEPRINT", help="the blueprint, for weights that come without one")
    parser.add_argument("--weights", metavar="NPZ", help="the weights, with --config")
    parser.add_argument("--fp16", action="store_true", help="store weights in half precision: half the size")
    parser.add_argument("--data", metavar="SOURCE", help="the data to prove the export on (default: the training's)")
    parser.add_argument("--data-dir", metavar="DIR", help="where known data sets are kept")
    parser.add_argument("--samples", type=int, default=256, metavar="N", help="how many held-out samples (default 256)")
    parser.add_argument("--no-golden", action="store_true", help="leave the self-test out of the file")
    parser.add_argument("--store-winograd", nargs="?", type=_megabytes, const=math.inf, metavar="MB",
                        help="also store 3 x 3 weights as Winograd's algorithm needs them, up to so much: "
                             "a larger file that loads faster")  # fmt: skip
    group = parser.add_argument_group("whole numbers", "int8 weights and activations; see docs/int8.md")
    group.add_argument("--int8", nargs="?", const=MIXED[0], metavar="all",
                       help="calculate in int8; layers that hurt stay float32, unless `all`")  # fmt: skip
    group.add_argument("--calibrate", metavar="DATA", help="samples to take ranges from (default: the training's)")
    group.add_argument("--calibration-samples", type=int, metavar="N", help="how many (default 512)")
    group.add_argument("--seed", type=int, metavar="N", help="which (default 0)")
    group.add_argument("--max-loss", type=float, metavar="X",
                       help="points of accuracy that int8 may lose, else nothing is written (default 1)")  # fmt: skip
    group.add_argument("--force", action="store_true", help="write in spite of the loss, or of doubtful samples")
    chips = parser.add_argument_group("for microcontrollers", "see docs/microcontrollers.md")
    chips.add_argument("--board", metavar="NAME", help="show what it takes of this board; refuse if it does not fit")
    chips.add_argument("--with-golden", action="store_true", help="keep the self-test in a C header")
    group = parser.add_argument_group("for .onnx and .tflite models", "what the file does not say; see docs/import.md")
    group.add_argument("--labels", type=Path, metavar="FILE", help="names of the classes, one a line")
    group.add_argument("--color", choices=("rgb", "bgr", "gray"), help="what the net takes (default rgb, or gray)")
    group.add_argument("--input-range", type=_pair, metavar="LO,HI",
                       help="what pixels 0 and 255 become (default 0,255)")  # fmt: skip
    group.add_argument("--mean", type=_numbers, metavar="M[,M,M]", help="subtracted after that (default 0)")
    group.add_argument("--std", type=_numbers, metavar="S[,S,S]", help="divided by after that (default 1)")
    group.add_argument("--resize", choices=("nearest", "bilinear", "area"), help="how pictures are scaled (bilinear)")
    group.add_argument("--fit", choices=("stretch", "crop", "letterbox"), help="how pictures fit the frame (stretch)")
    group.add_argument("--input-shape", type=_sizes, metavar="N,N,..",
                       help="without the batch, where the file leaves it open")  # fmt: skip
    group.add_argument("--check", type=Path, metavar="NPZ", help="also prove the import on these inputs")
    return parser


def _megabytes(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of megabytes above 0; SOURCE stands before the option")
    return found


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0.485,0.456,0.406") from None


def _pair(text: str) -> tuple[float, float]:
    found = _numbers(text)
    if len(found) != 2:
        raise argparse.ArgumentTypeError(f"{text!r} is no pair of numbers such as 0,1")
    return found[0], found[1]


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of sizes such as 3,224,224")
    return tuple(int(part) for part in parts)


def _int8_lines(options: argparse.Namespace, out: Path) -> Iterator[str]:
    """Write the .bin `out` in whole numbers; yields the lines of the report."""
    from .int8.export import Options, convert

    source, net, where = _float_net(options)
    given = {
        "samples": options.calibration_samples, "seed": options.seed, "max_loss": options.max_loss,
        "data": options.calibrate or options.data,
    }  # fmt: skip
    chosen = Options(
        every=options.int8 == MIXED[1], data_dir=options.data_dir, force=options.force, golden=not options.no_golden,
        **{k: v for k, v in given.items() if v is not None},
    )  # fmt: skip
    return convert(net, source, where, out, chosen)


def _float_net(options: argparse.Namespace) -> tuple[Source | None, Stored, str]:
    """(the checkpoint, if it is one; the net as a device takes it; what it is called)."""
    from . import stored
    from .binary import unpacked
    from .source import load_source

    path = Path(options.source) if options.source is not None else None
    if path is not None and path.suffix.lower() in FOREIGN:
        from .imported import Options, read

        found = read(path, Options(**{name: getattr(options, name) for name in IMPORT_ONLY}))
        print(*found.proofs, sep="\n")
        return None, found.stored, str(path)
    if path is not None and path.suffix.lower() == ".bin":
        return None, stored.load(path), str(path)
    source = load_source(options.source, options.config, options.weights)
    return source, unpacked(source), source.where


def _bin_lines(options: argparse.Namespace, out: Path) -> Iterator[str]:
    """Write the .bin `out`; yields the lines of the report."""
    if options.int8 is not None:
        return _int8_lines(options, out)
    if options.source is not None and Path(options.source).suffix.lower() in FOREIGN:
        from .imported import Options, convert

        given = {name: getattr(options, name) for name in IMPORT_ONLY}
        given["store_winograd"] = options.store_winograd
        return convert(Path(options.source), out, Options(options.fp16, not options.no_golden, **given))
    from .binary import export

    return export(
        options.source,
        out,
        config=options.config,
        weights=options.weights,
        half=options.fp16,
        data=options.data,
        data_dir=options.data_dir,
        samples=options.samples,
        golden=not options.no_golden,
        store_winograd=options.store_winograd,
    )


def _write_bin(options: argparse.Namespace) -> None:
    if options.board is None:
        for line in _bin_lines(options, options.out):
            print(line, flush=True)
        return
    data = _fit(options)
    write_atomically(options.out, lambda file: file.write(data))


def _model_bytes(options: argparse.Namespace) -> bytes:
    """The .bin that is given, or would be made of what is given; its report is printed."""
    from .c_array import bin_bytes

    if options.int8 is None and options.source is not None and Path(options.source).suffix.lower() == ".bin":
        return bin_bytes(Path(options.source))
    name = f"{options.out.stem if options.out else 'model'}.bin"
    with tempfile.TemporaryDirectory() as folder:
        for line in _bin_lines(options, Path(folder) / name):
            print(line.replace(f"{Path(folder) / name}", name))
        return (Path(folder) / name).read_bytes()


def _fit(options: argparse.Namespace) -> bytes:
    """The model, if it fits the board; its report is printed."""
    data = _model_bytes(options)
    if options.board is not None:
        from .boards import check

        for line in check(options.board, data, options.with_golden):
            print(line)
    return data


def _write_h(options: argparse.Namespace) -> None:
    from . import c_array

    data = _fit(options)
    source = options.source or options.config or "model"
    for line in c_array.write(data, options.out, str(source), options.with_golden):
        print(line)


def _write_onnx(options: argparse.Namespace) -> None:
    from . import onnx_out

    _, model, _ = _float_net(options)
    for line in onnx_out.write(model, options.out):
        print(line)


FOREIGN = (".onnx", ".tflite")
MIXED = ("mixed", "all")
WRITERS: dict[str, Callable[[argparse.Namespace], Any]] = {".bin": _write_bin, ".onnx": _write_onnx, ".h": _write_h}
