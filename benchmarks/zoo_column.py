"""LiteNet's column beside a table of rivals: every net of the zoo, batch 1, by the protocol of that table.

    python benchmarks/zoo_column.py [NET ...] [--threads 1,2] [--models FOLDER]

A process for each net and number of threads: import, load from file, first run, five warm runs, then bursts of 0.3 s,
seven and where they spread by more than 15 % seven more. Each burst also notes how busy everything else on the machine
was (/proc/stat, less the process's own time); one with others above 0.35 of a core (0.12 with two threads) is run
again, twice at most. p50 and p95 pool the quiet bursts if there are three, else all, and then say so: * spread, ! not
quiet.
`predict` takes NumPy and gives NumPy; the picture is already channels last.

Nets are those of zoo_bins.py with untrained weights, and facenet_112 of tests/onnx_zoo.py through the importer. With
--models the nets are NAME.onnx of that folder instead, and NAME.npz beside it (x, y) is input and expected answer, so
that both columns have the very same weights.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUNDS, BURST_SECONDS, WIDE = 7, 0.3, 1.15
QUIET = {1: 0.35, 2: 0.12}  # cores that others keep busy
FACENET = "facenet_112"


# ---- the process that is measured


def work(path: str, given: str, threads: int) -> None:
    """Prints {import_ms, load_ms, first_ms, out}; then a burst for every line read."""
    import numpy as np

    x = np.load(given)
    Path(path).read_bytes()  # the file is in the cache
    start = time.perf_counter()
    from litenet.pyruntime import InferenceEngine

    imported = time.perf_counter()
    engine = InferenceEngine(path, threads=threads or None)
    loaded = time.perf_counter()
    y = engine.predict(x)
    first = time.perf_counter()
    for _ in range(5):
        engine.predict(x)
    seconds = {"import_ms": imported - start, "load_ms": loaded - imported, "first_ms": first - loaded}
    print(json.dumps({**{k: 1e3 * v for k, v in seconds.items()}, "threads": engine.threads, "kernels": engine.kernels,
                      "out": np.ravel(y).tolist()}), flush=True)  # fmt: skip
    clock, predict = time.perf_counter_ns, engine.predict
    for _ in sys.stdin:
        predict(x)
        predict(x)
        before, times = time.process_time(), []
        began = end = clock()
        while end < began + int(1e9 * BURST_SECONDS) or len(times) < 2:
            start_ns = clock()
            predict(x)
            end = clock()
            times.append(end - start_ns)
        cpu = time.process_time() - before
        every = np.sort(times)[np.linspace(0, len(times) - 1, min(len(times), 200)).astype(int)]
        print(json.dumps({"us": (every / 1e3).tolist(), "cpu": cpu, "wall": (end - began) / 1e9}), flush=True)


# ---- the process that measures


def busy() -> float:
    """Seconds of processor time that the machine has worked."""
    ticks = [int(t) for t in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that is measured. `found`: what it told when it had loaded the net and run it."""

    def __init__(self, path: Path, given: Path, threads: int):
        command = [sys.executable, __file__, "--work", str(path), str(given), str(threads)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.found = self.read()

    def ask(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")

    def read(self) -> dict:
        ready, _, _ = select.select([self.child.stdout], [], [], 240)
        line = self.child.stdout.readline() if ready and self.child.stdout else ""
        if not line:
            self.child.kill()
            raise SystemExit(f"{' '.join(map(str, self.child.args))}: no answer")
        return json.loads(line)

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(20)


def measure(path: Path, given: Path, threads: int) -> dict:
    worker, bursts = Worker(path, given, threads), []
    found = worker.found
    limit = QUIET.get(found["threads"], QUIET[2])
    wanted = ROUNDS
    while len(bursts) < wanted:
        for attempt in range(3):
            time.sleep(0.03)
            before, began = busy(), time.perf_counter()
            worker.ask()
            burst = worker.read()
            burst["others"] = max(0.0, (busy() - before - burst["cpu"]) / (time.perf_counter() - began))
            if burst["others"] < limit or attempt == 2:
                bursts.append(burst)
                break
        if len(bursts) == ROUNDS and spread(bursts) > WIDE:
            wanted = 2 * ROUNDS
    worker.close()
    quiet = [b for b in bursts if b["others"] < limit]
    use = quiet if len(quiet) >= 3 else bursts
    pooled = sorted(us for b in use for us in b["us"])
    return {**found, "p50": pooled[len(pooled) // 2], "p95": pooled[len(pooled) * 95 // 100], "least": pooled[0],
            "marks": "*" * (spread(bursts) > WIDE) + "!" * (use is bursts)}  # fmt: skip


def spread(bursts: list[dict]) -> float:
    medians = [b["us"][len(b["us"]) // 2] for b in bursts]
    return max(medians) / min(medians)


# ---- the nets


def net(name: str, folder: Path, models: Path | None) -> tuple[Path, Path, object]:
    """(model, input, expected answer or None), the first two written to the folder."""
    import numpy as np

    sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
    import zoo_bins

    from litenet.exporter import cli
    from litenet.pyruntime import InferenceEngine

    path, given, want, x = folder / f"{name}.bin", folder / f"{name}.npy", None, None
    onnx = models / f"{name}.onnx" if models else folder / f"{name}.onnx"
    if models is None and name == FACENET:
        import onnx_zoo

        onnx.write_bytes(onnx_zoo.facenet().SerializeToString())
    if onnx.exists():
        with contextlib.redirect_stdout(sys.stderr):
            status = cli.main([str(onnx), "-o", str(path)])
        if status:
            raise SystemExit(f"{onnx} could not be imported")
    else:
        path.write_bytes(zoo_bins.binary(name))
    if models:
        pair = np.load(models / f"{name}.npz")
        x, want = pair["x"][0], np.ravel(pair["y"])
        x = np.moveaxis(x, 0, -1) if x.ndim == 3 else x
    shape = InferenceEngine(path).input_shape
    x = np.random.default_rng(0).uniform(-1, 1, shape) if x is None else x
    np.save(given, np.ascontiguousarray(x, np.float32))
    return path, given, want


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    import numpy as np

    sys.path.insert(0, str(HERE))
    import zoo_bins

    p = argparse.ArgumentParser(description="LiteNet's column of the table of CPU runtimes.")
    p.add_argument("nets", nargs="*", metavar="NET")
    p.add_argument("--threads", default="1", help="such as 1,2; 0: LiteNet's own choice (default 1)")
    p.add_argument("--models", type=Path, help="a folder with NAME.onnx and NAME.npz")
    args = p.parse_args()
    print("| net | kernels, threads | p50 us | p95/p50 | least us | load ms | first run ms | import ms | differs by |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.nets or [*zoo_bins.NETS, FACENET]:
            path, given, want = net(name, Path(folder), args.models)
            for threads in map(int, args.threads.split(",")):
                r = measure(path, given, threads)
                worst = "" if want is None else f"{np.abs(np.array(r['out']) - want).max() / np.abs(want).max():.0e}"
                cells = [name, f"{r['kernels']}, {r['threads']}", f"{r['p50']:,.1f}{r['marks']}"]
                cells += [f"{r['p95'] / r['p50']:.2f}", f"{r['least']:,.1f}", f"{r['load_ms']:.1f}"]
                print(
                    "|", " | ".join([*cells, f"{r['first_ms']:.2f}", f"{r['import_ms']:.0f}", worst]), "|", flush=True
                )


if __name__ == "__main__":
    main()
