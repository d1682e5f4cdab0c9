"""Compile CUDA kernels without a card, and read what they need: registers, spills, shared memory.

    cubin, log = nvrtc.compile("linear.cu", 50, {"BM": 64})
    nvrtc.resources(log)["linear_forward_f32"].registers

Results are kept in build/nvrtc under a hash of all that goes in.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "trainer" / "kernels"
BUILD = ROOT / "build" / "nvrtc"
ARCHITECTURES = (50, 61, 75, 86, 90, 120)
Defines = Mapping[str, str | int] | Iterable[tuple[str, str | int]]


@dataclass(frozen=True)
class Resources:
    """What one kernel takes: registers of a thread, bytes spilled, bytes of static shared memory of a block."""

    registers: int
    spills: int
    shared: int
    stack: int


@cache
def library() -> ctypes.CDLL:
    """NVRTC 12 (13 no longer knows the cards before 7.5); without it the test is skipped."""
    packages = Path(sysconfig.get_paths()["purelib"])
    found = sorted(packages.glob("nvidia/cuda_nvrtc/**/libnvrtc.so.12*"))
    if not found:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12==12.9.86")
    return ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)


def compile(source: str, arch: int, defines: Defines = ()) -> tuple[bytes, str]:
    """(machine code, log) of a kernel file of trainer/kernels (a name ending in .cu) or of CUDA C text."""
    lib, text, name = library(), source, "text.cu"
    if source.endswith(".cu"):
        text, name = (KERNELS / source).read_text(), source
    pairs = defines.items() if isinstance(defines, Mapping) else defines
    options = [
        f"--gpu-architecture=sm_{arch}", "--std=c++17", f"--include-path={KERNELS}", "--ptxas-options=-v", "-w",
        *(f"-D{key}={value}" for key, value in pairs),
    ]  # fmt: skip
    digest = hashlib.sha256(repr((text, options, [p.read_bytes() for p in sorted(KERNELS.glob("*.cuh"))])).encode())
    kept = BUILD / f"{Path(name).stem}-{digest.hexdigest()[:24]}"
    if kept.with_suffix(".log").exists():
        return kept.with_suffix(".cubin").read_bytes(), kept.with_suffix(".log").read_text()
    program = ctypes.c_void_p()
    _check(lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None))
    try:
        array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        failed = lib.nvrtcCompileProgram(program, len(options), array)
        log = _read(lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog, program).decode().rstrip("\0")
        assert failed == 0, f"{name} for sm_{arch} with {options[5:]}:\n{log[:4000]}"
        cubin = _read(lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN, program)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
    BUILD.mkdir(parents=True, exist_ok=True)
    kept.with_suffix(".cubin").write_bytes(cubin)
    kept.with_suffix(".log").write_text(log)  # last: where it exists, both do
    return cubin, log


def resources(log: str) -> dict[str, Resources]:
    """By kernel, from the log of the assembler."""
    found = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", part)
        used = re.search(r"Used (\d+) registers", part)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        shared = re.search(r"(\d+) bytes smem", part)
        assert name and used and stack, f"the assembler's log reads differently:\n{part}"
        found[name[1]] = Resources(
            int(used[1]), int(stack[2]) + int(stack[3]), int(shared[1]) if shared else 0, int(stack[1])
        )
    return found


def _read(size_of, read, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    out = ctypes.create_string_buffer(size.value)
    _check(read(program, out))
    return out.raw


def _check(status: int) -> None:
    assert status == 0, f"NVRTC status {status}"
