"""Run CUDA kernels on the CPU: a Call of trainer/kernels/call.py over NumPy arrays, through tests/shim/cushim.h.

    cushim.run(call, {"x": x, "weight": w, "y": y})     # y is written

Arrays are C-contiguous, found by role, and modified in place; a role without an array is NULL. Each stands between
guards while the kernel runs: a write outside fails the test, a read outside gives NaN. Arrays that share memory keep
sharing it. `backwards` runs the threads of a block in the opposite order (results must not depend on it).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from litenet.trainer.kernels.call import Call, Float, Int, Ref

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "trainer" / "kernels"
SHIM = Path(__file__).resolve().parent / "shim" / "cushim.h"
BUILD = ROOT / "build" / "shim"
FLAGS = ("-O1", "-std=c++17", "-fPIC", "-w")
GUARD = 4096  # bytes before and after each array
NAME = re.compile(r'extern\s+"C"\s+__attribute__\(\(noinline\)\)\s+void\s+(\w+)\s*\(')


def run(call: Call, arrays: dict[str, np.ndarray], backwards: bool = False) -> None:
    """One launch. What the kernel writes is in `arrays` afterwards."""
    entry = _entry(call.kernel.file, call.kernel.defines, call.kernel.name)
    memory = _Guarded({ref.role: arrays[ref.role] for ref in call.args if isinstance(ref, Ref) and ref.role in arrays})
    values: list[ctypes.c_void_p | ctypes.c_int | ctypes.c_float] = []
    for arg in call.args:
        if isinstance(arg, Ref):
            address = memory.address.get(arg.role)
            values.append(ctypes.c_void_p(None if address is None else address + arg.offset))
        elif isinstance(arg, Int):
            values.append(ctypes.c_int(arg.value))
        elif isinstance(arg, Float):
            values.append(ctypes.c_float(arg.value))
    dims = (ctypes.c_uint * 6)(*call.grid, *call.block)
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    takes = entry(dims, ctypes.c_uint(call.shared), ctypes.c_int(backwards), pointers, ctypes.c_int(len(values)))
    assert takes < 0, f"{call.kernel.name} takes {takes} arguments, the call gives {len(values)}"
    memory.give_back(call.kernel.name)


def run_all(calls: list[Call], arrays: dict[str, np.ndarray], backwards: bool = False) -> None:
    for call in calls:
        run(call, arrays, backwards)


class _Guarded:
    """Copies of arrays, each run of overlapping ones between two guards of 0xFF bytes."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        spans: list[list[int]] = []  # [start, end) of memory that belongs together
        for a in sorted(arrays.values(), key=lambda a: a.ctypes.data):
            assert a.flags.c_contiguous, "arrays for kernels are C-contiguous"
            start, end = a.ctypes.data, a.ctypes.data + a.nbytes
            if spans and start < spans[-1][1]:
                spans[-1][1] = max(end, spans[-1][1])
            else:
                spans.append([start, end])
        self.buffers = []
        for start, end in spans:
            raw = np.full(end - start + 2 * GUARD + 16, 0xFF, np.uint8)
            first = GUARD + (-(raw.ctypes.data + GUARD) % 16)
            ctypes.memmove(raw.ctypes.data + first, start, end - start)
            self.buffers.append((start, end, raw, first))
        self.address = {role: self._moved(a.ctypes.data) for role, a in arrays.items()}

    def _moved(self, address: int) -> int:
        for start, end, raw, first in self.buffers:
            if start <= address < max(end, start + 1):
                return raw.ctypes.data + first + address - start
        raise AssertionError("address of no array")

    def give_back(self, name: str) -> None:
        for start, end, raw, first in self.buffers:
            intact = (raw[:first] == 0xFF).all() and (raw[first + end - start :] == 0xFF).all()
            assert intact, f"{name} wrote outside an array"
            ctypes.memmove(start, raw.ctypes.data + first, end - start)


@cache
def _entry(file: str, defines: tuple[tuple[str, str | int], ...], name: str):
    library = _library(file, defines)
    try:
        entry = getattr(library, f"cushim_{name}")
    except AttributeError:
        raise AssertionError(f'{file} defines no extern "C" __global__ void {name} with {defines}') from None
    entry.restype = ctypes.c_int
    return entry


@cache
def _library(file: str, defines: tuple[tuple[str, str | int], ...]) -> ctypes.CDLL:
    return ctypes.CDLL(str(build(file, defines)))


def build(file: str, defines: tuple[tuple[str, str | int], ...]) -> Path:
    """The shared object of one kernel file with these macros: compiled once for equal sources."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed: kernels cannot run on the CPU")
    flags = [*FLAGS, *_fma(), f"-I{KERNELS}"]
    digest = hashlib.sha256(repr((flags, file, defines)).encode())
    for path in [KERNELS / file, SHIM, Path(__file__), *sorted(KERNELS.glob("*.cuh"))]:
        digest.update(path.read_bytes())
    out = BUILD / f"{Path(file).stem}-{digest.hexdigest()[:24]}.so"
    if out.exists():
        return out
    BUILD.mkdir(parents=True, exist_ok=True)
    macros = "".join(f"#define {key} {value}\n" for key, value in defines)  # after the header: they are not for it
    source = f'#include "{SHIM}"\n{macros}#include "{KERNELS / file}"\n'
    text = _run([compiler, "-E", "-x", "c++", *flags, "-"], source)
    # a line marker between `extern "C"` and the name would hide a kernel, so names are read without them
    names = NAME.findall(re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    entries = "".join(
        f'extern "C" int cushim_{n}(const unsigned *d, unsigned s, int o, void **a, int c) '
        f"{{ return cu::enter({n}, d, s, o, a, c); }}\n"
        for n in names
    )
    new = out.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
    _run([compiler, "-x", "c++", "-fpreprocessed", *flags, "-shared", "-o", str(new), "-"], text + entries)
    new.replace(out)  # at once, so that two test processes never see half a file
    return out


@cache
def _fma() -> tuple[str, ...]:
    """With the processor's fused multiply-add fmaf is one instruction, as on a card."""
    info = Path("/proc/cpuinfo")
    has = platform.machine() == "x86_64" and info.exists() and " fma " in info.read_text()
    return ("-mfma",) if has else ()


def _run(command: list[str], source: str) -> str:
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
    return done.stdout
