"""edge-infer: what a model says about pictures. Answers go to standard output, the rest to standard error.

NumPy, OpenCV and the binding are imported when the command line has been understood, so --help is instant.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from .errors import ImageError, ModelError
from .pipes import while_read

TYPE_CHECKING = False  # as typing has it, without loading typing
if TYPE_CHECKING:
    from typing import NoReturn

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pbm", ".pgm", ".ppm", ".pnm")  # in folders
DRAWN = ".explain.png"  # what --explain adds to a picture's name; in folders such files are passed over

EPILOG = """\
exit status: 0 all answered, 1 something could not be read or failed its test, 2 bad command line

--json prints one object a line. A picture's has file, label, index, probability, top (a list of label, index,
probability) and microseconds (of the net alone); of a model that may not know also unknown, true or false: if true the
label is "unknown", and index and top are guesses. --embed: file, embedding. --compare: compare (the two files), cosine,
distance, threshold, same. A net that gives values has file, values, microseconds; one with
several outputs has file, outputs (a list of name, shape, values), microseconds.
Before them come, if asked for, {"tune": ...}, {"info": ...}, {"selftest": ...} and {"bench": ...}; --trace adds
"layers", --explain adds explained (file, label, layer).
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="edge-infer",
        description="Run a LiteNet model on pictures and print what it sees.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("model", help="the .bin file that edge-export wrote")
    p.add_argument("images", nargs="*", metavar="image", help="picture, folder of pictures, or - for stdin")
    p.add_argument("--top", type=_count, metavar="N", help="show the N best classes (default 1, in JSON 5)")
    p.add_argument("--embed", action="store_true", help="print each picture's embedding, all its numbers")
    p.add_argument("--compare", nargs=2, metavar="PICTURE", help="say whether two pictures show the same")
    p.add_argument("--guess", action="store_true", help="always name a class, never answer unknown")
    p.add_argument("--json", action="store_true", help="answer in JSON, one object a line")
    p.add_argument("--trace", action="store_true", help="also show what each layer gave for each picture")
    p.add_argument("--info", action="store_true", help="show the model: sizes, preprocessing, layers, origin")
    p.add_argument("--selftest", action="store_true", help="run the golden inputs stored in the model")
    p.add_argument("--bench", action="store_true", help="measure loading, running and each layer")
    p.add_argument("--explain", action="store_true", help="draw what spoke for each answer: NAME.explain.png beside it")
    p.add_argument("--explain-out", metavar="PATH", help="a folder for these drawings, or a .png for a single one")
    p.add_argument("--tune", action="store_true", help="time the ways to run each layer here, remember the fastest")
    p.add_argument("--untuned", action="store_true", help="ignore what --tune has remembered")
    p.add_argument("--threads", type=_count, metavar="N", help="threads for one run (default: by the net's size)")
    p.add_argument("--kernels", metavar="NAME", help="avx512, avx2, sse2, neon or portable, instead of the best")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    p = parser()
    args = p.parse_intermixed_args(argv)
    if not (args.images or args.info or args.selftest or args.bench or args.compare or args.tune):
        p.error("give at least one picture, or one of --compare, --info, --selftest, --bench, --tune")
    if args.trace and not args.images:
        p.error("--trace needs a picture")
    args.explain = args.explain or args.explain_out is not None
    if args.explain and not args.images:
        p.error("--explain needs a picture")
    for stream in (sys.stdout, sys.stderr):  # a label or file name may not exist in the terminal's encoding
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return while_read(lambda: _run(args))
    except (ModelError, ImageError) as error:
        return _complain(error)
    except KeyboardInterrupt:
        return 130


interrupted: list[int] = []  # Ctrl-C: raised where a library's clean-up swallows it, it is still seen


def _interrupt(number: int, frame: object) -> None:
    interrupted.append(number)
    raise KeyboardInterrupt


def entry() -> NoReturn:
    """The command as a process of its own. It ends without taking NumPy and OpenCV apart again, and does not look for
    garbage among the many objects that importing them makes: a quarter of the time of a short run."""
    import gc
    import signal

    gc.set_threshold(100_000)
    signal.signal(signal.SIGINT, _interrupt)
    status = main()
    sys.stderr.flush()
    os._exit(status)


def _run(args: argparse.Namespace) -> int:
    """Everything after the command line. ModelError: nothing more can be answered."""
    from time import perf_counter

    if "numpy" not in sys.modules:  # it would start threads for matrix products that are never asked of it
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .engine import InferenceEngine, say_on_bus_error

    say_on_bus_error(
        f"edge-infer: {args.model} was cut short while it was in use; run again. To replace a model, write the new one "
        "beside it and rename it."
    )
    if args.tune:
        from . import tune

        measured = tune.tune(args.model, args.kernels, args.threads)
        _print({"tune": measured}, tune.tune_text(measured), args.json)
    start = perf_counter()
    engine = InferenceEngine(args.model, threads=args.threads, kernels=args.kernels, tuned=not args.untuned)
    load_seconds = perf_counter() - start
    if args.info:
        from . import report

        found = report.info(engine)
        _print({"info": found}, report.info_text(found), args.json)
    if args.selftest:
        engine.selftest()
        _print({"selftest": "passed"}, ["self-test passed"], args.json)
    if args.bench:
        from . import bench

        x = engine.prepare(*_decode(next(_pictures(args.images[0])))) if args.images else None
        timed = bench.bench(engine, load_seconds, x)
        _print({"bench": timed}, bench.bench_text(timed), args.json)
        return 0
    if args.compare:
        _compare(engine, args)
    status, drawer = 0, None
    if args.explain:
        from .drawings import Drawer

        drawer = Drawer(engine, args.explain_out)
    for given in args.images:
        try:
            for path in _pictures(given):
                if interrupted:
                    raise KeyboardInterrupt
                status = _answer(engine, path, args, drawer) or status
        except ImageError as error:
            status = _complain(error)
    return status


def _answer(engine, path: str, args: argparse.Namespace, drawer) -> int:
    from time import perf_counter

    from . import answers

    try:
        picture = _decode(path)
        x = engine.prepare(*picture)
    except ImageError as error:  # one bad picture does not end the run
        return _complain(error)
    start = perf_counter()
    y = engine.predict(x)
    microseconds = (perf_counter() - start) * 1e6
    if args.embed:
        row = answers.embedding(engine, y)
        _print({"file": path, "embedding": row.tolist()}, [f"{path}  {'  '.join(f'{v:.6g}' for v in row)}"], args.json)
        return 0
    found = answers.answer(engine, path, y, microseconds, args.top or (5 if args.json else 1), args.guess)
    lines = answers.text(found)
    if args.trace:
        from . import report

        found["layers"] = report.trace(engine, x)
        lines += report.trace_text(found["layers"])
    if drawer is not None:
        try:
            found["explained"] = drawer.draw(path, picture, x, found["top"][0]["index"])
        except ImageError as error:
            return _complain(error)
        lines.append(f"  what spoke for {found['explained']['label']}: {found['explained']['file']}")
    _print(found, lines, args.json)
    return 0


def _compare(engine, args: argparse.Namespace) -> None:
    from . import answers

    first, second = (answers.embedding(engine, engine.predict(engine.prepare(*_decode(path)))) for path in args.compare)
    found = answers.compared(engine, tuple(args.compare), (first, second))
    _print(found, answers.compared_text(found), args.json)


def _print(found: dict, lines: list[str], as_json: bool) -> None:
    if as_json:
        import json

        lines = [json.dumps(found)]
    print("\n".join(lines), flush=True)


def _complain(error: Exception) -> int:
    print(f"edge-infer: {error}", file=sys.stderr)
    return 1


def _pictures(given: str) -> Iterator[str]:
    """What one argument stands for: itself, or the pictures in that folder and below it, sorted."""
    from pathlib import Path

    if not Path(given).is_dir():
        yield given
        return
    empty = True
    for folder, below, names in os.walk(given):
        below.sort()
        for name in sorted(names):
            if name.lower().endswith(SUFFIXES) and not name.endswith(DRAWN):
                empty = False
                yield str(Path(folder, name))
    if empty:
        raise ImageError(f"{given} holds no pictures; expected files ending in {' '.join(SUFFIXES)}.")


def _decode(path: str):
    """The picture of a file or of standard input. What the codecs print is dropped: we say it, once."""
    from . import image

    with _codecs_silenced():
        if path == "-":
            return image.decode(sys.stdin.buffer.read(image.MAX_FILE_BYTES), "standard input")
        return image.decode(path)


@contextlib.contextmanager
def _codecs_silenced() -> Iterator[None]:
    """libpng and libjpeg write to file descriptor 2, past Python."""
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except OSError:  # there is none: nothing to silence
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)
