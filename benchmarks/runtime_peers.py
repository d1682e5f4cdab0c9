"""Our runtime beside ONNX Runtime, and LiteRT where it takes the net, with the same weights, one thread, batch 1.

    pip install litenet onnx onnxruntime ai-edge-litert
    python benchmarks/runtime_peers.py [NET ...]            # of benchmarks/zoo_bins.py, untrained
    python benchmarks/runtime_peers.py --run runs/mnist_cnn # a run folder of edge-train

Nets are made of linear, conv2d, depthwise_conv2d, maxpool2d, global_avg_pool, flatten, add, prelu, with relu, relu6 or
nothing after them; LiteRT is shown those without flatten. Prints for each microseconds of load, first run, and warm
run: medians of interleaved rounds, and of the warm run also the best, which other work on a shared machine disturbs
least; then the largest difference of the outputs, of the largest output. --cpu: processor time of the thread instead of
time on the wall, for a machine with other work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
import zoo_bins
from to_tflite import to_tflite

from litenet.exporter import device, format
from litenet.exporter.source import Source, load_source
from litenet.pyruntime import InferenceEngine

NETS = ["mnist_mlp", "mnist_cnn", "cifar_cnn", "tomato_cnn", "resnet8", "resnet18_cifar", "resnet18_224",
        "mbv1_025_96", "dscnn_kws", "mbv2_224", zoo_bins.FACENET]  # fmt: skip
ROUNDS, SECONDS = 15, 0.05  # of warm runs in a round
clock = time.perf_counter  # --cpu: time.thread_time


def to_onnx(source: Source) -> bytes:
    """The net as ONNX, channels first."""
    graph, weights = device.prepare(source).graph, device.prepare(source).weights
    nodes, constants = [], []
    shape = graph.input_shape
    fed = [1, shape[2], *shape[:2]] if len(shape) == 3 else [1, *shape]
    image = None  # (H, W, C) of what was flattened

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    for n in graph.nodes:
        x, y = [graph.tensors[t].name for t in n.inputs], graph.tensors[n.output].name
        a, act = n.attrs, getattr(n.attrs, "activation", "none")
        raw = f"{y}.raw" if act in ("relu", "relu6") else y
        bias = [constant(f"{n.name}.b", weights[n.params["bias"]])] if "bias" in n.params else []
        if n.op == "conv2d":
            w = constant(f"{n.name}.w", weights[n.params["weight"]].transpose(0, 3, 1, 2))
            nodes.append(helper.make_node("Conv", [*x, w, *bias], [raw], pads=list(a.padding), strides=list(a.stride)))
        elif n.op == "depthwise_conv2d":
            w = constant(f"{n.name}.w", weights[n.params["weight"]].transpose(2, 0, 1)[:, None])
            more = {"pads": list(a.padding), "strides": list(a.stride), "group": graph.tensors[n.output].shape[-1]}
            nodes.append(helper.make_node("Conv", [*x, w, *bias], [raw], **more))
        elif n.op == "maxpool2d":
            pads = list(a.padding)
            size = {"kernel_shape": list(a.kernel_size), "strides": list(a.stride)}
            nodes.append(helper.make_node("MaxPool", x, [y], pads=pads, **size))
        elif n.op == "global_avg_pool":
            nodes.append(helper.make_node("GlobalAveragePool", x, [f"{y}.map"]))
            nodes.append(helper.make_node("Flatten", [f"{y}.map"], [y]))
        elif n.op == "flatten":
            image = graph.shapes(n)[0]
            nodes.append(helper.make_node("Flatten", x, [y]))
        elif n.op == "prelu":
            slopes = constant(f"{n.name}.s", weights[n.params["slope"]].reshape(-1, 1, 1))
            nodes.append(helper.make_node("PRelu", [*x, slopes], [y]))
        elif n.op == "add":
            nodes.append(helper.make_node("Add", x, [raw]))
        elif n.op == "linear":
            w = weights[n.params["weight"]]
            if len(graph.shapes(n)[0]) == 3:
                image = graph.shapes(n)[0]
                nodes.append(helper.make_node("Flatten", x, [f"{y}.row"]))
                x = [f"{y}.row"]
            if image is not None:  # rows of (H, W, C) become rows of (C, H, W)
                w, image = w.reshape(-1, *image).transpose(0, 3, 1, 2).reshape(len(w), -1), None
            nodes.append(helper.make_node("Gemm", [*x, constant(f"{n.name}.w", w), *bias], [raw], transB=1))
        if act == "relu":
            nodes.append(helper.make_node("Relu", [raw], [y]))
        if act == "relu6":
            ends = [constant(f"{n.name}.{k}", np.array(v, np.float32)) for k, v in (("lo", 0), ("hi", 6))]
            nodes.append(helper.make_node("Clip", [raw, *ends], [y]))
        if act not in ("none", "relu", "relu6") or not nodes or nodes[-1].output[0] != y:
            raise SystemExit(f"{n.name}: {n.op} with {act} is not written here")
    ends = [graph.tensors[graph.input].name, graph.tensors[graph.outputs[0]].name]
    made = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info(ends[0], TensorProto.FLOAT, fed)],
        [helper.make_tensor_value_info(ends[1], TensorProto.FLOAT, [1, *graph.output_shape])], constants,
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model.SerializeToString()


def timed(call) -> float:
    start = clock()
    call()
    return (clock() - start) * 1e6


def warm(call) -> list[float]:
    times, until = [timed(call)], clock() + SECONDS
    while clock() < until or len(times) < 5:
        times.append(timed(call))
    return times


def compare(name: str, source: Source, folder: Path) -> None:
    binary, other = folder / "net.bin", folder / "net.onnx"
    model = device.model(device.prepare(source), format.Preprocessing(), False, {"name": name}, None)
    binary.write_bytes(format.write(model))
    other.write_bytes(to_onnx(source))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def peer() -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(str(other), options, providers=["CPUExecutionProvider"])

    def own() -> InferenceEngine:
        return InferenceEngine(binary, threads=1)

    ours, theirs = own(), peer()
    x = np.random.default_rng(0).standard_normal(ours.input_shape).astype(np.float32)
    given = theirs.get_inputs()[0].name
    fed = x.transpose(2, 0, 1)[None].copy() if x.ndim == 3 else x.reshape(1, -1)
    runners = [(own, lambda m: m.predict(x)), (peer, lambda m: m.run(None, {given: fed})[0][0])]
    try:
        (folder / "net.tflite").write_bytes(to_tflite(source))
        runners.append((lambda: LiteRT(folder / "net.tflite"), lambda m: m.run(x[None])))
    except (SystemExit, ImportError):
        pass
    answers = [run_one(load()) for load, run_one in runners]
    worst = max(np.abs(answers[0] - y).max() for y in answers[1:]) / np.abs(answers[1]).max()
    rows: dict[str, list[list[float]]] = {k: [[] for _ in runners] for k in ("load", "first", "warm", "best")}
    for _ in range(ROUNDS):
        for k, (load, run_one) in enumerate(runners):
            start = clock()
            model = load()
            rows["load"][k].append((clock() - start) * 1e6)
            rows["first"][k].append(timed(lambda m=model, f=run_one: f(m)))
            times = warm(lambda m=model, f=run_one: f(m))
            rows["warm"][k].append(statistics.median(times))
            rows["best"][k].append(min(times))
    cells = []
    for what, each in rows.items():
        figures = [min(v) if what == "best" else statistics.median(v) for v in each]
        ratios = ", ".join(f"{v / figures[0]:.2f}x" for v in figures[1:])
        cells.append(f"{what} {' / '.join(f'{v:,.1f}' for v in figures)} ({ratios})")
    print(f"{name:<16}{ours.kernels}  " + "   ".join(cells) + f"   differs by {worst:.1e}", flush=True)


class LiteRT:
    """A net in LiteRT with its XNNPACK kernels, one thread."""

    def __init__(self, path: Path):
        from ai_edge_litert.interpreter import Interpreter

        self.net = Interpreter(str(path), num_threads=1)
        self.net.allocate_tensors()
        self.x, self.y = self.net.get_input_details()[0]["index"], self.net.get_output_details()[0]["index"]

    def run(self, x: np.ndarray) -> np.ndarray:
        self.net.set_tensor(self.x, x)
        self.net.invoke()
        return self.net.get_tensor(self.y)[0]


def main() -> None:
    p = argparse.ArgumentParser(description="LiteNet beside ONNX Runtime.")
    p.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)}")
    p.add_argument("--run", help="a run folder of edge-train instead")
    p.add_argument("--cpu", action="store_true", help="processor time instead of time on the wall")
    args = p.parse_args()
    if args.cpu:
        global clock
        clock = time.thread_time
    print(f"LiteNet / ONNX Runtime {onnxruntime.__version__} / LiteRT in microseconds, one thread (times ours)")
    with tempfile.TemporaryDirectory() as folder:
        if args.run:
            compare(Path(args.run).name, load_source(args.run), Path(folder))
        else:
            for name in args.nets or NETS:
                compare(name, zoo_bins.source_of(name), Path(folder))


if __name__ == "__main__":
    main()
