"""Our int8 files beside our float32 ones and the int8 of others, with the same weights, one thread, batch 1.

    pip install litenet onnx onnxruntime ai-edge-litert openvino
    python benchmarks/int8_peers.py FOLDER --prepare        # once: the files of every runtime, some minutes
    python benchmarks/int8_peers.py FOLDER [NET ...]        # prints a table; nets of benchmarks/zoo_bins.py, untrained

LiteRT gets the integers of our own file (to_tflite.py), so that its answer must be ours but for its roundings. ONNX
Runtime and OpenVINO get the float net through ONNX Runtime's quantiser: QDQ, per channel, uint8 activations, ranges
from 16 inputs of noise, the same as ours are from 2. All four of ours and theirs are in one process and take turns;
figures are microseconds on the wall, medians of the rounds' medians, and in brackets the least of all. Floats go in and
come out, but for the column of raw int8 and LiteRT, whose file has int8 at its ends. --cpu: processor time instead,
for a machine with other work. `off`: the largest difference from the float32 answer, of the largest output.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import zoo_bins

from litenet.pyruntime import InferenceEngine

NETS = ["mnist_mlp", "mnist_cnn", "cifar_cnn", "tomato_cnn", "resnet18_cifar", "mbv1_025_96", "resnet8", "dscnn_kws",
        "mbv2_224"]  # fmt: skip
ROUNDS, SECONDS, SAMPLES = 15, 0.05, 16
OURS, RAW, FLOAT, LITERT, ORT, OPENVINO = "int8", "int8 raw", "float32", "LiteRT", "ONNX Runtime", "OpenVINO"

Run = Callable[[], np.ndarray]


# ---- the files


def prepare(name: str, folder: Path) -> None:
    """NAME.bin, NAME.int8.bin, NAME.tflite, NAME.qdq.onnx; those that are there are kept."""
    wanted = [folder / f"{name}{end}" for end in (".bin", ".int8.bin", ".tflite", ".qdq.onnx")]
    if all(path.exists() for path in wanted):
        return
    from runtime_peers import to_onnx
    from to_tflite import to_tflite

    whole, source = zoo_bins.whole(name), zoo_bins.source_of(name)
    makers = (lambda: zoo_bins.binary(name), lambda: zoo_bins.quantised(name), lambda: to_tflite(whole),
              lambda: qdq(to_onnx(source), folder))  # fmt: skip
    for path, make in zip(wanted, makers, strict=True):
        if not path.exists():
            path.write_bytes(make())
            print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


def qdq(model: bytes, folder: Path) -> bytes:
    """The float net of ONNX in int8, by ONNX Runtime's own quantiser."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    given = onnx.load_from_string(model).graph.input[0]
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    rng = np.random.default_rng(1)
    samples = iter([{given.name: rng.uniform(-1, 1, shape).astype(np.float32)} for _ in range(SAMPLES)])

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(samples, None)

    source, made = folder / "float.onnx", folder / "qdq.onnx"
    source.write_bytes(model)
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(source, made, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **kinds)
    result = made.read_bytes()
    source.unlink()
    made.unlink()
    return result


# ---- the runtimes


def runners(name: str, folder: Path, kernels: str | None) -> dict[str, Run]:
    """What is timed, and gives the answer."""
    import onnxruntime
    import openvino
    from runtime_peers import LiteRT

    ours = InferenceEngine(folder / f"{name}.int8.bin", threads=1, kernels=kernels, tuned=False)
    floats = InferenceEngine(folder / f"{name}.bin", threads=1, kernels=kernels, tuned=False)
    x = np.random.default_rng(0).uniform(-1, 1, ours.input_shape).astype(np.float32)
    fed = x.transpose(2, 0, 1)[None].copy() if x.ndim == 3 else x.reshape(1, -1)

    litert = LiteRT(folder / f"{name}.tflite")
    ends = litert.net.get_input_details()[0], litert.net.get_output_details()[0]
    (sx, zx), (sy, zy) = (end["quantization"] for end in ends)
    steps = np.clip(np.round(x / sx) + zx, -128, 127).astype(np.int8)
    batch = steps[None]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    ort = onnxruntime.InferenceSession(folder / f"{name}.qdq.onnx", options, providers=["CPUExecutionProvider"])
    given = ort.get_inputs()[0].name

    config = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY",
              "INFERENCE_PRECISION_HINT": "f32"}  # fmt: skip
    request = openvino.Core().compile_model(folder / f"{name}.qdq.onnx", "CPU", config).create_infer_request()
    return {
        OURS: lambda: ours.predict(x),
        RAW: lambda: ours.predict(steps, raw=True),
        FLOAT: lambda: floats.predict(x),
        LITERT: lambda: (litert.run(batch).astype(np.float32) - zy) * sy,
        ORT: lambda: ort.run(None, {given: fed})[0][0],
        OPENVINO: lambda: request.infer([fed], share_inputs=True, share_outputs=True)[0][0],
    }


def measure(runs: dict[str, Run], clock: Callable[[], int], rounds: int) -> dict[str, tuple[float, float]]:
    """(median, least) microseconds of each, which take turns."""
    medians: dict[str, list[float]] = {k: [] for k in runs}
    least = dict.fromkeys(runs, float("inf"))
    for r in range(rounds + 1):  # the first one warms up
        for k, run in runs.items():
            times, until = [], time.perf_counter() + SECONDS
            while len(times) < 5 or time.perf_counter() < until:
                start = clock()
                run()
                times.append((clock() - start) / 1e3)
            if r:
                medians[k].append(statistics.median(times))
                least[k] = min(least[k], *times)
    return {k: (statistics.median(v), least[k]) for k, v in medians.items()}


def main() -> None:
    p = argparse.ArgumentParser(description="LiteNet's int8 beside that of other runtimes.")
    p.add_argument("folder", type=Path, help="where the files are, or will be")
    p.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)}")
    p.add_argument("--prepare", action="store_true", help="make the files, measure nothing")
    p.add_argument("--cpu", action="store_true", help="processor time instead of time on the wall")
    p.add_argument("--kernels", help="ours: avx512, avx2, sse2, ... instead of the best")
    p.add_argument("--rounds", type=int, default=ROUNDS)
    args = p.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.nets or NETS:
        prepare(name, args.folder)
    if args.prepare:
        return
    clock = time.process_time_ns if args.cpu else time.perf_counter_ns
    import onnxruntime
    import openvino

    versions = f"ONNX Runtime {onnxruntime.__version__}, OpenVINO {openvino.__version__.split('-')[0]}"
    print(f"{versions}; load average {os.getloadavg()[0]:.1f}; us {'of the processor' if args.cpu else 'on the wall'}")
    print("| net | LiteNet int8 | int8 in and out | LiteNet float32 | gain | LiteRT int8 | ONNX Runtime QDQ "
          "| OpenVINO int8 | ahead of the best | off: ours, LiteRT, ONNX Runtime, OpenVINO |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    for name in args.nets or NETS:
        runs = runners(name, args.folder, args.kernels)
        answers = {k: np.ravel(run()).copy() for k, run in runs.items() if k != RAW}
        scale = np.abs(answers[FLOAT]).max()
        off = [float(np.abs(answers[k] - answers[FLOAT]).max() / scale) for k in (OURS, LITERT, ORT, OPENVINO)]
        found = measure(runs, clock, args.rounds)
        best = min(found[k][0] for k in (LITERT, ORT, OPENVINO))
        cells = [f"{found[k][0]:,.1f} ({found[k][1]:,.1f})" for k in runs]
        cells.insert(3, f"{found[FLOAT][0] / found[OURS][0]:.2f}x")
        cells.append(f"{best / found[OURS][0]:.2f}x")
        print("|", " | ".join([name, *cells, ", ".join(f"{100 * v:.1f} %" for v in off)]), "|", flush=True)


if __name__ == "__main__":
    main()
