"""edge-train: train a blueprint on a data set, or say what training it would need.

A thin shell: parse, call, print. Results go to standard output, the rest to standard error.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from litenet.pyruntime.pipes import while_read

from . import check_data
from .errors import UserError
from .report.commands import COMMANDS

EPILOG = """examples:
  edge-train examples/digits_cnn.json --data digits
  edge-train examples/mnist_cnn.json --data mnist --epochs 5
  edge-train examples/tomato_resnet.json --data photos/
  edge-train check-data photos/
  edge-train plan examples/mnist_cnn.json --batch 64 --memory 2GB
  edge-train --resume runs/mnist_cnn
  edge-train examples/mnist_cnn.json --data mnist --from runs/mnist_cnn --qat
  edge-train evaluate mnist_cnn.bin --data mnist
  edge-train compare runs/mnist_cnn runs/mnist_cnn-2
"""


def main(argv: list[str] | None = None) -> int:
    """0: done; 1: the input was bad; 2: the command was; 130: stopped by Ctrl-C, saved."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsers = {"plan": (_plan_parser, _plan), "check-data": (check_data.parser, check_data.run), **COMMANDS}
    try:
        if arguments and arguments[0] in parsers:
            make, work = parsers[arguments[0]]
            options = make().parse_args(arguments[1:])
            return while_read(lambda: work(options))
        parser = _train_parser()
        options = parser.parse_args(arguments)
        return while_read(lambda: _train(parser, options, arguments))
    except UserError as error:
        print(f"edge-train: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a disk, a share or a file that went away under it
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"edge-train: {place}{error.strerror or error}.\n  What was saved before is kept: go on with --resume RUN.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, dest="batch_size", metavar="N", help="samples of one (micro-)batch")
    parser.add_argument("--accumulation", type=int, metavar="N", help="micro-batches averaged for one update")
    parser.add_argument("--clip-norm", type=float, metavar="X", help="scale gradients down to this norm")
    parser.add_argument("--clip-value", type=float, metavar="X", help="clip each gradient to [-X, X]")


def _train_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "edge-train",
        description="Train a blueprint. `edge-train plan` tells the memory it needs without training; `edge-train "
        "report`, `evaluate` and `compare` look at what came of it.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("blueprint", nargs="?", help="the net, as JSON or YAML")
    parser.add_argument("--data", metavar="SOURCE", help="photos in a folder a class, digits, mnist, cifar10, ...")
    parser.add_argument("--data-dir", metavar="DIR", help="where known data sets are kept (or looked for)")
    check_data.add_photo_options(parser)
    parser.add_argument("--epochs", type=int, metavar="N")
    _common(parser)
    parser.add_argument("--lr", type=_rate, dest="learning_rate", metavar="X", help="learning rate, or auto: find one")
    parser.add_argument("--schedule", choices=["constant", "step", "cosine", "one_cycle"])
    parser.add_argument("--warmup", type=float, metavar="X", help="epochs of linear warm-up; below 1, share of the run")
    parser.add_argument("--validation-split", type=float, metavar="X", help="share held out to choose the best epoch")
    parser.add_argument("--early-stopping", type=int, metavar="N", help="stop after N epochs without improvement")
    parser.add_argument("--seed", type=int)
    aids = parser.add_argument_group("training aids", "what they do, and what they cost: docs/training.md")
    aids.add_argument("--from", type=Path, dest="origin", metavar="RUN", help="start from a run's weights, or a .bin's")
    aids.add_argument("--qat", action="store_true", help="train with the device's int8, from a float run (--from)")
    aids.add_argument("--freeze", action="append", metavar="LAYER", help="leave its weights as they are; * fits more")
    aids.add_argument("--rate", action="append", type=_factor, metavar="LAYER=X", help="its learning rate, times X")
    aids.add_argument("--ema", type=float, metavar="X", help="evaluate and export an average of the weights (0.999)")
    aids.add_argument("--class-weights", type=_weights, metavar="X,X,..", help="a weight for each class, or auto")
    aids.add_argument("--sampling", choices=["each", "balanced"], help="balanced: all classes equally often")
    aids.add_argument("--fraction", type=float, metavar="X", help="learn from this share of the samples")
    aids.add_argument("--time", type=_seconds, dest="time_limit", metavar="TIME", help="train so long: 30m, 2h")
    aids.add_argument("--unknown", type=float, metavar="X", help="share of right answers that may be called unknown")
    aids.add_argument("--layer-stats", action="store_true", default=None, dest="layer_statistics",
                      help="measure each layer at the end of each epoch")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to train (default cpu)")
    parser.add_argument("--memory", metavar="SIZE", help="train within so many bytes, such as 2GB, at a stated price")
    parser.add_argument("--fp16", action="store_true", help="store activations in half precision (cards from 7.0 on)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default runs/NAME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this folder, to the bit")
    parser.add_argument("--preview", type=Path, metavar="FILE.png", help="draw what the net will see, and end")
    parser.add_argument("--profile", action="store_true", help="first write a page that shows every launch of a step")
    parser.add_argument("--profile-only", action="store_true", help="write that page and end (in runs/NAME-profile)")
    parser.add_argument("--debug-nan", action="store_true", help="name what made the first NaN or infinity; slower")
    parser.add_argument("--save-every", type=int, default=0, metavar="N", help="also save after every N updates")
    parser.add_argument("--no-report", action="store_true", help="leave report.html away at the end of the run")
    parser.add_argument("--tensorboard", action="store_true", help="also write event files for TensorBoard")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors and the result")
    return parser


def _rate(text: str) -> float | str:
    return text if text == "auto" else _number(text, "a number or auto")


def _weights(text: str) -> list[float] | str:
    parts = text.split(",")
    return text if text == "auto" else [_number(part, "a list of numbers such as 1,2.5, or auto") for part in parts]


def _factor(text: str) -> tuple[str, float]:
    name, _, factor = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a layer, =, and a number")
    return name, _number(factor, "a number after =")


def _seconds(text: str) -> float:
    """90, 90s, 30m, 1.5h or 1d in seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    unit = units.get(text[-1:].lower())
    return _number(text[:-1] if unit else text, "a time such as 90s, 30m or 2h") * (unit or 1)


def _number(text: str, expected: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}") from None


def _plan_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "edge-train plan", description="The exact memory of a training step, without training."
    )
    parser.add_argument("blueprint", help="the net, as JSON or YAML")
    _common(parser)
    parser.add_argument("--memory", metavar="SIZE", help="a budget such as 2GB: prints the largest batch that fits")
    return parser


def _plan(options: argparse.Namespace) -> int:
    from .planning import plan_texts

    given = {k: getattr(options, k) for k in ("batch_size", "accumulation", "clip_norm", "clip_value")}
    for text in plan_texts(options.blueprint, given, options.memory):
        print(text)
    return 0


def _train(parser: argparse.ArgumentParser, options: argparse.Namespace, arguments: list[str]) -> int:
    if options.resume is None and (options.blueprint is None or options.data is None):
        parser.error("give a blueprint and --data, or --resume RUN")
    if options.resume is not None and options.blueprint is not None:
        parser.error("--resume takes the blueprint from the run; give one or the other")
    if options.resume is not None and options.out is not None:
        parser.error("--resume goes on in the run's own folder; leave --out away")
    if options.resume is not None and options.preview is not None:
        parser.error("--preview shows a blueprint's data before a run; leave --resume away")
    if options.resume is not None and (options.origin is not None or options.class_weights is not None):
        parser.error("--resume goes on with the run's own weights; --from and --class-weights begin a new one")
    if options.qat and (options.origin is None or options.resume is not None):
        parser.error("--qat begins with the weights of a float run: give --from RUN; --resume goes on by itself")
    if options.save_every < 0:
        parser.error("--save-every is a number of updates")
    from litenet.pyruntime.engine import say_on_bus_error

    from . import blueprint as blueprints
    from . import checkpoint
    from . import session as sessions
    from .display import Display, duration
    from .embedding import text as embedding_text
    from .fits import fit_embedding, fit_unknown
    from .int8.qat import Start, defaults
    from .loop import Events, Progress
    from .machine import Machine
    from .memory import parse_bytes
    from .report import board, environment
    from .transfer import read as read_weights
    from .unknown import text as unknown_text

    say_on_bus_error(
        "edge-train: a file of the data set or of the cache was cut short while it was in use, or its disk went away.\n"
        "  What was saved before is kept: bring the data back and go on with --resume RUN."
    )
    if options.tensorboard:
        board.check()
    names = ("epochs", "batch_size", "accumulation", "clip_norm", "clip_value", "learning_rate", "schedule", "warmup",
             "validation_split", "early_stopping", "seed", "ema", "sampling", "fraction", "time_limit", "freeze",
             "layer_statistics", "unknown")  # fmt: skip
    given = {name: getattr(options, name) for name in names} | {"rates": dict(options.rate) if options.rate else None}
    if options.preview is not None:
        blueprint = blueprints.load(options.blueprint)
        more = {"photos": check_data.photo_options(options), "cache": options.data_dir}
        sessions.preview(blueprint, options.data, given, options.preview, **more)
        print(f"{options.preview} shows what the net sees")
        return 0
    memory = None if options.memory is None else parse_bytes(options.memory)
    qat = Start(checkpoint.load(options.origin)) if options.qat else None
    fetch = {"cache": options.data_dir, "machine": Machine(options.device, memory, options.fp16, qat)}
    fetch |= {"photos": check_data.photo_options(options), "progress": check_data.progress(options.quiet)}
    fetch["report"] = None if options.quiet else check_data.report
    if options.resume is not None:
        session = sessions.resume(options.resume, given, options.data, **fetch)
    else:
        blueprint = blueprints.load(options.blueprint)
        folder = options.out or (Path("runs") / f"{blueprint.name}-profile" if options.profile_only else None)
        origin = read_weights(options.origin) if options.origin is not None else None
        if options.qat:
            given = defaults(blueprint, given)
        session = sessions.start(
            blueprint, options.data, given, folder, class_weights=options.class_weights, origin=origin, **fetch
        )
    s, train = session.settings, session.train
    if not options.quiet:
        held = f", {len(session.validation.x):,} held out" if session.validation else ""
        print(
            f"{session.blueprint.name} on {train.name}: {len(train.x):,} samples{held}; batch {s.batch_size}, "
            f"arena {session.trainer.backend.bytes:,} bytes; run folder {session.folder}",
            file=sys.stderr,
        )
        for note in session.notes:
            print(note, file=sys.stderr)
        if session.preflight is not None:
            print(f"frames: {session.preflight.frames}", file=sys.stderr)
        stored, shape = session.data["stored_shape"], session.data["shape"]
        if stored != shape:
            print(f"pictures of {_size(stored)} are fitted to {_size(shape)}, as on the device", file=sys.stderr)
    if options.profile or options.profile_only:
        _profile(session)
        if options.profile_only:
            return 0
    device = getattr(session.trainer, "device", None)
    environment.record(session.folder, shlex.join(["edge-train", *arguments]), device.name if device else "cpu")
    events_file = board.Board(session.folder, session.progress.epoch) if options.tensorboard else None
    batches, clipped = len(train.x) // s.batch_size, s.clip_norm is not None
    display = Display(s.epochs, batches, quiet=options.quiet, limit=s.time_limit, clipped=clipped)
    stopping = _StopOnSignal()

    def ended(progress: Progress, row: dict[str, Any]) -> None:
        display.epoch(progress, row)
        if events_file is not None:
            events_file.epoch(row)

    events = Events(step=display.step, epoch=ended, stop=lambda: stopping.asked)
    try:
        with stopping:
            result = session.run(events, options.save_every, options.debug_nan)
    finally:
        display.close()
        if events_file is not None:
            events_file.close()
    if result == "stopped":
        print(f"stopped and saved; go on with: edge-train --resume {session.folder}", file=sys.stderr)
        return 130
    unknown, embedded = fit_unknown(session), fit_embedding(session)
    tested = session.test_best(scores=not options.no_report)
    p = session.progress
    print(f"{session.folder}: {result} after {p.epoch} epochs, {duration(p.seconds)}; best epoch {p.best_epoch + 1}")
    if unknown is not None:
        print(unknown_text(unknown))
    if embedded is not None:
        print(embedding_text(embedded))
    if tested is not None and session.test is not None:
        share = "" if tested.accuracy is None else f", accuracy {100 * tested.accuracy:.2f} %"
        print(f"test: loss {tested.loss:.4f}{share} ({len(session.test.x):,} samples)")
    if not options.no_report:
        from .report.evaluate import of_session
        from .report.page import report

        path = report(session.folder, of_session(session, tested))
        if not options.quiet:
            print(f"{path} shows the run", file=sys.stderr)
    return 0


def _profile(session: Any) -> None:
    """Measure a step of the run that is about to start. It leaves no trace but the two files."""
    from .profile import profile_step
    from .profile_page import time_text, write

    found = profile_step(session.trainer, session.train, session.settings)
    page, _ = write(found, session.folder)
    worst = max(found.launches, key=lambda launch: launch.gap_us)
    print(
        f"{page}: a step takes {time_text(found.step_us)}, at {100 * found.share:.0f} % of this machine's limit; "
        f"most to gain: {worst.name}, {time_text(worst.gap_us)}"
    )


def _size(shape: list[int]) -> str:
    return " x ".join(map(str, shape))


class _StopOnSignal:
    """The first Ctrl-C asks the loop to stop after this step; the second ends the program at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> None:
        try:
            self.before = signal.signal(signal.SIGINT, self.ask)
        except ValueError:  # not the main thread: no signals here
            self.before = None

    def ask(self, *_: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: Any) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
