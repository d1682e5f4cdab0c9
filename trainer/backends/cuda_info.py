"""What CuPy and the card say of themselves. Takes CuPy as an argument: cuda.py is where it is imported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..kernels.call import Kernel
from .cards import Capability

if TYPE_CHECKING:
    from .cuda import CudaDevice

# cudaDeviceAttr: asked by number, because CUDA 13 has dropped some of them from the device's properties
CLOCK_KHZ, WATCHDOG, INTEGRATED, ECC, MEMORY_CLOCK_KHZ, BUS_BITS, COOPERATIVE = 13, 17, 18, 32, 36, 37, 95
PROBE = 'extern "C" __global__ void probe(float *y) { y[threadIdx.x] = fmaf(y[0], 2.0f, 1.0f); }'


@dataclass(frozen=True)
class Compiler:
    """NVRTC: its version, and the capabilities it knows (empty where it does not tell)."""

    version: tuple[int, int]
    capabilities: tuple[Capability, ...]


def attribute(cupy: Any, number: int, index: int = 0) -> int:
    return int(cupy.cuda.runtime.deviceGetAttribute(number, index))


def memory(cupy: Any) -> tuple[int, int]:
    """(free, total) bytes of the card in use."""
    free, total = cupy.cuda.runtime.memGetInfo()
    return int(free), int(total)


def compiler(cupy: Any) -> Compiler:
    """Raises RuntimeError where NVRTC is not found."""
    nvrtc = cupy.cuda.nvrtc
    listed = getattr(nvrtc, "getSupportedArchs", lambda: ())()
    return Compiler(tuple(nvrtc.getVersion()), tuple((arch // 10, arch % 10) for arch in listed))


def compile_probe(cupy: Any, cc: Capability) -> None:
    """Compile a kernel of one line for this capability, past all caches. Raises whatever NVRTC raises."""
    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(PROBE, "probe.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"--gpu-architecture=sm_{cc[0]}{cc[1]}",))
    finally:
        nvrtc.destroyProgram(program)


def peak_flops(cupy: Any, sms: int, cores: int) -> float:
    """float32 operations a second: two for each core and clock."""
    return 2.0 * sms * cores * attribute(cupy, CLOCK_KHZ) * 1e3


def peak_bytes(cupy: Any) -> float:
    """Bytes a second of the memory bus: two transfers a clock."""
    return 2.0 * attribute(cupy, MEMORY_CLOCK_KHZ) * 1e3 * attribute(cupy, BUS_BITS) / 8


def compile_all(device: CudaDevice, kernels: list[Kernel], threads: int) -> None:
    """Compile many files at once. What fails is left to the launch, where the tests' device compiles anyway."""
    if not hasattr(device, "function"):
        return

    def one(kernel: Kernel) -> None:
        device.cupy.cuda.Device(device.index).use()
        with suppress(Exception):  # it comes again, with its text, when the kernel is launched
            device.function(kernel)

    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(one, kernels))
