"""edge-serial: talk to a board that runs LiteNet's firmware, and prove that it computes what it should.

Answers go to standard output, the rest to standard error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import ImageError, ModelError
from .pipes import while_read
from .serial_link import BAUD, Link, SerialError, open_port

EPILOG = """\
examples:
  edge-serial ports
  edge-serial info /dev/ttyACM0
  edge-serial infer /dev/ttyACM0 mnist_cnn.bin five.png
  edge-serial verify /dev/ttyACM0 mnist_cnn.bin --samples 200
  edge-serial bench /dev/ttyACM0 --runs 50
  edge-serial flash-model /dev/ttyACM0 better.bin

exit status: 0 done, 1 the board, the port or the model is at fault or the answers differ, 2 bad command line
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="edge-serial", description="Ask, measure and prove a board that runs LiteNet's firmware.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    sub = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    sub.add_parser("ports", help="list the serial ports of this computer")

    def board(name: str, text: str) -> argparse.ArgumentParser:
        s = sub.add_parser(name, help=text, description=text)
        s.add_argument("port", help="the serial port, such as /dev/ttyACM0 or COM3")
        s.add_argument("--baud", type=_count, default=BAUD, metavar="N", help=f"bits a second (default {BAUD})")
        s.add_argument("--wait", type=_seconds, default=0.5, metavar="S",
                       help="seconds to wait for a first answer (default 0.5)")  # fmt: skip
        return s

    board("info", "show the board, its firmware and its model")
    s = board("infer", "have the board look at pictures")
    s.add_argument("model", type=Path, help="the .bin on the board: it says how a picture becomes the input")
    s.add_argument("images", nargs="+", metavar="image", help="pictures")
    s = board("verify", "compare the board's answers with this PC's")
    s.add_argument("model", type=Path, help="the .bin that its firmware was built from")
    s.add_argument("--samples", type=_count, default=20, metavar="N", help="how many inputs, golden ones first (20)")
    s.add_argument("--seed", type=int, default=0, metavar="N", help="of the random inputs (default 0)")
    s.add_argument("--exact", action="store_true", help="float32 too must agree bit for bit")
    s = board("bench", "time a run by the board's own clock, and read its memory's high-water marks")
    s.add_argument("--runs", type=_count, default=10, metavar="N", help="how many (default 10)")
    s = board("monitor", "print what the board sends, frame by frame, until Ctrl-C")
    s.add_argument("--seconds", type=_seconds, metavar="S", help="stop after so long")
    s = board("flash-model", "put a new model on the board; the old one stays until the new one has proved itself")
    s.add_argument("model", type=Path, help="the new .bin")
    s.add_argument("--samples", type=_count, default=10, metavar="N", help="inputs it must prove itself on (10)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """0: done; 1: the board, the port or a file was at fault, or answers differ; 2: the command was bad."""
    args = parser().parse_args(argv)
    try:
        return while_read(lambda: COMMANDS[args.command](args))
    except (SerialError, ModelError, ImageError) as error:
        print(f"edge-serial: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"edge-serial: {error.filename}: {error.strerror}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("edge-serial: stopped.", file=sys.stderr)
        return 130


@contextmanager
def _board(args: argparse.Namespace) -> Iterator[Any]:
    """The board at args.port; its port is released at the end, whatever happens."""
    from .serial_device import Device

    with Link(open_port(args.port, args.baud), args.port, args.wait) as link:
        yield Device(link)


def _ports(args: argparse.Namespace) -> int:
    from .serial_link import _pyserial

    _pyserial()
    from serial.tools.list_ports import comports

    found = sorted(comports())
    for port in found:
        known = f"  [{port.vid:04X}:{port.pid:04X}]" if port.vid is not None else ""
        print(f"{port.device}  {port.description}{known}")
    if not found:
        print("edge-serial: no serial port was found; is the board plugged in, with a cable that carries data?",
              file=sys.stderr)  # fmt: skip
    return 0 if found else 1


def _info(args: argparse.Namespace) -> int:
    with _board(args) as device:
        i = device.info
        which = "built in" if i.slot == 0 else f"loaded, in slot {i.slot}"
        print(f"{i.board}: LiteNet {i.runtime}, protocol frames of {device.link.payload} bytes, clock {i.hertz:,} Hz")
        if i.status:
            from .serial_link import status_text

            print(f"model: cannot be opened: {status_text(i.status)}")
            return 1
        print(f"model: {i.model_bytes:,} bytes ({which}), checksum {i.identity:08X}, {i.operators} operators")
        print(f"memory: arena {i.arena_bytes:,}, input {i.input_bytes:,}, output {i.output_bytes:,} bytes")
        print(f"room for another model: {i.room:,} bytes" if i.room else "no room for another model")
    return 0


def _infer(args: argparse.Namespace) -> int:
    from . import answers
    from .image import decode
    from .serial_verify import reference, same_model

    engine, data = reference(args.model)
    with engine, _board(args) as device:
        same_model(device, data, str(args.model))
        for file in args.images:
            picture = decode(file)
            x = engine.prepare(picture.pixels, picture.layout)
            ran = device.run(x.tobytes())
            found = answers.answer(engine, file, engine.outputs_of(ran.output), 1e6 * ran.seconds, 1)
            print(*answers.text(found), f"({1e3 * ran.seconds:.3g} ms on the board)")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from .serial_verify import verify

    with _board(args) as device:
        began = time.monotonic()
        show = _progress(args.samples)
        found = verify(device, args.model, args.samples, exact=args.exact, seed=args.seed, progress=show)
        if found.difference is not None:
            _print_difference(device, found)
            return 1
        print(
            f"{args.port}: {found.samples} samples ({found.golden} golden): {found.identical} the same bit for bit"
            + (f", the others within {found.worst:.2g}" if found.identical < found.samples else "")
            + f"; {1e3 * found.seconds:.4g} ms a run on the board, {time.monotonic() - began:.1f} s in all"
        )
        if device.link.repeats:
            print(f"  requests sent again: {device.link.repeats}; damaged frames dropped: {device.link.noise}")
    return 0


def _print_difference(device: Any, found: Any) -> None:
    from ._litenet import ffi, lib

    d, ours = found.difference, ffi.string(lib.LN_VERSION).decode()
    kind = "golden" if d.golden else "random"
    print(f"sample {d.sample} ({kind}) differs by {d.worst:.3g}; at most {d.allowed:.3g} is allowed")
    print(f"  the first operator that differs: {d.operator}")
    if device.info.runtime != ours:
        print(f"  the board runs LiteNet {device.info.runtime}, this PC {ours}: build its firmware from the same one")


def _bench(args: argparse.Namespace) -> int:
    with _board(args) as device:
        seconds = device.bench(args.runs)
        touched, used, size = device.memory()
        clock = f"its clock of {device.info.hertz:,} Hz"
        print(f"{device.info.board}: {1e3 * seconds:.6g} ms a run, mean of {args.runs}, by {clock}")
        stack = f"; stack {used:,} of {size:,} bytes used at most" if size else ""
        print(f"  a run touches {touched:,} of {device.info.arena_bytes:,} bytes of arena{stack}")
    return 0


def _monitor(args: argparse.Namespace) -> int:
    from .serial_frame import Reader

    with Link(open_port(args.port, args.baud), args.port) as link:
        reader, until = Reader(), None if args.seconds is None else time.monotonic() + args.seconds
        while until is None or time.monotonic() < until:
            data = link._guard(link._some)
            before = reader.dropped
            for frame in reader.feed(data):
                print(f"type {frame.type:#04x} sequence {frame.sequence} {frame.payload.hex(' ')}", flush=True)
            if reader.dropped != before:
                print(f"{reader.dropped} damaged frames so far", file=sys.stderr)
    return 0


def _flash_model(args: argparse.Namespace) -> int:
    from .chip_file import stripped
    from .serial_verify import reference, verify

    engine, data = reference(args.model)
    engine.close()
    with _board(args) as device:
        small, show = stripped(data), _progress(0)
        for sent in device.load(small):
            show(sent)
        try:
            found = verify(device, args.model, args.samples)
        except BaseException:
            device.back()
            raise
        if found.difference is not None:
            _print_difference(device, found)
            device.back()
            print("  the old model goes on", file=sys.stderr)
            return 1
        device.keep()
        print(f"{args.port}: {args.model} is on the board: {len(small):,} bytes, {found.samples} samples right, kept")
    return 0


def _progress(total: int) -> Any:
    """Shows a count on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda count: None

    def show(count: int) -> None:
        text = f"\r{count} of {total}" if total else f"\r{count} bytes"
        print(text, end="\n" if count == total else "", file=sys.stderr)

    return show


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


COMMANDS = {
    "ports": _ports, "info": _info, "infer": _infer, "verify": _verify, "bench": _bench, "monitor": _monitor,
    "flash-model": _flash_model,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
