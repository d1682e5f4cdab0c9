"""A profile of one training step: each launch with its time, its bytes, its work, and what the machine could do.

    found = profile_step(trainer, data, settings)   # trains nothing: the trainer's state is put back, to the bit
    write(found, Path("runs/mnist_cnn"))            # profile.html and profile.json (profile_page.py)

The kernels of a step are the same in every step, so one profile describes all of them. Work and traffic are what the
operator's definition asks for, not what a kernel happens to do:

    flops   2 x multiply-adds forward; backward as many for the inputs' gradients and for the weights' gradients
    bytes   every value the launch reads and every value it writes, once each; scratch memory is not counted
    floor   max(bytes / bandwidth, flops / peak): the least time this work can take here, both measured in the same
            minute (profile_peaks.py)
    share   floor / time: 1 is a perfect kernel. It may pass 1 where data stay in a cache, or where an algorithm
            (Winograd) needs fewer multiplications than the definition
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, prod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from .aids import AVERAGE
from .data.dataset import Dataset
from .memory import report
from .plan import Buffer, Launch, Plan
from .profile_peaks import Peaks, cpu_name, cpu_peaks, device_peaks, seconds
from .settings import Settings
from .trainer import Trainer

if TYPE_CHECKING:
    from .backends.device import Bound
    from .device_trainer import DeviceTrainer, Piece

LANES = {
    "load": "forward", "forward": "forward", "loss": "loss", "backward": "backward", "sum": "backward",
    "again": "backward", "clip": "update", "update": "update", "average": "update",
}  # fmt: skip
ROUNDS = 5  # readings of which the median counts
READING = 2e-4  # seconds of kernels in one reading: short ones are repeated to fill it


@dataclass(frozen=True)
class KernelRun:
    """One kernel of a launch. variant: the macros it was compiled with, as chosen for this shape."""

    file: str
    name: str
    variant: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


@dataclass(frozen=True)
class LaunchTime:
    """One launch of a step, in the order they run. Times in microseconds, the rest in bytes and operations."""

    at: int | None  # index in the plan; None: only the device has it
    name: str
    kind: str
    lane: str  # forward, loss, backward, update
    layer: str
    op: str
    kernels: tuple[KernelRun, ...]
    kernel_us: tuple[float, ...]  # each kernel timed by itself
    us: float
    read: int
    written: int
    scratch: int
    flops: int
    gbs: float
    gflops: float
    floor_us: float
    binds: str  # "memory" or "arithmetic": which of the two makes the floor
    share: float
    gap_us: float  # what would be saved if it ran at its floor


@dataclass(frozen=True)
class Tenant:
    """A buffer of the arena. next: index of the buffer that uses some of its bytes after it, or None."""

    name: str
    kind: str
    owner: str
    bytes: int
    first: int
    last: int
    offset: int
    persistent: bool
    values: tuple[str, ...]
    next: int | None


@dataclass(frozen=True)
class LayerTotal:
    """Sums over the launches of one layer. weights: values trained; weight_bytes: what the layer keeps in the arena."""

    name: str
    us: dict[str, float]  # by lane
    bytes: int
    flops: int
    weights: int
    weight_bytes: int


@dataclass(frozen=True)
class Profile:
    """All that the page and the trace are made from."""

    net: str
    device: str
    kind: str  # cpu or cuda
    batch: int
    accumulation: int
    step_us: float  # one micro-batch with its update, as the training loop sees it
    replay_us: float | None  # the same kernels replayed as one graph, without the host
    sum_us: float  # the launches one by one
    host_us: float  # the host's own share of a step
    peaks: Peaks
    launches: tuple[LaunchTime, ...]
    plan: tuple[str, ...]  # names of the plan's launches: what buffers' first and last count
    buffers: tuple[Tenant, ...]
    layers: tuple[LayerTotal, ...]
    live: tuple[int, ...]  # bytes of the arena in use during each of the plan's launches
    peak: int  # the launch during which most is in use
    arena: int
    lower_bound: int
    persistent: int

    @property
    def share(self) -> float:
        """Of the roofline, for the step as a whole; a launch that beats its floor counts as being there."""
        return sum(min(launch.floor_us, launch.us) for launch in self.launches) / self.step_us

    @property
    def samples_per_second(self) -> float:
        return 1e6 * self.batch / self.step_us


@dataclass(frozen=True)
class Timed:
    """A launch with its seconds, before it is compared with anything."""

    launch: Launch | None
    name: str
    kind: str
    seconds: float
    bound: tuple[Bound, ...] = ()
    each: tuple[float, ...] = ()  # seconds of each kernel


@dataclass(frozen=True)
class Reading:
    """A step in seconds: as the loop sees it, its kernels alone (None: nothing replays them), the host's share of it,
    and launch by launch."""

    step: float
    replay: float | None
    host: float
    launches: list[Timed]


def profile_step(trainer: Trainer | DeviceTrainer, data: Dataset, settings: Settings) -> Profile:
    """Measure a step of the trainer on the front of `data`. Weights, optimiser state and counters end as they were;
    figures that had not been collected are lost."""
    with untouched(trainer):
        if isinstance(trainer, Trainer):
            kind, device = "cpu", f"{cpu_name()}, NumPy"
            reading, peaks = _on_cpu(trainer, data, settings), cpu_peaks()
        else:
            kind, device = "cuda", trainer.device.name
            reading, peaks = _on_device(trainer, data, settings), device_peaks(trainer.device)
    plan, states, pixel = trainer.plan, trainer.optimizer.rule.states, data.x.dtype.itemsize
    launches = tuple(_row(plan, timed, states, pixel, peaks) for timed in reading.launches)
    return Profile(
        net=trainer.blueprint.name,
        device=device,
        kind=kind,
        batch=plan.batch,
        accumulation=settings.accumulation,
        step_us=1e6 * reading.step,
        replay_us=None if reading.replay is None else 1e6 * reading.replay,
        sum_us=sum(row.us for row in launches),
        host_us=1e6 * reading.host,
        peaks=peaks,
        launches=launches,
        plan=tuple(launch.name for launch in plan.launches),
        buffers=tenants(plan),
        layers=layer_totals(plan, launches),
        live=tuple(plan.persistent_bytes + sum(b.bytes for b in plan.live(i)) for i in range(len(plan.launches))),
        peak=[launch.name for launch in plan.launches].index(report(plan).peak_launch),
        arena=plan.arena_bytes,
        lower_bound=plan.lower_bound,
        persistent=plan.persistent_bytes,
    )


@contextmanager
def untouched(trainer: Trainer | DeviceTrainer) -> Iterator[None]:
    """Steps made inside leave no trace. The learning rate is 0 there, so that repeated updates stay where they are."""
    arrays, micro, t, lr = trainer.state_arrays(), trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr
    trainer.optimizer.lr = 0.0
    try:
        yield
    finally:
        trainer.collect(True)
        trainer.load_arrays(arrays, "the profile's copy")
        trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr = micro, t, lr


def _stepper(trainer: Trainer | DeviceTrainer, data: Dataset, settings: Settings) -> Callable[[], None]:
    """A whole step: one micro-batch and the update after it."""
    index = _index(trainer, data)
    return lambda: trainer.run_batch(data, index, True, settings.accumulation, settings)


def _index(trainer: Trainer | DeviceTrainer, data: Dataset) -> np.ndarray:
    return np.arange(trainer.batch_size) % len(data.x)


# ---- with NumPy


def _on_cpu(trainer: Trainer, data: Dataset, settings: Settings) -> Reading:
    """The host's share is what passes between the launches."""
    step, steps, rounds = _stepper(trainer, data, settings), list[float](), list[list[float]]()
    step()
    with _clock(trainer) as marks:
        for _ in range(ROUNDS):
            marks.clear()
            started = time.perf_counter()
            step()
            steps.append(time.perf_counter() - started)
            rounds.append(_durations(trainer.plan, started, marks, started + steps[-1]))
    times = [median(found) for found in zip(*rounds, strict=True)]
    timed = [Timed(launch, launch.name, launch.kind, s) for launch, s in zip(trainer.plan.launches, times, strict=True)]
    return Reading(median(steps), None, max(0.0, median(steps) - sum(times)), timed)


@contextmanager
def _clock(trainer: Trainer) -> Iterator[list[float]]:
    """Collect when each launch of a step ends, and when an update of everything at once begins."""
    marks, backend, optimizer = list[float](), trainer.backend, trainer.optimizer
    after, update, average = backend.after, optimizer.update, optimizer.after

    def mark(plan: Plan, index: int) -> None:
        marks.append(time.perf_counter())
        after(plan, index)

    def begin(weights: Any, gradients: Any) -> None:
        marks.append(time.perf_counter())
        update(weights, gradients)

    def then() -> None:
        marks.append(time.perf_counter())
        average()

    vars(backend)["after"], vars(optimizer)["update"] = mark, begin
    if trainer.aids.ema and trainer.update_mode == "end":
        optimizer.after = then
    try:
        yield marks
    finally:
        del vars(backend)["after"]
        vars(optimizer)["update"], optimizer.after = update, average


def _durations(plan: Plan, started: float, marks: list[float], ended: float) -> list[float]:
    """Seconds of each launch. With update="end", clip, update and average run after all the others have ended."""
    last = ("clip", "update", "average") if plan.update == "end" else ()
    whole = [i for i, launch in enumerate(plan.launches) if launch.kind in last]
    ends = [*marks[: len(plan.launches) - len(whole)], *marks[len(plan.launches) :], *([ended] if whole else [])]
    return [end - start for start, end in zip([started, *ends], ends, strict=False)]


# ---- with kernels


def _on_device(trainer: DeviceTrainer, data: Dataset, settings: Settings) -> Reading:
    """The host's share is how long it takes to send a step, while the device works on earlier ones."""
    device, step = trainer.device, _stepper(trainer, data, settings)
    step()  # the data set goes to the device, kernels are compiled, the graph is captured
    device.synchronize()
    steps, host = [], []
    for _ in range(ROUNDS):
        count = 20 if hasattr(device, "measure") else 1
        started = time.perf_counter()
        for _ in range(count):
            step()
        host.append((time.perf_counter() - started) / count)
        device.synchronize()
        steps.append((time.perf_counter() - started) / count)
    trainer.collect(True)
    index = _index(trainer, data)
    work = trainer.work(trainer.source(data.x, data.y, index), len(index), True, True, settings)
    pieces = trainer.pieces(work)
    replay = seconds(device, [bound for piece in pieces for bound in piece.bound])
    timed = [_time(device, piece) for piece in pieces]
    trainer.feed.sent(work.source)
    return Reading(median(steps), replay, median(host), timed)


def _time(device: Any, piece: Piece) -> Timed:
    repeat = max(1, min(20, ceil(READING / max(seconds(device, piece.bound), 1e-9))))

    def found(bound: list[Bound]) -> float:
        return median(seconds(device, bound, repeat) for _ in range(3))

    whole = found(piece.bound)
    each = tuple(found([one]) for one in piece.bound) if len(piece.bound) > 1 else (whole,)
    return Timed(piece.launch, piece.name, piece.kind, whole, tuple(piece.bound), each)


# ---- what a launch should cost


def traffic(plan: Plan, launch: Launch, states: Iterable[str], pixel: int) -> tuple[int, int, int]:
    """(bytes read, bytes written, bytes of scratch). pixel: bytes of one stored value of the data set."""
    reads = {*launch.reads.values(), *launch.adds.values()}
    writes = {name for role, name in launch.writes.items() if role != "scratch"}
    if launch.kind == "update":
        params = [name for name in reads if name in plan.graph.params]
        writes = {*params, *(f"{state}:{name}" for state in states for name in params)}
        reads = reads | writes
    elif launch.kind == "average":
        writes = {f"{AVERAGE}:{name}" for name in reads}
        reads = reads | writes
    size = {name: plan.values[name].bytes for name in reads | writes}
    read = sum(size[name] for name in reads)
    if launch.kind == "load":
        read = plan.batch * prod(plan.graph.input_shape) * pixel + size.get("target", 0)
    scratch = plan.values[launch.writes["scratch"]].bytes if "scratch" in launch.writes else 0
    return read, sum(size[name] for name in writes), scratch


def flops(plan: Plan, launch: Launch) -> int:
    """Of the whole batch; see the top of this file."""
    if launch.node is None:
        return 0
    once = 2 * plan.batch * plan.graph.macs(launch.node)
    if launch.kind != "backward":
        return once
    own = launch.writes.keys() & launch.node.params.keys()
    return once * (bool(own) + bool(launch.writes.keys() - own - {"scratch"}))


def _row(plan: Plan, timed: Timed, states: Iterable[str], pixel: int, peaks: Peaks) -> LaunchTime:
    launch, us = timed.launch, 1e6 * timed.seconds
    read, written, scratch = traffic(plan, launch, states, pixel) if launch else (0, 0, 0)
    work = flops(plan, launch) if launch else 0
    memory_us, compute_us = (read + written) / peaks.gbs / 1e3, work / peaks.gflops / 1e3
    floor = max(memory_us, compute_us)
    return LaunchTime(
        at=plan.launches.index(launch) if launch else None,
        name=timed.name,
        kind=timed.kind,
        lane=LANES[timed.kind],
        layer=_owner(plan, timed),
        op=launch.node.op if launch and launch.node else timed.kind,
        kernels=tuple(_kernel(bound) for bound in timed.bound),
        kernel_us=tuple(1e6 * s for s in timed.each),
        us=us,
        read=read,
        written=written,
        scratch=scratch,
        flops=work,
        gbs=(read + written) / us / 1e3,
        gflops=work / us / 1e3,
        floor_us=floor,
        binds="arithmetic" if compute_us > memory_us else "memory",
        share=floor / us,
        gap_us=max(0.0, us - floor),
    )


def _owner(plan: Plan, timed: Timed) -> str:
    """The layer of a launch, or what it does for all of them: input, loss, update."""
    launch = timed.launch
    if launch and launch.node:
        return launch.node.layer
    if launch and launch.group:
        return plan.graph.params[launch.group].layer
    return "input" if timed.kind == "load" else LANES[timed.kind]


def _kernel(bound: Bound) -> KernelRun:
    call, _ = bound
    variant = " ".join(f"{name}={value}" for name, value in call.kernel.defines)
    return KernelRun(call.kernel.file, call.kernel.name, variant, call.grid, call.block, call.shared)


# ---- memory and layers


def tenants(plan: Plan) -> tuple[Tenant, ...]:
    """The buffers of the arena, each with the one that follows it on the same bytes."""
    values: dict[int, list[str]] = {}
    for value in plan.values.values():
        values.setdefault(value.buffer, []).append(value.name)
    shown = [i for i, b in enumerate(plan.buffers) if b.kind != "external"]
    place = {i: n for n, i in enumerate(shown)}
    found = []
    for i in shown:
        b, after = plan.buffers[i], _next(plan, plan.buffers[i])
        found.append(
            Tenant(
                name=b.name,
                kind=b.kind,
                owner=b.owner,
                bytes=b.bytes,
                first=b.first,
                last=min(b.last, len(plan.launches) - 1),
                offset=b.offset,
                persistent=b.persistent,
                values=tuple(values.get(i, ())),
                next=None if after is None else place[after],
            )
        )
    return tuple(found)


def _next(plan: Plan, mine: Buffer) -> int | None:
    later = [
        (b.first, i)
        for i, b in enumerate(plan.buffers)
        if b.first > mine.last and b.offset < mine.offset + mine.bytes and mine.offset < b.offset + b.bytes
    ]
    return min(later)[1] if later else None


def layer_totals(plan: Plan, launches: Iterable[LaunchTime]) -> tuple[LayerTotal, ...]:
    """Layers in the order of their first launch."""
    rows: dict[str, list[LaunchTime]] = {}
    for launch in launches:
        rows.setdefault(launch.layer, []).append(launch)
    out = []
    for name, mine in rows.items():
        us: dict[str, float] = {}
        for row in mine:
            us[row.lane] = us.get(row.lane, 0.0) + row.us
        out.append(
            LayerTotal(
                name,
                us,
                sum(row.read + row.written for row in mine),
                sum(row.flops for row in mine),
                sum(prod(p.shape) for p in plan.graph.trainable if p.layer == name),
                sum(b.bytes for b in plan.buffers if b.persistent and b.owner == name),
            )
        )
    return tuple(out)
