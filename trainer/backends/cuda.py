"""One CUDA card, through CuPy. The only file that imports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from ..data.known import default_cache
from ..errors import LaunchError, UserError
from ..kernels.call import Call, Float, Int, Kernel
from ..kernels.source import source
from .follow import follow, follower
from .lanes import LANES, Bound, in_lane, schedule

SHORT, TIMES = 3e-5, 12  # seconds that are little, and how often such launches are done in one graph


def cupy_module() -> Any:
    """CuPy, or a UserError (caused by the ImportError) that says how to get it."""
    try:
        import cupy
    except ImportError as error:
        raise UserError(
            "--device cuda needs CuPy, which is not installed.\n"
            "  pip install 'litenet[gpu]', or train with --device cpu."
        ) from error
    return cupy


class CudaDevice:
    """Allocates, copies, launches and captures on one card and one stream. Raises UserError where there is none."""

    def __init__(self, index: int = 0):
        self.cupy = cupy = cupy_module()
        self.index = index
        try:
            properties = cupy.cuda.runtime.getDeviceProperties(index)
            cupy.cuda.Device(index).use()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise UserError(
                f"--device cuda found no CUDA card ({error}).\n  Check the driver with nvidia-smi, or use --device cpu."
            ) from None
        self.name = properties["name"].decode()
        self.sms = int(properties["multiProcessorCount"])
        self.capability = (int(properties["major"]), int(properties["minor"]))
        self.follower = follower(self.capability)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.side = [cupy.cuda.Stream(non_blocking=True) for _ in range(LANES - 1)]  # for what runs beside it
        self.table = default_cache() / "kernels" / f"{self.name.replace(' ', '-')}.json"  # the variants found fastest
        self._failures = (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
        self.checked = bool(os.environ.get("LITENET_CHECK"))  # every launch waited for, and named when it fails
        self.allocated = 0  # bytes now held, and how often any were asked for: training must not change the second
        self.allocations = 0
        self._held: dict[int, tuple[Any, int]] = {}  # by address: the memory, and its bytes
        self._modules: dict[tuple, Any] = {}

    # ---- memory

    def free_bytes(self) -> int:
        """What the card has left."""
        return int(self.cupy.cuda.runtime.memGetInfo()[0])

    def allocate(self, size: int) -> int:
        """`size` bytes that start at a multiple of 256 and live as long as the device."""
        try:
            memory = self.cupy.cuda.Memory(max(size, 1))
        except self.cupy.cuda.runtime.CUDARuntimeError:
            raise UserError(
                f"{self.name} has {self.free_bytes():,} bytes free, but {size:,} are needed.\n"
                "  Use a smaller --batch, or close what else uses the card."
            ) from None
        self._held[int(memory.ptr)] = memory, size
        self.allocated += size
        self.allocations += 1
        return int(memory.ptr)

    def release(self, address: int) -> None:
        """Give back what `allocate` gave."""
        _, size = self._held.pop(address)
        self.allocated -= size

    def upload(self, address: int, array: np.ndarray) -> None:
        """Host to device, in stream order. The array may be changed when this returns."""
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(address, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, self.stream.ptr)
        if array.nbytes > 65536:  # smaller ones are staged by the driver before the call returns
            self.stream.synchronize()

    def zero(self, address: int, size: int) -> None:
        self.cupy.cuda.runtime.memsetAsync(address, 0, size, self.stream.ptr)

    def copy(self, source: int, target: int, size: int) -> None:
        """From one place on the card to another, in stream order."""
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, self.stream.ptr)

    def download(self, address: int, array: np.ndarray) -> None:
        """Device to host, after all that was launched before."""
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(array.ctypes.data, address, array.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr)
        self.stream.synchronize()

    def synchronize(self) -> None:
        self.stream.synchronize()

    def pinned(self, size: int) -> np.ndarray:
        """`size` bytes of page-locked host memory, which the card copies from by itself."""
        return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(size), np.uint8, size)

    def lane(self, slots: int) -> Lane:
        return Lane(self, slots)

    # ---- kernels

    def function(self, kernel: Kernel) -> Any:
        """The compiled function; modules are compiled once, and CuPy keeps them on disk."""
        key = (kernel.file, kernel.defines)
        if key not in self._modules:
            options = ("-std=c++17", *(f"-D{name}={value}" for name, value in kernel.defines))
            self._modules[key] = self.cupy.RawModule(code=source(kernel.file), options=options)
        try:
            return self._modules[key].get_function(kernel.name)
        except self.cupy.cuda.compiler.CompileException as error:
            raise UserError(f"{kernel.file} ({kernel.name}) does not compile on {self.name}:\n{error}") from None

    def compile(self, kernels: Iterable[Kernel]) -> None:
        """Compile these side by side; NVRTC takes a second or so for each. One that does not compile is told later, by
        the launch that needs it."""
        missing = {(k.file, k.defines): k for k in kernels if (k.file, k.defines) not in self._modules}

        def one(kernel: Kernel) -> None:
            self.cupy.cuda.Device(self.index).use()  # of this thread
            with suppress(UserError):
                self.function(kernel)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, missing.values()))

    def launch(
        self, call: Call, addresses: Sequence[int | None], stream: Any = None, follows: bool = False
    ) -> None:
        """follows: it waits for the launch before it in its stream alone, and so may be set up beside it."""
        if follows and self.follower is not None:
            self._follow(call, addresses, stream or self.stream)
            return
        given = iter(addresses)
        args: list[Any] = []
        for arg in call.args:
            if isinstance(arg, Int):
                args.append(np.int32(arg.value))
            elif isinstance(arg, Float):
                args.append(np.float32(arg.value))
            else:
                args.append(np.uint64(next(given) or 0))
        try:
            with stream or self.stream:
                self.function(call.kernel)(call.grid, call.block, tuple(args), shared_mem=call.shared)
            if self.checked:
                self.stream.synchronize()
        except self._failures as error:
            raise LaunchError(
                f"{described(call)} failed on {self.name}: {error}.\n"
                + ("  Please report this with the blueprint." if self.checked else f"  {HOW_TO_CHECK}")
            ) from None

    def _follow(self, call: Call, addresses: Sequence[int | None], stream: Any) -> None:
        failed = follow(self.follower, self.function(call.kernel).kernel.ptr, call, addresses, stream.ptr)
        if failed:
            said = f"{described(call)} failed on {self.name}: the driver's error {failed}."
            raise LaunchError(f"{said}\n  {HOW_TO_CHECK}")

    def measure(self, launches: Sequence[Bound]) -> float:
        """Seconds of the launches, done after one another: the fastest of three rounds. What takes little is done
        several times a graph, as a graph takes microseconds to begin."""
        once = self._measured(launches, 1)
        return once if once > SHORT else self._measured(launches, TIMES)

    def _measured(self, launches: Sequence[Bound], times: int) -> float:
        replay = self.capture([*launches] * times)
        replay()
        best = float("inf")
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        for _ in range(3):
            start.record(self.stream)
            for _ in range(8):
                replay()
            end.record(self.stream)
            end.synchronize()
            best = min(best, self.cupy.cuda.get_elapsed_time(start, end))
        return best / (8e3 * times)

    def capture(self, launches: Sequence[Bound]) -> Callable[[], None]:
        """One CUDA graph of the launches, side by side where lanes.py allows it; calling it replays them."""
        for call, _ in launches:
            self.function(call.kernel)
        if self.checked:
            kept = list(launches)

            def one_by_one() -> None:
                for call, addresses in kept:
                    self.launch(call, addresses)

            return one_by_one
        tasks = schedule(launches)
        awaited = {j for task in tasks for j in task.waits}
        used = {task.lane for task in tasks}
        streams = {lane: self.stream if lane == 0 else self.side[lane - 1] for lane in used | {0}}
        events: dict[int, Any] = {}
        with self.stream:
            self.stream.begin_capture()
            begun = self._event(self.stream)
            for lane in used - {0}:
                streams[lane].wait_event(begun)
            for index, ((call, addresses), task) in enumerate(zip(launches, tasks, strict=True)):
                stream = streams[task.lane]
                for j in task.waits:
                    stream.wait_event(events[j])
                self.launch(call, in_lane(call, addresses, task.lane), stream, task.follows)
                if index in awaited:
                    events[index] = self._event(stream)
            for lane in used - {0}:
                self.stream.wait_event(self._event(streams[lane]))
            graph = self.stream.end_capture()
        return lambda: graph.launch(self.stream)

    def _event(self, stream: Any) -> Any:
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event


HOW_TO_CHECK = "An earlier launch may be to blame: set LITENET_CHECK=1, and the first that fails is named."


def described(call: Call) -> str:
    """A launch in words: kernel, macros, grid, and its numbers in the order of the arguments."""
    macros = " ".join(f"{name}={value}" for name, value in call.kernel.defines)
    numbers = ", ".join(f"{arg.value:g}" for arg in call.args if isinstance(arg, (Int, Float)))
    x, y, z = call.grid
    grid = f"{x} x {y} x {z} blocks of {call.block[0]}"
    return f"{call.kernel.name} ({call.kernel.file} {macros}), {grid}, sizes {numbers},"


class Lane:
    """Copies to the card beside the launches: `slots` places that are filled and read in turn, with events between."""

    def __init__(self, device: CudaDevice, slots: int):
        cuda = device.cupy.cuda
        self.device, self.stream = device, cuda.Stream(non_blocking=True)
        self.arrived = [cuda.Event(disable_timing=True) for _ in range(slots)]
        self.read = [cuda.Event(disable_timing=True) for _ in range(slots)]

    def free(self, slot: int) -> None:
        """Wait until the host may write this slot's page again: its last copy has arrived."""
        self.arrived[slot].synchronize()

    def send(self, slot: int, address: int, page: np.ndarray) -> None:
        """Copy a page once the launches that read the slot before are done; launches from now on find it there."""
        self.stream.wait_event(self.read[slot])
        runtime = self.device.cupy.cuda.runtime
        runtime.memcpyAsync(address, page.ctypes.data, page.nbytes, runtime.memcpyHostToDevice, self.stream.ptr)
        self.arrived[slot].record(self.stream)
        self.device.stream.wait_event(self.arrived[slot])

    def used(self, slot: int) -> None:
        """The launches that read the slot have been given to the card."""
        self.read[slot].record(self.device.stream)
