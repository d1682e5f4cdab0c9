"""Models of one operator, run by the C runtime: what the tests of operators share.

A case of an operator becomes a small `.bin` written by the exporter's own format and packing, so that the whole way
is tested: packing, opening, the shape rule in C, the kernel. Many go through one C process, tests/c/ops_driver.c.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbuild
import numpy as np
import pytest

from litenet.exporter.format import Model, OpRec, TensorRec, write
from litenet.exporter.pack import pack, packed_type
from litenet.trainer.ops import OPS, Attrs, Shape, make_attrs, parameters

NAMES = [name for name, m in OPS.items() if m.OP.in_files and not m.OP.crosses]
# name: compiler, sanitizers, flags
BUILDS: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "gcc": ("gcc", True, ()),
    "clang": ("clang", True, ()),
    "gcc-no-vectors": ("gcc", True, ("-DLN_NO_VECTORS",)),
    "chip": ("gcc", True, ("-DLN_NO_VECTORS", "-DLN_SMALL", "-DLN_TERSE")),
    "gcc-O3": ("gcc", False, ("-O3",)),
    "clang-O3": ("clang", False, ("-O3",)),
}
# AVX-VNNI's kernels in AVX-512's form of the instruction, for processors that have only that
EVEX_VNNI = {"evex-vnni": ("gcc", False, ("-O2", "-DLN_EVEX_VNNI"))}
FIRST = "gcc"
if cbuild.COVERAGE:  # one build, which counts what runs
    BUILDS = {FIRST: ("clang", False, ())}
# no C library; memory is copied by an instruction
WASM = ("--target=wasm32", "-O2", "-ffreestanding", "-nostdlib", "-msimd128", "-mbulk-memory", "-Wl,--no-entry",
        "-Qunused-arguments")  # fmt: skip
# name: compiler, flags, the command that runs its programs here, number of its kernels (litenet_fast.h)
MACHINES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], int]] = {
    "aarch64": ("aarch64-linux-gnu-gcc", ("-static", "-O2"), ("qemu-aarch64", "-cpu", "cortex-a53"), 4),
    "armv7": ("arm-linux-gnueabihf-gcc", ("-static", "-O2", "-mcpu=cortex-a7", "-mfpu=neon-vfpv4"),
              ("qemu-arm", "-cpu", "cortex-a7"), 4),
    "wasm": ("clang", WASM, ("node", str(cbuild.TESTS_C / "wasm_driver.mjs")), 5),
    "x86-64 without AVX": ("gcc", ("-O2",), ("qemu-x86_64", "-cpu", "Nehalem"), 0),  # 0: the best it has
    "x86-64 with AVX2": ("gcc", ("-O2",), ("qemu-x86_64", "-cpu", "Haswell"), 0),
}  # fmt: skip
# 64-bit ARM with the dot product of bytes: other kernels for int8 than without it
DOT_PRODUCT = "aarch64 with the dot product"
# one whose bytes stand the other way round: without kernels of its own, and floats and counts as it has them
BIG_ENDIAN = "s390x"
OTHERS = MACHINES | {
    DOT_PRODUCT: (*MACHINES["aarch64"][:2], ("qemu-aarch64", "-cpu", "cortex-a76"), 4),
    BIG_ENDIAN: ("s390x-linux-gnu-gcc", ("-static", "-O2", "-fexcess-precision=fast"), ("qemu-s390x",), 0),
}

# chips, with the kernels for their short vectors: name: compiler, flags, the command that runs its programs here, in
# the folder of their files
CHIP_FLAGS = ("-mthumb", "-Os", "-ffp-contract=off", "-DLN_SMALL", "-DLN_TERSE", "--specs=rdimon.specs",
              "-nostartfiles", "-T", str(cbuild.TESTS_C / "chip.ld"))  # fmt: skip
CHIPS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    name: ("arm-none-eabi-gcc", (f"-mcpu={name}", *more, *CHIP_FLAGS, f"-Wl,--defsym=DATA={data}"),
           ("qemu-system-arm", "-M", machine, "-display", "none", "-semihosting-config", "enable=on,target=native",
            "-kernel"))
    for name, machine, data, more in (
        ("cortex-m3", "mps2-an385", "0x20000000", ()),
        ("cortex-m4", "mps2-an386", "0x20000000", ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")),
        ("cortex-m55", "mps3-an547", "0x60000000", ("-mfloat-abi=hard",)),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One model, its input, and what must come out."""

    what: str
    op: str
    model: Model | bytes  # its contents, or the file
    x: np.ndarray
    want: np.ndarray
    at: int  # which operator of the model is meant
    macs: int


def attrs_of(name: str, case: dict[str, Any]) -> Attrs:
    return make_attrs(OPS[name].OP, {k: v for k, v in case.items() if k != "x"})


def weights_of(name: str, a: Attrs, x: Shape, dtype: str, rng: np.random.Generator) -> dict[str, np.ndarray | None]:
    """Weights that the file holds exactly, of the size that initialisation gives."""
    out: dict[str, np.ndarray | None] = {}
    for w in OPS[name].OP.weights:
        if w.needs and not getattr(a, w.needs):
            out[w.name] = None
            continue
        values = rng.standard_normal(w.shape(a, x))
        if w.fans:
            values /= np.sqrt(w.fans(a, x)[0])
        if w.name == "running_var":
            values = np.abs(values) + 0.5
        half = dtype == "f16" and packed_type(OPS[name].OP, dtype) == "f16"
        out[w.name] = values.astype(np.float16 if half else np.float32).astype(np.float64)
    return out


def forward(name: str, a: Attrs, arrays: dict[str, np.ndarray | None]) -> np.ndarray:
    return OPS[name].forward(a, *(arrays[p] for p in parameters(OPS[name].forward)))


NONE = make_attrs(OPS["activation"].OP, {})
SECOND = make_attrs(OPS["batchnorm"].OP, {})


def job(name: str, case: dict[str, Any], dtype: str, over: int | None = None, seed: int = 0) -> Job:
    """The model of one case; `over`: the operator writes over its input of that number, in the arena.

    A second input is made from the first by a batchnorm.
    """
    module, shape, rng = OPS[name], tuple(case["x"]), np.random.default_rng(seed)
    a = attrs_of(name, case)
    y_shape = module.out_shape(a, *[shape] * len(module.OP.inputs))
    weights = weights_of(name, a, shape, dtype, rng)
    x = rng.standard_normal(shape).astype(np.float32)
    arrays = {**weights, "x": x[None].astype(np.float64)}

    tensors, ops = [TensorRec(shape, input=True)], []
    room = -(-4 * int(np.prod(shape)) // 16) * 16
    inputs, second = [0], len(module.OP.inputs) == 2
    if over is not None:
        tensors.append(TensorRec(shape, offset=0))
        ops.append(OpRec("activation", [0], 1, NONE))
        inputs = [1]
    if second:
        w2 = weights_of("batchnorm", SECOND, shape, "f32", rng)
        arrays["x2"] = forward("batchnorm", SECOND, {**w2, "x": arrays["x"]})
        tensors.append(TensorRec(shape, offset=room))
        ops.append(OpRec("batchnorm", inputs[:1], len(tensors) - 1, SECOND, pack("batchnorm", SECOND, w2)))
        inputs.append(len(tensors) - 1)
    at = len(ops)
    tensors.append(TensorRec(y_shape, output=over is None, offset=room * (over or 0)))
    ops.append(OpRec(name, inputs, len(tensors) - 1, a, pack(name, a, weights, packed_type(module.OP, dtype)),
                     packed_type(module.OP, dtype)))  # fmt: skip
    if over is not None:
        tensors.append(TensorRec(y_shape, output=True))
        ops.append(OpRec("activation", [len(tensors) - 2], len(tensors) - 1, NONE))
    what = f"{name} {case} {dtype}" + ("" if over is None else f" over input {over}")
    want = forward(name, a, arrays)[0]
    return Job(what, name, Model(tensors, ops), x, want, at, module.macs(a, shape, y_shape))


def one_op(name: str, given: dict[str, Any], x: np.ndarray, weights: dict[str, np.ndarray], dtype: str = "f32") -> Job:
    """A model of one operator for an input and weights of the test's own."""
    a = make_attrs(OPS[name].OP, given)
    shape = OPS[name].out_shape(a, x.shape)
    model = Model(
        [TensorRec(x.shape, input=True), TensorRec(shape, output=True)],
        [OpRec(name, [0], 1, a, pack(name, a, weights, dtype), dtype)],
    )
    with np.errstate(all="ignore"):
        arrays = {"bias": None, **weights, "x": x[None].astype(np.float64)}
        want = forward(name, a, arrays)[0]
    return Job(f"{name} {given}", name, model, x.astype(np.float32), want, 0, 0)


@dataclass(frozen=True)
class Result:
    status: int
    record: int
    macs: tuple[int, ...]
    bytes: bytes

    @property
    def y(self) -> np.ndarray:
        return np.frombuffer(self.bytes, "<f4")


def run(
    build: str, todo: list[Job], folder: Path, refused: bool = False, fast: tuple[int, int] | None = None
) -> list[Result]:
    """All of them through one C process, which must open every model; or none, where they are to be refused.
    fast: the number of a set of kernels, and of an algorithm (see runtime_c/src/fast.h)."""
    command: tuple[str, ...] = ()
    end = ">" if build == BIG_ENDIAN else "<"
    if build in OTHERS or build in CHIPS:
        compiler, flags, command = (CHIPS.get(build) or OTHERS[build])[:3]
        sanitize = False
        cbuild.need(compiler)
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
    else:
        compiler, sanitize, flags = (BUILDS | EVEX_VNNI)[build]
    driver_name = "wasm_driver" if build.startswith("wasm") else "ops_driver"
    sources = [cbuild.TESTS_C / f"{driver_name}.c", *cbuild.core()]
    if build in CHIPS:
        sources.append(cbuild.TESTS_C / "chip_start.c")
    if fast is not None:
        sources, flags = [*sources, *cbuild.fast()], (*flags, "-DLN_TEST_FAST")
    driver = cbuild.program(driver_name, sources, compiler, sanitize, flags)
    source, target = folder / "jobs", folder / "results"
    with source.open("wb") as f:
        for j in todo:
            model = j.model if isinstance(j.model, bytes) else write(j.model)
            x = j.x.astype(j.x.dtype.newbyteorder(end))
            f.write(struct.pack(f"{end}I", len(model)) + model + struct.pack(f"{end}I", x.nbytes) + x.tobytes())
    arguments = [*command, driver, *([] if build in CHIPS else [source, target]), *map(str, fast or ())]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    data, at, results = target.read_bytes(), 0, []
    while at < len(data):
        status, record, ops = struct.unpack_from(f"{end}IiI", data, at)
        macs = struct.unpack_from(f"{end}{ops}Q", data, at + 12)
        (n,) = struct.unpack_from(f"{end}I", data, at + 12 + 8 * ops)
        at += 16 + 8 * ops + n
        results.append(Result(status, record, macs, data[at - n : at]))
    assert len(results) == len(todo)
    for got, j in zip(results, todo, strict=True):
        assert (got.status != 0) == refused, f"{j.what}: status {got.status}, record {got.record}"
    return results
