"""Our runtime beside ONNX Runtime on the same net with the same weights, one thread, batch 1, in one run.

    pip install litenet onnx onnxruntime
    python benchmarks/runtime_peers.py runs/mnist_cnn mnist_cnn.bin

RUN is a run folder of edge-train (a chain of linear, conv2d, maxpool2d, flatten with relu), BIN its export. Prints the
largest difference of the outputs, and medians of interleaved rounds: load, first run, warm run.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from litenet.exporter.source import load_source
from litenet.pyruntime import InferenceEngine


def to_onnx(run: str) -> bytes:
    """The net as ONNX, channels first."""
    source = load_source(run)
    graph, nodes, weights = source.graph, [], []
    H, W, C = (*graph.input_shape, 1, 1)[:3] if len(graph.input_shape) == 3 else (graph.input_shape[0], 1, 1)
    shape = [1, C, H, W] if len(graph.input_shape) == 3 else [1, H]
    image = None

    def constant(name: str, array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    for n in graph.nodes:
        x, y = graph.tensors[n.inputs[0]].name, graph.tensors[n.output].name
        raw = f"{y}.raw" if n.attrs.activation == "relu" else y
        if n.op == "conv2d":
            w = source.weights[n.params["weight"]].transpose(0, 3, 1, 2)
            t, left, b, r = n.attrs.padding
            names = [constant(f"{n.name}.w", w), constant(f"{n.name}.b", source.weights[n.params["bias"]])]
            nodes.append(helper.make_node("Conv", [x, *names], [raw], pads=[t, left, b, r], strides=n.attrs.stride))
        elif n.op == "maxpool2d":
            nodes.append(
                helper.make_node("MaxPool", [x], [y], kernel_shape=n.attrs.kernel_size, strides=n.attrs.stride)
            )
        elif n.op == "flatten":
            image = graph.shapes(n)[0]
            nodes.append(helper.make_node("Flatten", [x], [y]))
        elif n.op == "linear":
            w = source.weights[n.params["weight"]]
            if image is not None:  # rows of (H, W, C) become rows of (C, H, W)
                w, image = w.reshape(-1, *image).transpose(0, 3, 1, 2).reshape(len(w), -1), None
            names = [constant(f"{n.name}.w", w), constant(f"{n.name}.b", source.weights[n.params["bias"]])]
            nodes.append(helper.make_node("Gemm", [x, *names], [raw], transB=1))
        else:
            raise SystemExit(f"{n.name}: {n.op} is not written here")
        if raw != y:
            nodes.append(helper.make_node("Relu", [raw], [y]))
    ends = [graph.tensors[graph.input].name, graph.tensors[graph.outputs[0]].name]
    made = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info(ends[0], TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(ends[1], TensorProto.FLOAT, [1, *graph.output_shape])], weights,
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model.SerializeToString()


def main(run: str, binary: str) -> None:
    path = Path(binary).with_suffix(".onnx")
    path.write_bytes(to_onnx(run))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def peer() -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    ours, theirs = InferenceEngine(binary), peer()
    x = np.random.default_rng(0).standard_normal(ours.input_shape).astype(np.float32)
    given = theirs.get_inputs()[0]
    fed = x.transpose(2, 0, 1)[None].copy() if len(given.shape) == 4 else x.reshape(1, -1)
    want = theirs.run(None, {given.name: fed})[0][0]
    print(f"largest difference {np.abs(ours.predict(x) - want).max():.2e} of outputs up to {np.abs(want).max():.3g}")
    print(f"file: ours {Path(binary).stat().st_size:,} bytes, ONNX {path.stat().st_size:,} bytes")

    def timed(call) -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    rows: dict[str, list[list[float]]] = {"load": [[], []], "first run": [[], []], "warm run": [[], []]}
    pair = (
        (lambda: InferenceEngine(binary), lambda m: m.predict(x)),
        (peer, lambda m: m.run(None, {given.name: fed})),
    )
    for _ in range(15):
        for k, (load, run_one) in enumerate(pair):
            start = time.perf_counter()
            model = load()
            rows["load"][k].append((time.perf_counter() - start) * 1e6)
            rows["first run"][k].append(timed(lambda m=model, f=run_one: f(m)))
            rows["warm run"][k].append(statistics.median(timed(lambda m=model, f=run_one: f(m)) for _ in range(200)))
    print(f"{'':<12}{'LiteNet':>12}{'ONNX Runtime ' + onnxruntime.__version__:>24}   microseconds, median of 15 rounds")
    for what, (a, b) in rows.items():
        print(f"{what:<12}{statistics.median(a):>12.1f}{statistics.median(b):>24.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
