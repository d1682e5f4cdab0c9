"""From a cold process to the label of a picture: edge-infer beside ten lines of LiteRT and of ONNX Runtime.

    pip install 'litenet[import]' onnxruntime ai-edge-litert
    python benchmarks/cold_process.py [--rounds 25]

The same untrained mnist_cnn (zoo_bins.py) and the same PNG of 28 x 28 for all; the scripts decode with OpenCV, as
edge-infer does. Processes are started in turn, round after round, files are in the cache, and byte code is compiled.
Prints wall time and processor time, the median and the least, and the peak of resident memory; below them what Python
alone takes, and importing NumPy and OpenCV. OPENBLAS_NUM_THREADS is 1 for all, which spares the scripts some time.
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

LITERT = """\
import sys, cv2, numpy as np
from ai_edge_litert.interpreter import Interpreter
model = Interpreter(sys.argv[1], num_threads=1)
model.allocate_tensors()
x = (cv2.imread(sys.argv[2], cv2.IMREAD_GRAYSCALE).astype(np.float32) - 33) / 78
model.set_tensor(model.get_input_details()[0]["index"], x[None, :, :, None])
model.invoke()
y = model.get_tensor(model.get_output_details()[0]["index"])[0]
p = np.exp(y - y.max())
print(f"{sys.argv[2]}  {y.argmax()}  {100 * p.max() / p.sum():.1f} %")
"""
ONNX = """\
import sys, cv2, numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
model = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x = (cv2.imread(sys.argv[2], cv2.IMREAD_GRAYSCALE).astype(np.float32) - 33) / 78
y = model.run(None, {model.get_inputs()[0].name: x[None, None]})[0][0]
p = np.exp(y - y.max())
print(f"{sys.argv[2]}  {y.argmax()}  {100 * p.max() / p.sum():.1f} %")
"""
EDGE_INFER = "import sys; from litenet.pyruntime.cli import entry; sys.exit(entry())"  # as the installed command


def prepare(folder: Path) -> None:
    """The models, scripts and picture. What this imports would count as memory of the processes started after it."""
    import cv2
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parent))
    import zoo_bins
    from to_onnx import to_onnx
    from to_tflite import to_tflite

    from litenet.exporter import device, format

    source = zoo_bins.source_of("mnist_cnn")
    picture = format.Preprocessing("area", "stretch", "gray", "never", mean=(33.0,), std=(78.0,))
    made = device.model(device.prepare(source), picture, False, {"name": "mnist_cnn", "loss": "cross_entropy"}, None)
    (folder / "net.bin").write_bytes(format.write(made))
    (folder / "net.tflite").write_bytes(to_tflite(source))
    (folder / "net.onnx").write_bytes(to_onnx(source))
    (folder / "litert.py").write_text(LITERT)
    (folder / "onnx_runtime.py").write_text(ONNX)
    cv2.imwrite(str(folder / "seven.png"), np.random.default_rng(7).integers(0, 256, (28, 28), np.uint8))


def once(command: list[str]) -> tuple[float, float, float, str]:
    """Milliseconds on the wall and of the processor, MB at the peak, and what was printed."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             env={**env, "OPENBLAS_NUM_THREADS": "1"})  # fmt: skip
    assert child.stdout is not None
    out = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = status
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return 1e3 * wall, 1e3 * (used.ru_utime + used.ru_stime), used.ru_maxrss / 1024, out


def main() -> None:
    p = argparse.ArgumentParser(description="Cold process to label.")
    p.add_argument("--rounds", type=int, default=25)
    p.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.prepare:
        prepare(args.prepare)
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "--prepare", folder], check=True)
        os.chdir(folder)
        python = sys.executable
        commands = {
            "edge-infer": [python, "-c", EDGE_INFER, "net.bin", "seven.png"],
            "LiteRT": [python, "litert.py", "net.tflite", "seven.png"],
            "ONNX Runtime": [python, "onnx_runtime.py", "net.onnx", "seven.png"],
            "python -c pass": [python, "-c", "pass"],
            "import numpy, cv2": [python, "-c", "import numpy, cv2"],
        }
        answers = {name: once(command)[3].split() for name, command in commands.items()}
        if not answers["edge-infer"] == answers["LiteRT"] == answers["ONNX Runtime"]:
            raise SystemExit(f"the answers differ: {answers}")
        found: dict[str, list[tuple[float, float, float, str]]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                found[name].append(once(command))
    print(
        f"{'':<20}{'wall ms':>9}{'least':>7}{'CPU ms':>9}{'least':>7}{'peak MB':>9}   median and least of {args.rounds}"
    )
    for name, runs in found.items():
        wall, cpu, peak = ([run[k] for run in runs] for k in range(3))
        cells = (statistics.median(wall), min(wall), statistics.median(cpu), min(cpu), statistics.median(peak))
        print(f"{name:<20}" + "".join(f"{v:>{w}.0f}" for v, w in zip(cells, (9, 7, 9, 7, 9), strict=True)))


if __name__ == "__main__":
    main()
