"""Instructions that one inference takes on AArch64: LiteNet, ncnn and LiteRT, on an emulated Cortex-A72.

    apt-get install qemu-user gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    pip install cffi 'litenet[import]'
    python benchmarks/arm_instructions.py WORK [NET ...] [--cpu cortex-a72] [--cc "python -m ziglang cc -target ..."]

What it needs of the other processor it fetches into the folder WORK: an AArch64 Python from Debian's archive and the
AArch64 wheels of NumPy, cffi, ncnn and ai-edge-litert from PyPI (100 MB, once). Each runtime is called from that
Python, one thread, float32 (ncnn_half: as ncnn is by default, with weights in half precision; --peers
litenet,litenet_int8,litert_int8: int8, the same integers, floats in and out of ours, int8 of LiteRT's); QEMU counts
every
instruction between two marks (count_instructions.c), so a call from Python, about 15,000 instructions, is part of each
figure.

Counts repeat to a few hundred, whatever else the machine does. They are not times: a load that misses the cache and a
multiply-add count the same, and a processor runs one to three instructions a cycle depending on what they are.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "pyruntime")]
import build_ffi  # noqa: E402
import zoo_bins  # noqa: E402
from to_ncnn import to_ncnn  # noqa: E402
from to_tflite import to_tflite  # noqa: E402

from litenet.exporter import device, format  # noqa: E402

NETS = ["mnist_cnn", "cifar_cnn", "mbv1_025_96"]
PEERS = ["litenet", "ncnn", "ncnn_half", "litert"]
DEBS = [
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6",
    "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libgomp1",
]  # fmt: skip
# XNNPACK reads this file and falls over that of the machine below: four cores of a Raspberry Pi 4
CPUINFO = "".join(
    f"processor\t: {i}\nFeatures\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
    "CPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n"
    for i in range(4)
)
WHEELS = ["numpy", "cffi", "ncnn", "ai-edge-litert"]
GLIBC = ["manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"]


def fetch(work: Path) -> None:
    """An AArch64 Python in work/root and packages for it in work/site."""
    if not (work / "root" / "usr" / "bin" / "python3.11").exists():
        lists, debs = work / "apt", work / "debs"
        for folder in (lists / "partial", work / "archives" / "partial", debs):
            folder.mkdir(parents=True, exist_ok=True)
        apt = ["apt-get", "-q", "-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64",
               f"-oDir::State::Lists={lists}", "-oDir::State::status=/dev/null",
               f"-oDir::Cache::archives={work / 'archives'}"]  # fmt: skip
        subprocess.run([*apt, "update"], check=True)
        subprocess.run([*apt, "download", *DEBS], check=True, cwd=debs)
        for deb in debs.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(deb), str(work / "root")], check=True)
    (work / "root" / "proc").mkdir(exist_ok=True)
    (work / "root" / "proc" / "cpuinfo").write_text(CPUINFO)
    if not (work / "site" / "ncnn").exists():
        platforms = [word for name in GLIBC for word in ("--platform", name)]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *platforms]
        wheels = work / "wheels"
        subprocess.run([*pip, "--python-version", "3.11", "-d", str(wheels), *WHEELS], check=True)
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(work / "site")


def build(work: Path, compiler: list[str]) -> None:
    """LiteNet's package in work/ours and the counter."""
    package = work / "ours" / "litenet" / "pyruntime"
    package.mkdir(parents=True, exist_ok=True)
    for source in (HERE.parent / "pyruntime").glob("*.py"):
        (package / source.name).write_bytes(source.read_bytes())
    glue = work / "_litenet.c"
    build_ffi.ffi.emit_c_code(str(glue))
    sources = [str(glue), *map(str, build_ffi.SOURCES)]
    include = [f"-I{folder}" for folder in (build_ffi.HEADERS[0].parent, build_ffi.SOURCES[0].parent)]
    python = [f"-I{sysconfig.get_paths()['include']}", "-DPy_LIMITED_API=0x03090000"]
    shared = ["-shared", "-fPIC", "-pthread", "-o", str(package / "_litenet.abi3.so")]
    subprocess.run([*compiler, *build_ffi.UNIX_FLAGS, *python, *include, *sources, *shared], check=True)
    counter = [str(HERE / "count_instructions.c"), "-o", str(work / "count.so")]
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *counter], check=True)


def write(work: Path, name: str, peers: list[str]) -> tuple[int, ...]:
    """The net for every peer, and an input; the shape of the input."""
    source = zoo_bins.source_of(name)
    made = device.prepare(source)
    meta = {"name": name}
    (work / f"{name}.litenet_int8").write_bytes(zoo_bins.quantised(name))
    (work / f"{name}.litert_int8").write_bytes(to_tflite(zoo_bins.whole(name)))
    (work / f"{name}.litenet").write_bytes(format.write(device.model(made, format.Preprocessing(), False, meta, None)))
    if any(p.startswith("ncnn") for p in peers):
        text, weights = to_ncnn(source)
        (work / f"{name}.ncnn.param").write_text(text)
        (work / f"{name}.ncnn.bin").write_bytes(weights)
    (work / f"{name}.litert").write_bytes(to_tflite(source))
    x = np.random.default_rng(0).standard_normal(made.graph.input_shape).astype(np.float32)
    np.save(work / f"{name}.npy", x)
    return x.shape


def count(work: Path, peer: str, name: str, cpu: str, runs: int) -> tuple[int, np.ndarray]:
    """Instructions of one run, the median of some, and what came out."""
    model, y = work / f"{name}.{peer.removesuffix('_half')}", work / "y.npy"
    plugin = ["-plugin", str(work / "count.so"), "-d", "plugin"]
    emulator = ["qemu-aarch64", "-cpu", cpu, "-L", str(work / "root"), *plugin]
    python = [str(work / "root" / "usr" / "bin" / "python3.11"), str(HERE / "arm_worker.py")]
    path = os.pathsep.join((str(work / "ours"), str(work / "site")))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
           "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    command = [*emulator, *python, peer, str(model), str(work / f"{name}.npy"), str(runs), str(y)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    marks = [int(n) for n in re.findall(r"^count (\d+)$", done.stderr, re.MULTILINE)][-runs - 1 :]
    if done.returncode or len(marks) <= runs:
        raise SystemExit(f"{peer} on {name}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return int(statistics.median(b - a for a, b in zip(marks, marks[1:], strict=False))), np.load(y).reshape(-1)


def main() -> None:
    p = argparse.ArgumentParser(description="Instructions per inference on AArch64.")
    p.add_argument("work", type=Path)
    p.add_argument("nets", nargs="*", metavar="NET", help=f"of benchmarks/zoo_bins.py (default {' '.join(NETS)})")
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--cpu", default="cortex-a72", help="as qemu-aarch64 -cpu help lists them")
    p.add_argument("--cc", default="aarch64-linux-gnu-gcc", help="the compiler of LiteNet's C sources")
    p.add_argument("--runs", type=int, default=5)
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    work = args.work.resolve()
    fetch(work)
    build(work, shlex.split(args.cc))
    peers = args.peers.split(",")
    print(f"million instructions, {args.cpu}, LiteNet by {args.cc}, on {platform.machine()} (times LiteNet's)")
    for name in args.nets or NETS:
        write(work, name, peers)
        found = {peer: count(work, peer, name, args.cpu, args.runs) for peer in peers}
        ours, want = found[peers[0]]
        cells = []
        for peer, (n, y) in found.items():
            worst = float(np.abs(y - want).max() / np.abs(want).max())
            cells.append(f"{peer} {n / 1e6:.3f} ({n / ours:.2f}x, differs by {worst:.0e})")
        print(f"{name:<16}" + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
