"""What folders of photos cost: the preflight, decoding, and a warm start up to the first training step.

    python benchmarks/photos.py photos/ examples/tomato_cnn.json [--rounds 5]

Beside it OpenCV, which reads the same files one after the other and does nothing else. Of each the best and the median
of so many interleaved rounds: seconds by the clock, and of processor time, children included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = """
import os, sys, time
from litenet.trainer import display
def first(self, progress, metrics):
    sys.stdout.flush()
    os._exit(0)
display.Display.step = first
from litenet.trainer.cli import main
sys.exit(main(sys.argv[1:]))
"""
CHECK = "import sys; from litenet.trainer.cli import main; sys.exit(main(sys.argv[1:]))"
OPENCV = "import sys, cv2; [cv2.imread(name) for name in sys.stdin.read().splitlines()]"


def timed(code: str, *arguments: str, text: str = "") -> tuple[float, float]:
    """(seconds by the clock, of processor time) of one Python."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], input=text, text=True, capture_output=True, check=False
    )
    after, seconds = os.times(), time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    return seconds, sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("blueprint")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from litenet.trainer.data.photo_list import scan

    names = "\n".join(str(photo.path) for photo in scan(options.photos).photos)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            cache = ["--cache", f"{folder}/cache"]
            train = [options.blueprint, "--data", str(options.photos), *cache, "--quiet"]
            rounds = {
                "OpenCV reads the files": lambda: timed(OPENCV, text=names),
                "check-data": lambda c=cache: timed(CHECK, "check-data", str(options.photos), *c),
                "first start, decoding": lambda t=train, f=folder: timed(START, *t, "--out", f"{f}/first"),
                "warm start, to the end of step 1": lambda t=train, f=folder: timed(START, *t, "--out", f"{f}/second"),
            }
            for name, run in rounds.items():
                found.setdefault(name, []).append(run())
    print(f"{len(names.splitlines()):,} photos; seconds by the clock (best, median), of processor time (best, median)")
    for name, rows in found.items():
        clock, processor = zip(*rows, strict=True)
        figures = (min(clock), statistics.median(clock), min(processor), statistics.median(processor))
        print(f"{name:<34}" + "".join(f"{figure:8.2f}" for figure in figures))


if __name__ == "__main__":
    main()
