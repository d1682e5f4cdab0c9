"""edge-check: will LiteNet work on this machine, and how well? A line for each thing looked at, with what to do.

A thin shell over check_software, check_card, check_kernels and check_speed, each imported when its turn comes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from litenet.pyruntime.pipes import while_read

from .check_line import FAIL, OK, WARN, Line, guarded

EPILOG = """exit status: 0 what was asked for will work, 1 some line says [FAIL], 2 bad command line

[OK] is well, [WARN] works but could be better, [FAIL] does not work. Without --device a machine without a
card is well: training runs on the CPU. With --device cuda a missing card, driver or CuPy is a [FAIL].
--json prints one object: lines (group, name, status, text, advice, facts), verdict, device, exit.
"""


class Report:
    """The lines so far. Prints each as it comes, unless they are wanted as one object at the end."""

    def __init__(self, show: bool):
        self.show, self.group = show, ""
        self.lines: list[tuple[str, Line]] = []

    def begin(self, group: str) -> None:
        self.group = group
        if self.show:
            print(("\n" if self.lines else "") + group, flush=True)

    def add(self, lines: Iterable[Line]) -> bool:
        """Whether none of them is a FAIL."""
        well = True
        for line in lines:
            self.lines.append((self.group, line))
            well = well and line.status != FAIL
            if self.show:
                print(line.render(), flush=True)
        return well

    def failed(self, group: str = "") -> list[str]:
        return [line.name for where, line in self.lines if line.status == FAIL and group in ("", where)]


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    report = Report(show=not options.json)

    def work() -> int:
        software(report)
        usable = options.device != "cpu" and "NumPy" not in report.failed()
        device = card(report, options) if usable else None
        return verdict(report, options, device)

    try:
        return while_read(work)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "edge-check", description="Say whether LiteNet works on this machine, and how well.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--device", choices=["cpu", "cuda"], help="what has to work (default: what there is)")
    parser.add_argument("--quick", action="store_true", help="leave out the self-test and the timing")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    return parser


def software(report: Report) -> None:
    from . import check_software as look

    report.begin("software")
    report.add(guarded("Python", look.python))
    report.add(guarded("LiteNet", look.litenet))
    works = report.add(guarded("NumPy", look.numpy))
    if works:  # these stand on it
        report.add(guarded("C runtime", look.runtime))
        report.add(guarded("OpenCV", look.opencv))
    report.add(guarded("extras", look.extras, status=WARN))
    if works:
        report.add(guarded("cache", look.cache, status=WARN))


def card(report: Report, options: argparse.Namespace) -> Any:
    """The device, if training on the card will work; else None."""
    from . import check_card as look

    asked = FAIL if options.device == "cuda" else WARN
    held: dict[str, Any] = {}
    report.begin("card")
    report.add(guarded("driver", _probe, held))
    if "driver" not in held:
        return None
    found = held["driver"]
    report.add(guarded("driver", look.driver, found, asked))
    report.add(guarded("card", look.card, found, asked))
    report.add(guarded("CuPy", look.cupy, found, asked, held))
    if not found.cards or "cupy" not in held or report.failed("card"):
        return None
    cc = found.cards[0].capability
    if not report.add(guarded("NVRTC", look.nvrtc, held["cupy"], cc)):
        return None
    report.add(guarded("kernel cache", look.kernel_cache, status=WARN))
    report.add(guarded("card", _open, held))
    device = held.get("device")
    if device is None:
        return None
    report.add(guarded("float16", look.half, cc, status=WARN))
    report.add(guarded("memory", look.memory, device))
    report.add(guarded("display", look.display, device, status=WARN))
    report.add(guarded("board", look.board, device, status=WARN))
    report.add(guarded("CUDA graphs", look.graphs, device))
    if report.failed("card"):
        return None
    if not options.quick:
        selftest(report, device, cc)
    return None if any(report.failed(group) for group in ("card", "self-test", "speed")) else device


def _probe(held: dict[str, Any]) -> Iterator[Line]:
    """Ask the driver. That it is missing is for a line of its own."""
    from .backends.driver import probe

    held["driver"] = probe()
    yield from ()


def _open(held: dict[str, Any]) -> Iterator[Line]:
    """Take the card as training does."""
    from .backends.cuda import CudaDevice
    from .errors import UserError

    try:
        held["device"] = CudaDevice()
    except UserError as error:
        text, _, advice = str(error).partition("\n")
        yield Line("card", FAIL, text, advice.strip())


def selftest(report: Report, device: Any, cc: tuple[int, int]) -> None:
    """Every kernel against NumPy, then how fast they are, then a net."""
    from .backends.cards import HALF_FROM

    report.begin("self-test")
    if not report.add(guarded("kernels", kernels, device)):
        return
    if cc >= HALF_FROM:
        report.begin("self-test in half precision")
        report.add(guarded("kernels", kernels, device, True, status=WARN))
    report.begin("speed")
    report.add(guarded("speed", _speed, "throughput", device, cc, status=WARN))
    report.add(guarded("a net", _speed, "step", device))


def _speed(what: str, *given: Any) -> Iterator[Line]:
    """A function of check_speed."""
    from . import check_speed

    yield from getattr(check_speed, what)(*given)


def kernels(device: Any, half: bool = False) -> Iterator[Line]:
    """A line on compiling, and one for each family of kernels. In half precision a wrong one is a WARN: nobody has to
    train with it."""
    from .backends.cuda_info import compile_all
    from .check_kernels import run, tests
    from .check_software import usable_cores

    made = tests(device.sms, half)
    wanted = sorted({kernel for test in made for kernel in test.kernels}, key=str)
    names = sorted({kernel.name for kernel in wanted})
    yield Line("kernels", OK, f"{len(names)}, in {len(wanted)} forms to compile", facts={"kernels": names})
    begin = time.perf_counter()
    compile_all(device, wanted, usable_cores())
    spent, begin = time.perf_counter() - begin, time.perf_counter()
    outcomes = list(run(device, made))
    seconds = time.perf_counter() - begin
    text = f"compiled in {spent:.1f} s (kept on disk), {len(made)} tests run in {seconds:.1f} s"
    yield Line("tests", OK, text, facts={"compile_seconds": spent, "seconds": seconds})
    bad = WARN if half else FAIL
    advice = f"Do not train {'in half precision' if half else 'on this card'}: please report this with these lines."
    for family in dict.fromkeys(test.family for test in made):
        own = [o for o in outcomes if o.test.family == family]
        wrong = [o.problem for o in own if o.problem]
        worst = max((o.worst for o in own), default=0.0)
        facts = {"tests": len(own), "wrong": wrong, "worst": worst}
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            yield Line(family, bad, wrong[0] + more, advice, facts)
        elif missing := sum(test.family == family for test in made) - len(own):
            text = f"{missing} of {missing + len(own)} tests not run: the card did not go on after what failed"
            yield Line(family, bad, text, advice, facts)
        else:
            text = f"{len(own)} tests right, the worst error {100 * worst:.2g} % of what is allowed"
            yield Line(family, OK, text, facts=facts)


def verdict(report: Report, options: argparse.Namespace, device: Any) -> int:
    """How fast the CPU is where it has to do, one line on it all, and the exit status."""
    broken, failed = report.failed("software"), list(dict.fromkeys(report.failed()))
    if "NumPy" not in broken and device is None and not options.quick:
        report.begin("speed")
        report.add(guarded("estimate", _speed, "step_on_cpu", status=WARN))
    others = "training on the CPU, edge-export and edge-infer work"
    if broken:
        line = Line("verdict", FAIL, f"LiteNet will not work here as it is: see {', '.join(broken)}")
    elif device is not None:
        line = Line("verdict", OK, f"training on the {device.name} works: edge-train ... --device cuda")
    elif failed:
        line = Line("verdict", FAIL, f"training on the card will not work (see {', '.join(failed)}); {others}")
    elif options.device == "cpu":
        line = Line("verdict", OK, others)
    else:
        missing = [line.name for group, line in report.lines if group == "card" and line.status == WARN]
        line = Line("verdict", OK, f"no card to train on ({', '.join(missing)}); {others}")
    report.begin("verdict")
    report.add([line])
    status = 1 if failed else 0
    if options.json:
        found = [line.as_dict(group) for group, line in report.lines]
        name = None if device is None else device.name
        whole = {"lines": found, "verdict": line.text, "device": name, "exit": status}
        print(json.dumps(whole, default=str, allow_nan=False))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
