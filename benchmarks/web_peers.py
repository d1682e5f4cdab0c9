"""LiteNet in WebAssembly beside ONNX Runtime Web, TensorFlow.js and LiteRT.js: one thread, one Node, one sitting.

    npm install --prefix PEERS onnxruntime-web @tensorflow/tfjs @tensorflow/tfjs-backend-wasm @litertjs/core
    pip install litenet onnx onnxruntime
    make wasm && python benchmarks/web_peers.py PEERS [NET ...] [--rounds N] [--wall]

Nets of benchmarks/zoo_bins.py, untrained, with equal weights for all. Every round runs each of them for a while, one
after another, so that other work on the machine meets all alike. Prints the best and the median of the rounds, in
microseconds of processor time an inference (--wall: on the clock), the load time, and the largest difference from
ours. Node is told to allow relaxed vectors where it does not by itself. Ours is there twice: with them and without.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import zoo_bins
from to_onnx import to_onnx
from to_tflite import to_tflite

from litenet.exporter import device, format
from litenet.exporter.source import Source

HERE = Path(__file__).resolve().parent
NETS = ["mnist_mlp", "mnist_cnn", "cifar_cnn", "tomato_cnn", "resnet18_cifar", "mbv1_025_96", "resnet8", "mbv2_224"]
RELAXED = "--experimental-wasm-relaxed-simd"


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
    compile_it = f"WebAssembly.compile(require('fs').readFileSync('{HERE.parent}/wasm/litenet-relaxed.wasm'))"
    plain = subprocess.run(["node", "-e", f"(async () => {{ await {compile_it} }})()"], capture_output=True)
    return [] if plain.returncode == 0 else [RELAXED]


def main() -> None:
    p = argparse.ArgumentParser(description="WebAssembly runtimes beside each other.")
    p.add_argument("peers", type=Path, help="folder with node_modules")
    p.add_argument("nets", nargs="*", metavar="NET")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--wall", action="store_true")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.nets or NETS:
            write(name, Path(folder))
            command = ["node", *node_options(), str(HERE / "web_peers.mjs"), str(args.peers.resolve()), folder, name,
                       str(args.rounds), "wall" if args.wall else "processor"]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            print(done.stdout, end="", flush=True)
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr.strip()[-2000:]}")


if __name__ == "__main__":
    main()
