"""A stand-in for CuPy, as far as trainer/backends uses it: memory is the host's, kernels run through the CPU shim.

    cuda = FakeCuda(capability=(6, 1), free=2 * 10**9); cuda.install(monkeypatch)

What a real card could be or do wrong is an attribute. The driver's library is replaced along with it.
"""

import ctypes
import re
import types
from dataclasses import dataclass, field

import cushim
import numpy as np

from litenet.trainer.backends import driver

MEMORY = {"memcpyHostToDevice": 1, "memcpyDeviceToHost": 2, "memcpyDeviceToDevice": 3}


class CUDADriverError(RuntimeError):
    pass


class CUDARuntimeError(RuntimeError):
    pass


class CompileException(Exception):  # noqa: N818 (its name in CuPy)
    pass


@dataclass
class FakeCuda:
    """One machine: its driver, its cards, its CuPy."""

    name: str = "GeForce GTX Fake"
    capability: tuple = (7, 5)
    sms: int = 4
    total: int = 6 * 10**9
    free: int = 5 * 10**9
    driver_cuda: int = 13000  # the newest CUDA the driver runs; 0: no driver
    cards: int = 1
    problem: str = ""
    cupy: str | None = "14.2.0"  # None: not installed
    built: int = 12090
    nvrtc: tuple = (12, 9)
    archs: tuple = (50, 52, 60, 61, 70, 75, 80, 86, 89, 90, 100, 120)
    watchdog: int = 0
    attributes: dict = field(default_factory=dict)
    broken: tuple = ()  # "nvrtc", "capture", "replay", "open", "bad kernel"
    miscompiled: str = ""  # a file that does not compile
    captured: list | None = None
    followed: list = field(default_factory=list)  # launches that were set up beside the one before them

    def install(self, monkeypatch):
        import sys

        found = driver.Driver(False)
        if self.driver_cuda:
            one = driver.Card(self.name, self.capability, self.total)
            found = driver.Driver(True, self.driver_cuda, (one,) * self.cards, self.problem)
        monkeypatch.setattr(driver, "probe", lambda: found)
        monkeypatch.setattr(driver, "library", lambda: Library(self) if self.driver_cuda else None)
        monkeypatch.setitem(sys.modules, "cupy", self.module() if self.cupy else None)
        return self

    def module(self):
        cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError, is_hip=False, runtimeGetVersion=lambda: self.built,
                getDeviceProperties=self.properties, deviceGetAttribute=self.attribute,
                memGetInfo=lambda: (self.free, self.total), memcpyAsync=copy,
                memsetAsync=lambda at, value, size, _: ctypes.memset(at, value, size), **MEMORY,
            ),
            driver=types.SimpleNamespace(CUDADriverError=CUDADriverError),
            compiler=types.SimpleNamespace(CompileException=CompileException),
            nvrtc=types.SimpleNamespace(
                getVersion=self.nvrtc_version, getSupportedArchs=lambda: self.archs,
                createProgram=lambda *_: 1, compileProgram=self.compile_probe, destroyProgram=lambda _: None,
            ),
            Device=lambda _: types.SimpleNamespace(use=lambda: None),
            Stream=lambda **_: Stream(self), Event=Event, Memory=Memory, get_elapsed_time=lambda *_: 1.0,
            alloc_pinned_memory=bytearray,
        )  # fmt: skip
        module = types.ModuleType("cupy")
        module.__version__, module.cuda = self.cupy, cuda
        module.RawModule = lambda code, options: RawModule(self, code, options)
        return module

    def properties(self, index):
        if "open" in self.broken:
            raise CUDARuntimeError("cudaErrorDevicesUnavailable: all CUDA-capable devices are busy")
        major, minor = self.capability
        return {"name": self.name.encode(), "multiProcessorCount": self.sms, "major": major, "minor": minor}

    def attribute(self, number, index):
        known = {13: 1_500_000, 17: self.watchdog, 36: 4_000_000, 37: 192, 95: 1}
        return (known | self.attributes).get(number, 0)

    def nvrtc_version(self):
        if "nvrtc" in self.broken:
            raise RuntimeError('Failure finding "libnvrtc.so.12": No such file')
        return self.nvrtc

    def compile_probe(self, program, options):
        arch = int(re.fullmatch(r"--gpu-architecture=sm_(\d+)", options[0])[1])
        if arch not in self.archs:
            raise RuntimeError("NVRTC_ERROR_INVALID_OPTION (5)")


def copy(to, source, size, kind, stream):
    assert kind in MEMORY.values()
    ctypes.memmove(to, source, size)


class Memory:
    def __init__(self, size):
        self.held = np.full(size + 512, 0xFF, np.uint8)
        self.ptr = self.held.ctypes.data + (-self.held.ctypes.data) % 256


class Event:
    def __init__(self, disable_timing=False):
        pass

    def record(self, stream):
        pass

    def synchronize(self):
        pass


class Stream:
    ptr = 0

    def __init__(self, machine):
        self.machine = machine

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def synchronize(self):
        pass

    def wait_event(self, event):
        pass

    def begin_capture(self, *_):
        if "capture" in self.machine.broken:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
        self.machine.captured = []

    def end_capture(self):
        kept, self.machine.captured = self.machine.captured, None
        if "replay" in self.machine.broken:
            kept = kept[:1]

        def launch(stream):
            for run in kept:
                run()

        return types.SimpleNamespace(launch=launch)


class RawModule:
    """The file is known by the line that kernels/source.py begins it with; its text is compiled by the shim."""

    def __init__(self, machine, code, options):
        self.machine, self.file = machine, re.match(r'#line 1 "(\w+\.cu)"', code)[1]
        pairs = [re.fullmatch(r"-D(\w+)=(.*)", o) for o in options if o.startswith("-D")]
        self.defines = tuple((p[1], int(p[2]) if re.fullmatch(r"-?\d+", p[2]) else p[2]) for p in pairs)

    def get_function(self, name):
        if self.file == self.machine.miscompiled:
            raise CompileException(f"{self.file}(7): error: this does not compile")
        entry = cushim._entry(self.file, self.defines, name)

        def launch(grid, block, args, shared_mem=0):
            if "bad kernel" in self.machine.broken and self.file == "softmax.cu":
                raise CUDARuntimeError("cudaErrorIllegalAddress")
            kinds = {np.int32: ctypes.c_int, np.float32: ctypes.c_float, np.uint64: ctypes.c_void_p}
            values = [kinds[type(a)](int(a) if isinstance(a, np.integer) else float(a)) for a in args]
            dims = (ctypes.c_uint * 6)(*grid, *block)

            def run():
                pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
                takes = entry(dims, ctypes.c_uint(shared_mem), ctypes.c_int(False), pointers, ctypes.c_int(len(values)))
                assert takes < 0, f"{name} takes {takes} arguments, {len(values)} were given"

            if self.machine.captured is None:
                run()
            else:
                self.machine.captured.append(run)

        launch.kernel = types.SimpleNamespace(ptr=len(FUNCTIONS) + 1)
        FUNCTIONS.append((entry, name))
        return launch


FUNCTIONS = []  # by handle, from 1


class Library:
    """The driver's, as far as backends/follow.py uses it."""

    def __init__(self, machine):
        self.machine = machine

    def cuDriverGetVersion(self, out):  # noqa: N802 (the driver's name)
        out._obj.value = self.machine.driver_cuda
        return 0

    def cuLaunchKernelEx(self, config, function, pointers, extra):  # noqa: N802
        if "follow" in self.machine.broken:
            return 700
        c, (entry, name) = config._obj, FUNCTIONS[function.value - 1]
        dims, count = (ctypes.c_uint * 6)(*c.grid, *c.block), len(pointers)
        sizes = [ctypes.string_at(at, 8) for at in pointers]  # the caller's values are gone when a graph is replayed

        def run():
            kept = [ctypes.create_string_buffer(value, 8) for value in sizes]
            at = (ctypes.c_void_p * count)(*(ctypes.addressof(value) for value in kept))
            assert entry(dims, ctypes.c_uint(c_shared), ctypes.c_int(False), at, ctypes.c_int(count)) < 0, name

        c_shared, asked = c.shared, c.attributes[0]
        assert (c.count, asked.id, asked.value[0]) == (1, 6, 1)
        assert self.machine.captured is not None, "it is for graphs"
        self.machine.captured.append(run)
        self.machine.followed.append(name)
        return 0
