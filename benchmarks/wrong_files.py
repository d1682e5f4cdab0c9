"""What runtimes do with thirty wrong files: each gets its own model of digits, spoilt in the same thirty ways.

    python benchmarks/wrong_files.py              # all runtimes that are installed
    python benchmarks/wrong_files.py --all        # also every text
    python benchmarks/wrong_files.py --tinymaix DIR   # with TinyMaix, from its sources

Each file is loaded, and run where it loads, in a process of its own, with 20 seconds. Outcomes: refused (an exception
with a text), taken (it ran: the runtime did not notice), crashed (the process died), hung. LiteRT, ONNX Runtime and
ncnn are used through their Python packages. TinyMaix is C alone: give a checkout of github.com/sipeed/TinyMaix, with
TM_MDL_TYPE TM_MDL_FP32 in include/tm_port.h.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import select
import signal
import subprocess
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 20
Run = Callable[[Path], None]


def ways(good: bytes, other: bytes) -> dict[str, bytes]:
    """The thirty wrong files; `other` is a model of another runtime."""
    rng = np.random.default_rng(1)
    bits = bytearray(good)
    for at in rng.integers(0, len(good), 100):
        bits[at] ^= 1 << rng.integers(0, 8)
    zipped, arrays = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("model", good)
    np.savez(arrays, weight=np.ones((3, 3)))
    flipped = lambda at, mask=0xFF: good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :]  # noqa: E731
    half = len(good) // 2
    return {
        "empty": b"",
        "1 byte": good[:1],
        "8 bytes": good[:8],
        "88 bytes": good[:88],
        "half of it": good[:half],
        "all but the last byte": good[:-1],
        "one byte more": good + b"\n",
        "64 KB of zeros more": good + bytes(1 << 16),
        "itself twice": good * 2,
        "halves swapped": good[half:] + good[:half],
        "4096 zeros": bytes(4096),
        "4096 bytes 255": b"\xff" * 4096,
        "4096 random bytes": rng.bytes(4096),
        "git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
        "web page": b"<!DOCTYPE html><html><title>404</title></html>\n",
        "JSON": b'{"name": "net", "layers": []}\n',
        "plain text": b"this is no model\n" * 20,
        "zip of it": zipped.getvalue(),
        "gzip of it": gzip.compress(good),
        "NumPy archive": arrays.getvalue(),
        "PNG picture": b"\x89PNG\r\n\x1a\n" + rng.bytes(200),
        "model of another runtime": other,
        "first 4 bytes zero": bytes(4) + good[4:],
        "byte 4 changed": flipped(4),
        "byte 20 changed": flipped(20),
        "one bit in the middle": flipped(half, 1),
        "one bit of the last byte": flipped(len(good) - 1, 1),
        "100 bits": bytes(bits),
        "bytes 16 to 272 all 255": good[:16] + b"\xff" * 256 + good[272:],
        "second half all 255": good[:half] + b"\xff" * (len(good) - half),
    }


def run_litenet(path: Path) -> None:
    from litenet.pyruntime import InferenceEngine

    engine = InferenceEngine(path)
    engine.predict(np.zeros(engine.input_shape, np.float32))


def run_litert(path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    net = Interpreter(model_path=str(path), num_threads=1)
    net.allocate_tensors()
    given = net.get_input_details()[0]
    net.set_tensor(given["index"], np.zeros(given["shape"], given["dtype"]))
    net.invoke()
    net.get_tensor(net.get_output_details()[0]["index"])


def run_onnxruntime(path: Path) -> None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    net = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = net.get_inputs()[0]
    net.run(None, {given.name: np.zeros([n if isinstance(n, int) else 1 for n in given.shape], np.float32)})


def run_ncnn(path: Path) -> None:
    """`path` in the place of the weights, or of the net where it is named .param; the other file is right."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = 1
    base = path.parent / "good"
    param, weights = (path, base.with_suffix(".bin")) if path.suffix == ".param" else (base.with_suffix(".param"), path)
    for call, file in ((net.load_param, param), (net.load_model, weights)):
        status = call(str(file))
        if status:
            raise RuntimeError(f"{call.__name__} returned {status}")
    with net.create_extractor() as extractor:
        status = extractor.input("in0", ncnn.Mat(np.zeros((1, 8, 8), np.float32)))
        if status:
            raise RuntimeError(f"input returned {status}")
        status, out = extractor.extract("out0")
        if status:
            raise RuntimeError(f"extract returned {status}")
        np.array(out)


def build_tinymaix(sources: Path, folder: Path, *flags: str) -> Path:
    """The program that runs its files, from a checkout."""
    program = folder / f"tinymaix{len(flags)}"
    files = [str(Path(__file__).with_name("tinymaix_driver.c")), *map(str, sorted((sources / "src").glob("tm_*.c")))]
    include = [f"-I{sources / name}" for name in ("include", "src")]
    subprocess.run(["cc", "-O2", "-w", *flags, *include, *files, "-o", str(program), "-lm"], check=True)
    return program


def run_program(program: Path) -> Run:
    """A runner whose process dies as the program did."""

    def run(path: Path) -> None:
        done = subprocess.run([program, path, str(SECONDS - 5)], capture_output=True, text=True, check=False)
        if done.returncode == -signal.SIGALRM:
            time.sleep(2 * SECONDS)
        if done.returncode < 0:
            signal.signal(-done.returncode, signal.SIG_DFL)
            os.kill(os.getpid(), -done.returncode)
        if done.returncode:
            raise RuntimeError(done.stdout.strip() or done.stderr.strip().partition("\n")[0])

    return run


NET = {
    "name": "digits",
    "input_shape": [1, 8, 8],
    "layers": [
        {"type": "conv2d", "out_channels": 16, "kernel_size": 3, "padding": 1, "activation": "relu"},
        {"type": "conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1, "stride": 2, "activation": "relu"},
        {"type": "flatten"},
        {"type": "linear", "out_features": 10},
    ],
    "preprocessing": {"invert": "auto"},
}  # what each of the runtimes can do


def models(folder: Path, tinymaix: Path | None) -> dict[str, tuple[bytes, str, Run]]:
    """Each runtime's file of one small net, trained for a second on the built-in digits: bytes, suffix, runner."""
    from to_ncnn import to_ncnn
    from to_tflite import to_tflite
    from to_tinymaix import to_tinymaix

    from litenet.exporter.cli import main as export
    from litenet.exporter.source import load_source
    from litenet.trainer.cli import main as train

    net, run = folder / "net.json", folder / "run"
    net.write_text(json.dumps(NET))
    words = ["--data", "digits", "--epochs", "1", "--quiet", "--no-report", "--out", str(run)]
    if train([str(net), *words]) or export([str(run), "-o", str(folder / "good.lnet.bin")]):
        raise SystemExit("the net could not be made")
    found: dict[str, tuple[bytes, str, Run]] = {
        "LiteNet": ((folder / "good.lnet.bin").read_bytes(), ".bin", run_litenet)
    }
    source = load_source(str(run), None, None)
    if find_spec("ai_edge_litert"):
        found["LiteRT"] = (to_tflite(source), ".tflite", run_litert)
    if find_spec("onnxruntime") and export([str(run), "-o", str(folder / "good.onnx")]) == 0:
        found["ONNX Runtime"] = ((folder / "good.onnx").read_bytes(), ".onnx", run_onnxruntime)
    if find_spec("ncnn"):
        param, weights = to_ncnn(source)
        (folder / "good.param").write_text(param)
        (folder / "good.bin").write_bytes(weights)
        found["ncnn, its .param"] = (param.encode(), ".param", run_ncnn)
        found["ncnn, its .bin"] = (weights, ".bin", run_ncnn)
    if tinymaix:
        found["TinyMaix"] = (to_tinymaix(source), ".tmdl", run_program(build_tinymaix(tinymaix, folder)))
    return found


def load_runtimes() -> None:
    """Once, before the forks, which need not do it then."""
    for name in ("ai_edge_litert.interpreter", "onnxruntime", "ncnn", "litenet.pyruntime"):
        if find_spec(name.partition(".")[0]):
            import_module(name)


def outcome(run: Run, path: Path) -> tuple[str, str]:
    """(kind, text) of running it in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            run(path)
            os.write(writing, b"taken\n")
        except BaseException as error:
            os.write(writing, f"refused\n{type(error).__name__}: {error}"[:2000].encode("utf-8", "replace"))
        os._exit(0)
    os.close(writing)
    said, ends = b"", time.monotonic() + SECONDS
    while (left := ends - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        piece = os.read(reading, 4096)
        if not piece:
            break
        said += piece
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    kind, _, text = said.decode("utf-8", "replace").partition("\n")
    if kind:
        return kind, text
    if status == -signal.SIGKILL:
        return "hung", ""
    return "crashed", f"signal {-status}" if status < 0 else f"exit {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="print every text")
    parser.add_argument("--tinymaix", type=Path, metavar="DIR", help="a checkout of TinyMaix")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = models(folder, options.tinymaix)
        load_runtimes()
        rows: dict[str, dict[str, tuple[str, str]]] = {}
        others = {runtime: next(d for other, (d, *_) in made.items() if other != runtime) for runtime in made}
        for runtime, (good, suffix, run) in made.items():
            kind, text = outcome(run, _written(folder / f"right{suffix}", good))
            if kind != "taken":
                raise SystemExit(f"{runtime}: the right file is {kind}: {text}")
            for what, data in ways(good, others[runtime]).items():
                rows.setdefault(what, {})[runtime] = outcome(run, _written(folder / f"wrong{suffix}", data))
        print("| wrong file | " + " | ".join(made) + " |")
        print("| --- |" + " --- |" * len(made))
        for what, row in rows.items():
            print(f"| {what} | " + " | ".join(_cell(*row[runtime]) for runtime in made) + " |")
        for runtime in made:
            counts = Counter(row[runtime][0] for row in rows.values())
            texts = len({row[runtime][1] for row in rows.values() if row[runtime][0] == "refused"})
            said = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
            print(f"{runtime}: {said}; {texts} different texts")
        if options.tinymaix:
            watched = build_tinymaix(options.tinymaix, folder, "-fsanitize=address")
            _outside(watched, made["TinyMaix"][0], others, folder)
        if options.all:
            for what, row in rows.items():
                for runtime, (kind, text) in row.items():
                    print(f"{what} / {runtime}: {kind} {text}")


def _outside(program: Path, good: bytes, others: dict[str, bytes], folder: Path) -> None:
    """How many of the files make TinyMaix read or write outside of what it was given."""
    found = 0
    for data in ways(good, others["TinyMaix"]).values():
        path = _written(folder / "wrong.tmdl", data)
        done = subprocess.run([program, path, str(SECONDS)], capture_output=True, text=True, check=False)
        found += "AddressSanitizer" in done.stderr or done.returncode < 0
    print(f"TinyMaix, built with AddressSanitizer: {found} of 30 files make it touch memory that is not its own")


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _cell(kind: str, text: str) -> str:
    return f"**crashed** ({text})" if kind == "crashed" else kind


if __name__ == "__main__":
    main()
