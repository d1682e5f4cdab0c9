"""Our runtime beside ONNX Runtime, LiteRT, OpenVINO, ncnn and MNN with the same weights, one thread, batch 1.

    pip install litenet onnx onnxruntime ai-edge-litert openvino ncnn pnnx MNN
    python benchmarks/runtime_peers.py [NET ...]            # of benchmarks/zoo_bins.py (LAYERS too), untrained
    python benchmarks/runtime_peers.py --run runs/mnist_cnn # a run folder of edge-train

All in one process, called from Python, one after another in each of 15 rounds. Prints a table for each of load, first
run and warm run (medians) and of the best warm run, which other work on a shared machine disturbs least, in
microseconds; then the largest difference of the outputs, of the largest output. Rivals that are not installed or cannot
take a net are left out, and why is said. --cpu: processor time of the thread instead of time on the wall, for a machine
with other work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import rivals
import zoo_bins
from to_onnx import to_onnx

from litenet.exporter import device, format
from litenet.exporter.source import Source, load_source
from litenet.pyruntime import InferenceEngine

NETS = ["mnist_mlp", "mnist_cnn", "litenet_cifar", "cifar_cnn", "tomato_cnn", "resnet8", "resnet18_cifar",
        "resnet18_224", "mbv1_025_96", "dscnn_kws", "mbv2_224", zoo_bins.FACENET]  # fmt: skip
ROUNDS, SECONDS = 15, 0.05  # of warm runs in a round
NEAR = 1e-4  # share of the largest output that rounding may make
WHAT = ("load", "first", "warm", "best")
clock = time.perf_counter  # --cpu: time.thread_time


class LiteNet(rivals.Rival):
    """Ours, by the same face."""

    name, package = "LiteNet", "litenet"

    def __init__(self, net: Path, source: Source):
        self.net = net.with_suffix(".bin")
        model = device.model(device.prepare(source), format.Preprocessing(), False, {"name": net.stem}, None)
        self.net.write_bytes(format.write(model))

    def load(self) -> Any:
        return InferenceEngine(self.net, threads=1)

    def feed(self, x: np.ndarray) -> Any:
        return x

    def run(self, model: Any, fed: Any) -> np.ndarray:
        return model.predict(fed)


def timed(call) -> float:
    start = clock()
    call()
    return (clock() - start) * 1e6


def warm(call) -> list[float]:
    times, until = [timed(call)], clock() + SECONDS
    while clock() < until or len(times) < 5:
        times.append(timed(call))
    return times


def compare(name: str, source: Source, folder: Path, kinds: list[type[rivals.Rival]]) -> dict[str, dict[str, float]]:
    """{what: {name: microseconds}}, and under "differs" the largest difference from ours."""
    net = folder / f"{name}.onnx"
    runners: list[tuple[rivals.Rival, Any]] = []
    x = np.random.default_rng(0).standard_normal(source.graph.input_shape).astype(np.float32)
    net.write_bytes(to_onnx(source))
    for kind in kinds:
        try:
            runner = kind(net, source)
            runners.append((runner, runner.feed(x)))
        except rivals.NotHereError as e:
            print(f"{name}: no {kind.name}: {e}", file=sys.stderr)
    answers = []
    for runner, fed in runners:
        model = runner.load()  # may own the answer
        answers.append(np.ravel(runner.run(model, fed)).copy())
    rows: dict[str, dict[str, list[float]]] = {k: {r.name: [] for r, _ in runners} for k in WHAT}
    for _ in range(ROUNDS):
        for runner, fed in runners:
            start = clock()
            model = runner.load()
            rows["load"][runner.name].append((clock() - start) * 1e6)
            rows["first"][runner.name].append(timed(lambda r=runner, m=model, f=fed: r.run(m, f)))
            times = warm(lambda r=runner, m=model, f=fed: r.run(m, f))
            rows["warm"][runner.name].append(statistics.median(times))
            rows["best"][runner.name].append(min(times))
    made = {w: {k: min(v) if w == "best" else statistics.median(v) for k, v in rows[w].items()} for w in WHAT}
    scale = np.abs(answers[0]).max()
    made["differs"] = {
        r.name: float(np.abs(a - answers[0]).max() / scale) for (r, _), a in zip(runners, answers, strict=True)
    }
    return made


def table(what: str, figures: dict[str, dict[str, dict[str, float]]], names: list[str]) -> str:
    """Markdown; the last column is the best rival's time over ours."""
    lines = [f"| {what} | {' | '.join(names)} | ahead of the best |", "|---|" + "--:|" * (len(names) + 1)]
    for net, made in figures.items():
        row = made[what]
        others = [v for k, v in row.items() if k != names[0]]
        ahead = f"{min(others) / row[names[0]]:.2f}x" if others else ""
        lines.append(f"| {net} | {' | '.join(f'{row[k]:,.1f}' if k in row else '' for k in names)} | {ahead} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description="LiteNet beside other runtimes.")
    p.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)}")
    p.add_argument("--run", help="a run folder of edge-train instead")
    p.add_argument("--cpu", action="store_true", help="processor time instead of time on the wall")
    args = p.parse_args()
    if args.cpu:
        global clock
        clock = time.thread_time
    kinds: list[type[rivals.Rival]] = [LiteNet]
    titles = []
    for kind in rivals.ALL:
        try:
            titles.append(kind.title())
            kinds.append(kind)
        except rivals.NotHereError as e:
            print(f"no {kind.name}: {e}", file=sys.stderr)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = {Path(args.run).name: load_source(args.run)} if args.run else {}
        for name in [*sources] or args.nets or NETS:
            source = sources.get(name) or zoo_bins.source_of(name)
            figures[name] = compare(name, source, Path(folder), kinds)
            print(name, {k: round(v, 1) for k, v in figures[name]["warm"].items()}, file=sys.stderr, flush=True)
    time_of = "processor time" if args.cpu else "time on the wall"
    print(f"One thread, microseconds, {time_of}, medians of {ROUNDS} interleaved rounds; {', '.join(titles)}")
    for what in WHAT:
        print(f"\n{table(what, figures, [k.name for k in kinds])}")
    differs = [(v, k, net) for net, made in figures.items() for k, v in made["differs"].items()]
    near = [found for found in differs if found[0] <= NEAR]
    print("\nOutputs differ from ours by at most {:.1e} of the largest ({}, {}).".format(*max(near)))
    for v, k, net in differs:
        if not v <= NEAR:
            print(f"But those of {k} for {net} differ by {v:.1e}: it does not calculate the same.")


if __name__ == "__main__":
    main()
