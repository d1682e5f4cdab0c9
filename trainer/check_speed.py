"""How fast this machine is: kernels as a share of what the card could do, and a step of a real net."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from math import prod
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from .backends import cards
from .backends.cards import Capability
from .blueprint import parse
from .check_line import FAIL, OK, WARN, Line
from .check_software import usable_cores
from .data.dataset import Dataset, mean_std
from .data.digits import read_digits
from .data.known import DIGITS
from .kernels import calls_gemm
from .kernels.call import Shapes
from .kernels.tiles import COUNTERS
from .ops import OPS, make_attrs
from .settings import settings_for
from .trainer import Trainer

if TYPE_CHECKING:
    from .backends.cuda import CudaDevice
    from .device_trainer import DeviceTrainer

NET = {  # examples/mnist_cnn.json, as far as speed goes
    "name": "mnist_cnn",
    "input_shape": [1, 28, 28],
    "layers": [
        {"type": "conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1, "activation": "relu"},
        {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
        {"type": "conv2d", "out_channels": 64, "kernel_size": 3, "padding": 1, "activation": "relu"},
        {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
        {"type": "flatten"},
        {"type": "linear", "out_features": 128, "activation": "relu"},
        {"type": "linear", "out_features": 10},
    ],
    "loss": "cross_entropy",
    "optimizer": {"type": "sgd", "momentum": 0.9, "weight_decay": 1e-4},
    "learning_rate": 0.05,
}
BATCH, STEPS = 64, 50
BUSY = 1.5  # processes to a core, from which on a time says little
CPU_STEPS, CPU_SECONDS = 10, 1.5  # at most so many steps, in about that time
AGREEMENT = 1e-4  # of the largest gradient of a tensor, between the card and NumPy
LOW = 0.15  # share of the peak below which something is wrong rather than slow
CONV = (32, (32, 32, 64), {"out_channels": 64, "kernel_size": 3, "padding": 1, "activation": "relu"})
TIMED = 3  # variants of the convolution that are tried, of each kind


def throughput(device: CudaDevice, cc: Capability) -> Iterator[Line]:
    """A product, a convolution and a sum, beside the peak that clock and cores allow."""
    from .backends.cuda_info import peak_bytes, peak_flops
    from .profile_peaks import device_peaks

    peaks = device_peaks(device)
    most, bus = peak_flops(device.cupy, device.sms, cards.cores(cc)) / 1e9, peak_bytes(device.cupy) / 1e9
    yield _share("product", peaks.gflops, most, "GFLOP/s", peaks.gflops_by)
    direct, winograd = convolution(device)
    text = "a convolution of 64 channels"
    text += f"; by Winograd {winograd:,.0f} of them in effect" if winograd else ""
    yield _share("3 x 3 conv", direct, most, "GFLOP/s", text)
    yield _share("memory bus", peaks.gbs, bus, "GB/s", peaks.gbs_by)


def _share(name: str, reached: float, peak: float, unit: str, what: str) -> Line:
    facts = {"reached": reached, "peak": peak, "unit": unit}
    if not peak:  # not told by the driver
        return Line(name, OK, f"{reached:,.0f} {unit}: {what}", facts=facts)
    share = reached / peak
    text = f"{reached:,.0f} of {peak:,.0f} {unit} ({100 * share:.0f} %): {what}"
    if share >= LOW:
        return Line(name, OK, text, facts=facts)
    advice = "Much less than the card can do. Is it in other use, or at a low clock (nvidia-smi -q -d CLOCK)?"
    return Line(name, WARN, text, advice, facts)


def convolution(device: CudaDevice) -> tuple[float, float]:
    """GFLOP/s of the formula, by the best tile and by the best Winograd (0 where there is none)."""
    from .profile_peaks import timed

    N, x, attrs = CONV
    a = make_attrs(OPS["conv2d"].OP, attrs)
    y = OPS["conv2d"].out_shape(a, x)
    flops = 2.0 * N * OPS["conv2d"].macs(a, x, y)
    sizes = {"x": 4 * N * prod(x), "y": 4 * N * prod(y), "counters": 4 * COUNTERS}
    sizes |= {w.name: 4 * prod(w.shape(a, x)) for w in OPS["conv2d"].OP.weights}
    best, tried = {"direct": 0.0, "winograd": 0.0}, {"direct": 0, "winograd": 0}
    for variant in calls_gemm.parts("conv2d", "forward", Shapes(a, N, x, y, sms=device.sms))["forward"]:
        kind = "winograd" if "winograd" in variant.name else "direct"
        tried[kind] += 1
        if tried[kind] <= TIMED:
            seconds = timed(device, variant.calls, sizes | {"scratch": variant.scratch + 4})
            best[kind] = max(best[kind], flops / seconds / 1e9)
    return best["direct"], best["winograd"]


# ---- a step of a net


def digits() -> tuple[Dataset, tuple[float, ...], tuple[float, ...]]:
    """The built-in digits enlarged to the net's size, their middle, with mean and deviation of each channel."""
    side, small = NET["input_shape"][1], read_digits(DIGITS).train  # type: ignore[index]
    times = -(-side // small.x.shape[1])
    first = (times * small.x.shape[1] - side) // 2
    cut = slice(first, first + side)
    data = Dataset(small.x.repeat(times, 1).repeat(times, 2)[:, cut, cut], small.y, name="digits")
    mean, std = mean_std(data)
    return data, tuple(map(float, mean)), tuple(map(float, std))


def step(device: CudaDevice) -> Iterator[Line]:
    """The net on the card: gradients beside NumPy's, then STEPS steps timed."""
    from .device_trainer import DeviceTrainer

    blueprint, (data, mean, std) = parse(json.dumps(NET)), digits()
    begin = time.perf_counter()
    trainer = DeviceTrainer(device, blueprint, BATCH, 1, mean, std)
    worst = _disagreement(trainer, Trainer(blueprint, BATCH, 1, mean, std), data)
    settings = settings_for(blueprint, {"batch_size": BATCH, "epochs": 1})
    order = np.random.default_rng(0).permutation(len(data.x))
    batches = [order[at : at + BATCH] for at in range(0, len(order) - BATCH + 1, BATCH)]
    trainer.run_batch(data, batches[0], True, 1, settings)
    first = trainer.collect(True)[0]["loss"]
    ready, begin = time.perf_counter() - begin, time.perf_counter()
    for k in range(STEPS):
        trainer.run_batch(data, batches[k % len(batches)], True, 1, settings)
    device.synchronize()
    seconds = (time.perf_counter() - begin) / STEPS
    last = trainer.collect(True)[-1]["loss"]
    facts = {"net": NET["name"], "batch": BATCH, "seconds_a_step": seconds, "seconds_to_plan": ready,
             "arena_bytes": trainer.backend.bytes, "gradient_error": worst, "loss": [first, last]}  # fmt: skip
    if not worst <= AGREEMENT:
        text = f"{NET['name']}: gradients differ from NumPy's by {worst:.2g} of the largest, {AGREEMENT:g} is allowed"
        yield Line("a net", FAIL, text, "Do not train on this card: please report this with these lines.", facts)
    elif not last < first:
        text = f"{NET['name']}: the loss went from {first:.3g} to {last:.3g} in {STEPS} steps; it should fall"
        yield Line("a net", FAIL, text, "Do not train on this card: please report this with these lines.", facts)
    else:
        text = f"{NET['name']}: gradients within {worst:.1g} of NumPy's, loss {first:.2f}, then {last:.2f}"
        yield Line("a net", OK, f"{text}; ready after {ready:.1f} s, the next time sooner", facts=facts)
        yield Line("estimate", OK, _estimate(seconds), facts={"seconds_a_step": seconds})


def _disagreement(trainer: DeviceTrainer, reference: Trainer, data: Dataset) -> float:
    """Largest difference of a gradient, over the largest gradient of its tensor."""
    x, y = data.x[:BATCH], data.y[:BATCH]
    found = []
    for one in (reference, trainer):
        activations = one.forward(x)
        found.append(one.backward(one.criterion(activations["output"], y), activations))
    want, got = found
    return max(float(np.abs(got[n] - want[n]).max() / (np.abs(want[n]).max() + 1e-9)) for n in want.names())


def step_on_cpu() -> Iterator[Line]:
    """The same net by NumPy."""
    blueprint, (data, mean, std) = parse(json.dumps(NET)), digits()
    trainer = Trainer(blueprint, BATCH, 1, mean, std)
    settings = settings_for(blueprint, {"batch_size": BATCH, "epochs": 1})
    times: list[float] = []
    while len(times) < 2 or (len(times) <= CPU_STEPS and sum(times) < CPU_SECONDS):
        begin = time.perf_counter()
        trainer.run_batch(data, np.arange(BATCH) + len(times) * BATCH, True, 1, settings)
        times.append(time.perf_counter() - begin)
    seconds = median(times[1:])  # the first also touches its memory for the first time
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, usable_cores()
    facts = {"seconds_a_step": seconds, "load": load, "cores": cores}
    if load > BUSY * cores:
        text = f"{_estimate(seconds, ' on the CPU')}, while others keep it busy (load {load:.1f} on {cores} cores)"
        advice = "Try again when it is idle. Where it never is, OPENBLAS_NUM_THREADS=1 loses least."
        yield Line("estimate", WARN, text, advice, facts)
    else:
        yield Line("estimate", OK, _estimate(seconds, " on the CPU"), facts=facts)


def _estimate(seconds: float, where: str = "") -> str:
    epoch = _spent(60_000 / BATCH * seconds)
    return f"{NET['name']}, batch {BATCH}: about {_spent(seconds)} a step{where}, an epoch of MNIST in {epoch}"


def _spent(seconds: float) -> str:
    """0.00013 -> "130 us"; 75 -> "75 s"; 200 -> "3 min"."""
    for unit, size, most in (("us", 1e-6, 1e-2), ("ms", 1e-3, 1), ("s", 1, 120)):
        if seconds < most:
            return f"{seconds / size:,.{1 if seconds / size < 10 else 0}f} {unit}"
    return f"{seconds / 60:,.0f} min"
