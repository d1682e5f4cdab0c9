"""LiteNet in WebAssembly beside ONNX Runtime Web, TensorFlow.js and LiteRT.js: one thread, one sitting.

    npm install --prefix PEERS onnxruntime-web @tensorflow/tfjs @tensorflow/tfjs-backend-wasm @litertjs/core
    pip install litenet onnx onnxruntime
    make wasm && python benchmarks/web_peers.py PEERS [NET ...] [--chromium] [--rounds N] [--wall] [--files FOLDER]

Nets of benchmarks/zoo_bins.py, untrained, with equal weights for all. Every round runs each of them for a while, one
after another, so that other work on the machine meets all alike, and our native kernels, on one thread, among them.
Prints the best and the median of the rounds, in microseconds of processor time an inference (--wall: on the clock), the
load time, and the largest difference from ours; then how many times our native time ours takes, and how many times
ours the best of the others, both of medians. Node is told to allow relaxed vectors where it does not by itself. Ours is
there with them and without, and in whole numbers, which the others are not. --files keeps what the runtimes read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zoo_bins
from chromium import Chromium, served
from to_onnx import to_onnx
from to_tflite import to_tflite

from litenet.exporter import device, format
from litenet.exporter.source import Source
from litenet.pyruntime import InferenceEngine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NETS = ["mnist_mlp", "mnist_cnn", "cifar_cnn", "tomato_cnn", "resnet18_cifar", "mbv1_025_96", "resnet8", "mbv2_224"]
RELAXED = "--experimental-wasm-relaxed-simd"
OURS, NATIVE = ("LiteNet, relaxed", "LiteNet"), "LiteNet, native"
SECONDS = 0.08  # of the native kernels in a round, as web_peers.mjs gives the others


def to_tfjs(source: Source) -> tuple[dict[str, object], bytes]:
    """The net as calls of TensorFlow.js, fused as its converter fuses them, and the weights they point into."""
    prepared = device.prepare(source)
    graph, weights = prepared.graph, prepared.weights
    calls, blob = [], b""

    def put(array: np.ndarray) -> dict[str, object]:
        nonlocal blob
        at = len(blob)
        blob += np.ascontiguousarray(array, np.float32).tobytes()
        return {"at": at, "shape": list(array.shape)}

    for n in graph.nodes:
        a = n.attrs
        call: dict[str, object] = {"op": n.op, "x": [graph.tensors[t].name for t in n.inputs],
                                   "y": graph.tensors[n.output].name}  # fmt: skip
        act = getattr(a, "activation", "none")
        if act != "none":
            call["activation"] = act
        if "weight" in n.params:
            w = weights[n.params["weight"]]
            order = {"conv2d": (1, 2, 3, 0), "depthwise_conv2d": (0, 1, 2), "linear": (1, 0)}[n.op]
            w = w.transpose(order)
            call["w"] = put(w[..., None] if n.op == "depthwise_conv2d" else w)
            call["b"] = put(weights[n.params["bias"]])
        if n.op in ("conv2d", "depthwise_conv2d", "maxpool2d"):
            top, left, bottom, right = a.padding
            call["strides"] = list(a.stride)
            call["pad"] = [[0, 0], [top, bottom], [left, right], [0, 0]] if any(a.padding) else "valid"
            call["kernel"] = list(a.kernel_size)
        calls.append(call)
    shape = list(graph.input_shape)
    return {"calls": calls, "x": graph.tensors[graph.input].name, "y": calls[-1]["y"], "shape": [1, *shape]}, blob


def write(name: str, folder: Path) -> None:
    source = zoo_bins.source_of(name)
    prepared = device.prepare(source)
    (folder / f"{name}.bin").write_bytes(format.write(device.model(prepared, format.Preprocessing(), False, {}, None)))
    (folder / f"{name}.int8.bin").write_bytes(zoo_bins.quantised(name))
    (folder / f"{name}.onnx").write_bytes(to_onnx(source))
    calls, weights = to_tfjs(source)
    (folder / f"{name}.json").write_text(json.dumps(calls))
    (folder / f"{name}.weights").write_bytes(weights)
    with contextlib.suppress(SystemExit):  # LiteRT is not shown what to_tflite does not write
        (folder / f"{name}.tflite").write_bytes(to_tflite(source))
    x = np.random.default_rng(0).standard_normal(prepared.graph.input_shape).astype(np.float32)
    x.tofile(folder / f"{name}.x")
    (x.transpose(2, 0, 1) if x.ndim == 3 else x).astype(np.float32).tofile(folder / f"{name}.chw")


def node_options() -> list[str]:
    compile_it = f"WebAssembly.compile(require('fs').readFileSync('{ROOT}/wasm/litenet-relaxed.wasm'))"
    plain = subprocess.run(["node", "-e", f"(async () => {{ await {compile_it} }})()"], capture_output=True)
    return [] if plain.returncode == 0 else [RELAXED]


@contextlib.contextmanager
def in_node(peers: Path, files: Path) -> Any:
    """A Node that answers what web_peers.mjs can be asked."""
    command = ["node", *node_options(), str(HERE / "web_peers.mjs")]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True) as node,
    ):

        def ask(name: str, *given: Any) -> Any:
            assert node.stdin and node.stdout
            print(json.dumps([name, *given]), file=node.stdin, flush=True)
            line = node.stdout.readline()
            if not line:
                said.seek(0)
                raise SystemExit(f"node: {said.read().strip()[-2000:]}")
            return json.loads(line)

        where = {"peers": peers / "node_modules", "files": files, "wasm": ROOT / "wasm"}
        try:
            yield ask, {name: f"{path.as_uri()}/" for name, path in where.items()}
        finally:
            node.kill()


def processor_time(processes: list[Path]) -> float:
    """Microseconds that all threads of these have had."""
    return sum(int(task.read_text().split()[0]) for p in processes for task in p.glob("task/*/schedstat")) / 1e3


@contextlib.contextmanager
def in_chromium(peers: Path, files: Path) -> Any:
    """A page that answers the same."""
    imports = {"imports": {"@litertjs/wasm-utils": "/peers/@litertjs/wasm-utils/dist/index.js"}}
    page = f"""<!doctype html><title>peers</title><script type="importmap">{json.dumps(imports)}</script>
      <script type="module">import * as it from "/page/web_peers.mjs"; globalThis.it = it;</script>""".encode()
    texts = {"/": lambda: page, "/clock": lambda: f"{processor_time(browser.renderers()):.0f}".encode()}
    folders = {"/peers/": peers / "node_modules", "/files/": files, "/wasm/": ROOT / "wasm", "/page/": HERE}
    with served(texts, folders) as home, Chromium() as browser:
        _, _, session = browser.open(f"{home}/")
        while not browser.evaluate("Boolean(globalThis.it)", session):
            time.sleep(0.05)

        def ask(name: str, *given: Any) -> Any:
            return browser.evaluate(f"it.{name}(...{json.dumps(given)})", session)

        yield ask, {name: f"{home}/{name}/" for name in ("peers", "files", "wasm")}


class Native:
    """Our native kernels on one thread, from Python."""

    def __init__(self, file: Path, clock: str):
        self.now = time.perf_counter if clock == "wall" else time.process_time
        engine = InferenceEngine(file, threads=1)
        self.run = partial(engine.predict, np.fromfile(file.with_suffix(".x"), np.float32).reshape(engine.input_shape))
        self.count = 2
        self.count = max(2, int(SECONDS * 1e6 / self.round()))

    def round(self) -> float:
        self.run()
        start = self.now()
        for _ in range(self.count):
            self.run()
        return (self.now() - start) * 1e6 / self.count


def measure(net: str, files: Path, place: Any, rounds: int, clock: str) -> None:
    """All runtimes on one net, and a line of each."""
    native = Native(files / f"{net}.bin", clock)
    with place as (ask, where):
        found = ask("begin", where, net)
        there = [one for one in found if "trouble" not in one]
        times: dict[str, list[float]] = {one["name"]: [] for one in there} | {NATIVE: []}
        for _ in range(rounds):
            for one, us in zip(there, ask("round", clock), strict=True):
                times[one["name"]].append(us)
            times[NATIVE].append(native.round())
    for one in found:
        if "trouble" in one:
            print(f"{net:16} {one['name']:18} not measured: {one['trouble']}")
            continue
        us = times[one["name"]]
        print(f"{net:16} {one['name']:18} {min(us):9.1f} {np.median(us):9.1f} us  load {one['load']:6.1f} ms  "
              f"off {float(one['off']):.0e}")  # fmt: skip
    middle = {name: float(np.median(us)) for name, us in times.items()}
    print(f"{net:16} {NATIVE:18} {min(times[NATIVE]):9.1f} {middle[NATIVE]:9.1f} us")
    ours = min(middle[name] for name in OURS if name in middle)
    others = [us for name, us in middle.items() if not name.startswith("LiteNet")]
    beside = f"; the best of the others {min(others) / ours:.2f} times ours" if others else ""
    print(f"{net:16} ours {ours / middle[NATIVE]:.2f} times our native{beside}", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description="WebAssembly runtimes beside each other.")
    p.add_argument("peers", type=Path, help="folder with node_modules")
    p.add_argument("nets", nargs="*", metavar="NET")
    p.add_argument("--chromium", action="store_true", help="in a page instead of Node")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--wall", action="store_true")
    p.add_argument("--files", type=Path, metavar="FOLDER")
    p.add_argument("--write-only", action="store_true", help="write the files, measure nothing")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = (args.files or Path(folder)).resolve()
        files.mkdir(parents=True, exist_ok=True)
        for name in args.nets or NETS:
            if not (files / f"{name}.chw").exists():
                write(name, files)
            if not args.write_only:
                place = (in_chromium if args.chromium else in_node)(args.peers.resolve(), files)
                measure(name, files, place, args.rounds, "wall" if args.wall else "processor")


if __name__ == "__main__":
    main()
